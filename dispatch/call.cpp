#include "brrr/dispatch/call.h"

#include <fmt/format.h>

#include "brrr/dispatch/op_info.h"

namespace brrr {

std::string Call::number_text(int place) const {
  return is_floating(dtype) ? fmt::format("{}", attrs[place].d())
                            : fmt::format("{}", attrs[place].i());
}

std::string core::describe(const Call& call) {
  const OpInfo& info = op_info(call.op);
  std::string text = fmt::format("{}{}(", info.name, call.in_place ? "_" : "");
  const char* separator = "";
  const auto add = [&](const std::string& part) {
    text += separator + part;
    separator = ", ";
  };
  if (info.kind == OpKind::pointwise) {
    std::uint32_t next = 0;
    for (int i = 0; i < info.arity; ++i)
      add(call.is_scalar(i) ? call.number_text(i) : call.inputs[next++]->describe());
    return text + ")";
  }
  for (std::uint32_t i = 0; i < call.n_inputs; ++i) add(call.inputs[i]->describe());
  for_each_attribute(call, [&](const CallAttribute& attribute) {
    add(fmt::format("{}={}", attribute.row.name, attribute.text()));
  });
  return text + ")";
}

}  // namespace brrr
