#include "brrr/graph/step_entry.h"

#include <fmt/format.h>

#include "brrr/graph/fusion_report.h"
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

std::string to_string(const Entry& entry, const CompiledEntry& e) {
  std::string text = fmt::format(
      "{}: {}; called {}\n  {} in {}{}\n  memory: planned {} bytes: arena {} (at "
      "least {}), constants {}, results {}, scratch {}; gradients {}\n",
      e.signature, e.reason, counted(e.calls, "time"), counted(e.nodes, "call"),
      counted(e.lanes, "lane"),
      e.launches > 0 ? fmt::format(", {} in the CUDA graph", counted(e.launches, "node")) : "",
      e.planned_bytes(), e.arena_bytes, e.least_bytes, e.constant_bytes, e.result_bytes,
      e.scratch_bytes + e.kernel_bytes, e.kept_bytes - e.constant_bytes);
  for (const SettingRead& read : entry.guards->settings())
    text += fmt::format("  while {} is {}\n", read.name, read.value);
  const Program& program = *entry.program;
  if (entry.remat) text += to_string(*entry.remat);
  if (entry.choice)
    text += fmt::format("  {} {}\n", entry.choice->unfused ? "not fused," : "fused,",
                        entry.choice->text);
  text += "  " + prediction_text(program.prediction()) + "\n";
  text += kernels_text(describe_kernels(program.graph(), program.launches(), program.prediction()),
                       program.graph().fast);
  text += unfused_text(program.graph());
  const std::string lines = to_string(entry.host_constants);
  if (!lines.empty()) text += "  the same in every replay:\n";
  for (std::size_t from = 0; from < lines.size();) {
    const std::size_t end = lines.find('\n', from);
    text += "    " + lines.substr(from, end - from) + "\n";
    from = end + 1;
  }
  return text;
}

}  // namespace brrr::graph
