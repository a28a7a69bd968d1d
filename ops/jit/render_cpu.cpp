// Owns the text of pointwise loops for the system compiler.
#include <fmt/format.h>

#include "brrr/ops/jit/render.h"
#include "brrr/tensor/error.h"

namespace brrr::jit {

std::string render_cpu(const KernelSpec& spec) {
  verify(spec);
  if (spec.walk != Walk::flat || spec.outputs.size() != 1) {
    fail(fmt::format("[{}] expected a flat kernel of one output for the CPU", spec.name));
  }
  const Operand& output = spec.outputs[0];
  std::string text = pieces::functions(spec);
  text +=
      fmt::format("extern \"C\" void {}(void* out, const void* const* in, i64 n) {{\n", spec.name);
  text += fmt::format("  {0}* y0 = static_cast<{0}*>(out);\n", pieces::c_name(output.dtype));
  std::size_t next = 0;
  for (std::size_t i = 0; i < spec.inputs.size(); ++i, ++next) {
    text += fmt::format("  const {0}* p{1} = static_cast<const {0}*>(in[{2}]);\n",
                        pieces::c_name(spec.inputs[i].dtype), i, next);
  }
  for (std::size_t i = 0; i < spec.scalars.size(); ++i, ++next) {
    text += fmt::format("  const {0} s{1} = *static_cast<const {0}*>(in[{2}]);\n",
                        pieces::c_name(spec.scalars[i]), i, next);
  }
  if (next == 0) text += "  (void)in;\n";
  // An output may be an input, never a shifted one.
  text += "#pragma GCC ivdep\n  for (i64 index = 0; index < n; ++index) {\n";
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    text += fmt::format("  const {} x{} = widen(p{}[index]);\n",
                        pieces::register_name(spec.inputs[i].dtype), i, i);
  }
  text += pieces::statements(spec, 0);
  text += fmt::format("  y0[index] = narrow<{}>({});\n  }}\n}}\n", pieces::c_name(output.dtype),
                      pieces::converted(spec, output.value, output.dtype));
  return text;
}

}  // namespace brrr::jit
