#include "brrr/graph/step_entry.h"

#include <fmt/format.h>

#include "brrr/tensor/counted.h"

namespace brrr::graph {

std::string reason_of(const Entry& entry) {
  std::string reason = entry.reason;
  const auto add = [&reason](const char* what, int times, const char* why) {
    if (times > 0) reason += fmt::format("; {} {}, since {}", what, counted(times, "time"), why);
  };
  add("traced again", entry.traced_again, "a gradient that the step looks at was another tensor");
  add("traced again", entry.replaced, "parameters were packed or moved");
  add("gradients in new memory", entry.renewed, "the caller still had references to the last ones");
  return reason;
}

}  // namespace brrr::graph
