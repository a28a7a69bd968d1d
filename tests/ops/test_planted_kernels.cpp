// Generated CPU kernels with a bug for each kind of report. Hidden: tests/kernels/sanitize runs
// them to prove that checked kernels report what they are for. Other kernels hide them.
#include <cstdio>

#include "brrr/ops/cpu/isa.h"
#include "tests/harness/catch.h"
#include "tests/harness/jit_bodies.h"

using namespace brrr;
using namespace brrr::jit;
using namespace brrr::testing;

namespace {

// x + y of `count` elements in three ranges, by a kernel in which `found` was replaced. The kernel
// goes over `beyond` elements more than the tensors have.
void run_planted(std::int64_t count, std::int64_t beyond, const std::string& found = "",
                 const std::string& replaced = "") {
  Builder b("planted", f32);
  const int x = b.body.add_input(f32), y = b.body.add_input(f32);
  b.body.add_output(b.op("add", {x, y}), f32);
  const Dims dims = {count};
  Case c{b.body, dims, 0, {sample(f32, dims, 1), sample(f32, dims, 2)}, {}, {dims}, {}, {}, {}, 0};
  const std::vector<Tensor> outputs = outputs_of(c, cpu);
  CpuSpaces spaces(c, outputs);
  std::string text = render_cpu(c.body);
  if (!found.empty()) {
    const std::size_t at = text.find(found);
    REQUIRE(at != std::string::npos);
    text.replace(at, found.size(), replaced);
  }
  spaces.space.size[0] += beyond;
  run_text_on_cpu(c, outputs, nullptr, spaces, {}, text);
  CHECK(at(outputs[0], 0) == at(c.inputs[0], 0) + at(c.inputs[1], 0));
}

}  // namespace

TEST_CASE("prints the instruction set of generated kernels", "[.][instruction-set]") {
  std::printf("generated kernels: %s\n", std::string(on_cpu::generated_isa()).c_str());
}

TEST_CASE("planted: an index beyond an array of a fixed size",
          "[.][planted-kernels][planted-index-out-of-bounds]") {
  run_planted(102, 0, "  Coordinates place(space, begin);\n",
              "  i64 base[2];\n  for (int k = 0; k < space.operands; ++k) base[k] = k;\n"
              "  Coordinates place(space, begin + base[0]);\n");
}

TEST_CASE("planted: a tile beyond its buffer",
          "[.][planted-kernels][planted-stack-buffer-overflow]") {
  run_planted(1503, 0, "[kMost]", "[kMost - 16]");
}

// Blocks of the allocator are multiples of 64 bytes: 112 elements fill one.
TEST_CASE("planted: an element beyond a tensor's block",
          "[.][planted-kernels][planted-heap-buffer-overflow]") {
  run_planted(112, 1);
}

TEST_CASE("planted: an element beyond a tensor within its block",
          "[.][planted-kernels][planted-use-after-poison]") {
  run_planted(102, 1);
}
