// What a step must not do, and the errors (row 10 of the scorecard). Each is refused during the
// trace, with its op and its line, and changes nothing.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/errors_expected.h"
#include "tests/harness/source_tree.h"

using namespace brrr;
using namespace brrr::test;

namespace {

constexpr const char* kReads = "it reads values, which a trace does not have";
constexpr const char* kOrders = "it orders work or needs it done, and a trace does none";
constexpr const char* kStream =
    "it is called on another stream than the step; independent calls of a replay run side by side "
    "without streams";
constexpr const char* kMeta = "f32[3] has no memory (meta)";

struct Refusal {
  const char* what;
  std::function<void(const Tensor& x, const Tensor& w)> does;  // an argument, a leaf from outside
  const char* op;
  const char* why;
};

const Refusal kRefusals[] = {
    {"item of an argument", [](auto& x, auto&) { item(sum(x)); }, "item", kReads},
    {"item of a tensor from outside", [](auto&, auto& w) { item(sum(w)); }, "item", kReads},
    {"item of a constant", [](auto&, auto&) { item(ones({})); }, "item", kReads},
    {"a branch on a value",
     [](auto& x, auto&) {
       if (item<bool>(any(gt(x, 0)))) neg(x);
     },
     "item", kReads},
    {"to_vector of an argument", [](auto& x, auto&) { to_vector<float>(x); }, "to_vector", kReads},
    {"to_vector of a tensor from outside", [](auto&, auto& w) { to_vector<float>(w); }, "to_vector",
     kReads},
    {"pin_memory", [](auto& x, auto&) { pin_memory(x); }, "pin_memory", kReads},
    {"a gradient that is looked at on the way",
     [](auto& x, auto& w) {
       const DetectAnomaly looking;
       backward(sum(x * w));
     },
     "item", kReads},
    {"a shape that depends on values", [](auto& x, auto&) { nonzero(x); }, "nonzero",
     "the shape of its result depends on values"},
    {"manual_seed", [](auto&, auto&) { manual_seed(1); }, "manual_seed",
     "every replay would draw the same numbers again"},
    {"synchronize", [](auto&, auto&) { synchronize(cpu); }, "synchronize", kOrders},
    {"Stream::synchronize", [](auto&, auto&) { Stream::current(cpu).synchronize(); },
     "Stream::synchronize", kOrders},
    {"Stream::record", [](auto&, auto&) { Stream::current(cpu).record(); }, "Event::record",
     kOrders},
    {"Stream::wait", [](auto&, auto&) { Stream::current(cpu).wait(Event(cpu)); }, "Stream::wait",
     kOrders},
    {"Event::record",
     [](auto&, auto&) {
       Event event(cpu);
       event.record(Stream::current(cpu));
     },
     "Event::record", kOrders},
    {"Event::synchronize", [](auto&, auto&) { Event(cpu).synchronize(); }, "Event::synchronize",
     kOrders},
    {"a dataset", [](auto& x, auto&) { data::make_dataset(x, x); }, "dataset", kOrders},
    {"another stream",
     [](auto& x, auto&) {
       const StreamGuard guard{Stream(cpu)};
       x + 1;
     },
     "add", kStream},
    {"a tensor without memory", [](auto& x, auto&) { x + meta({3}); }, "add", kMeta},
    {"tensors without memory alone", [](auto&, auto&) { exp(meta({3})); }, "exp", kMeta},
    {"save_npy", [](auto& x, auto&) { save_npy("/tmp/brrr_refused", x); }, "npy", kOrders},
    {"save_npy of a tensor from outside", [](auto&, auto& w) { save_npy("/tmp/brrr_refused", w); },
     "npy", kOrders},
    {"format_npy", [](auto& x, auto&) { format_npy(x); }, "npy", kOrders},
    {"safetensors",
     [](auto& x, auto&) {
       format_safetensors({{{"x", x}}, {}});
     },
     "safetensors", kOrders},
    {"an optimizer's state in a file",
     [](auto&, auto& w) {
       optim::Optimizer optimizer({w}, optim::adam(1));
       optimizer.save("/tmp/brrr_refused");
     },
     "safetensors", kOrders},
    {"to_dlpack", [](auto& x, auto&) { to_dlpack(x); }, "dlpack", kOrders},
    {"to_dlpack of a tensor from outside", [](auto&, auto& w) { to_dlpack(w); }, "dlpack", kOrders},
    {"to_dlpack_legacy", [](auto&, auto& w) { to_dlpack_legacy(w); }, "dlpack", kOrders},
};

}  // namespace

TEST_CASE("compile: what a step may not do is refused by name and line", "[compile]") {
  const Tensor w = requires_grad_(noise({3}, 1));
  backward(sum(w * 2));
  Tensor counter = zeros({});
  const std::string before = bits_of(w), gradient = bits_of(grad(w));
  for (const Refusal& each : kRefusals) {
    INFO(each.what);
    bool bad = true;
    auto step = compile(
        [&](const Tensor& x) {
          add_(counter, 1);
          const Tensor y = dropout(x, 0.5) * w;
          if (bad) each.does(x, w);
          return x * 2;
        },
        {.name = "refused"});
    manual_seed(3);
    const std::string text = error_of([&] { step(noise({3}, 2)); });
    const std::string head = std::string("[") + each.op +
                             "] cannot be part of the compiled function \"refused\": " + each.why +
                             " (at ";
    CHECK(text.substr(0, head.size()) == head);
    CHECK_THAT(text.substr(std::min(head.size(), text.size())),
               Catch::Contains("test_refusals.cpp:") && Catch::Contains(" in a lambda)"));

    // Nothing has changed, and everything works.
    CHECK_FALSE(std::filesystem::exists("/tmp/brrr_refused"));
    CHECK(item(counter) == 0);
    CHECK(bits_of(w) == before);
    CHECK(bits_of(grad(w)) == gradient);
    const std::string drawn = bits_of(rand({4}));
    manual_seed(3);
    CHECK(bits_of(rand({4})) == drawn);
    bad = false;
    for (int call = 0; call < 2; ++call)
      CHECK(bits_of(step(noise({3}, 2))) == bits_of(noise({3}, 2) * 2));
    CHECK(item(counter) == 2);
    zero_(counter);
  }
}

TEST_CASE("compile: docs/graph.md lists every refusal", "[compile]") {
  std::ifstream file(testing::source_path("docs/graph.md"));
  const std::string guide(std::istreambuf_iterator<char>(file), {});
  for (const Refusal& each : kRefusals) {
    INFO(each.what);
    CHECK_THAT(guide, Catch::Contains(std::string("| ") + each.why + " |"));
  }
}

TEST_CASE("compile: an eager error is the same error in a step", "[compile]") {
  const Tensor w = requires_grad_(noise({3}, 1));
  const std::vector<std::pair<const char*, std::function<void(const Tensor&)>>> wrong = {
      {"shapes", [](const Tensor& x) { x + ones({4}); }},
      {"types", [](const Tensor& x) { bitwise_not(x); }},
      {"an inner dimension",
       [](const Tensor& x) {
         matmul(unsqueeze(x, 0), ones({4, 2}));
       }},
      {"a range", [](const Tensor& x) { select(x, 0, 7); }},
      {"an undefined operand", [](const Tensor& x) { x + Tensor(); }},
      {"a write to a leaf",
       [&](const Tensor& x) {
         Tensor to = w;
         add_(to, x);
       }},
      {"a write that overlaps",
       [](const Tensor& x) {
         Tensor to = slice(x, 0, 0, 2);
         add_(to, slice(x, 0, 1, 3));
       }},
      {"a backward from a constant", [](const Tensor& x) { backward(sum(x)); }},
      {"a second backward",
       [&](const Tensor& x) {
         const Tensor loss = sum(square(w * x));
         backward(loss);
         backward(loss);
       }},
      {"a value that a gradient needs",
       [&](const Tensor& x) {
         Tensor y = w * x;
         const Tensor loss = sum(exp(x) * y * y);
         mul_(y, 2);
         backward(loss);
       }},
  };
  for (const auto& [what, does] : wrong) {
    INFO(what);
    const std::string eager = error_of([&, &does = does] { does(noise({3}, 2)); });
    zero_grad(w);
    auto step = compile([&, &does = does](const Tensor& x) { does(x); });
    CHECK(eager != "");
    CHECK(error_of([&] { step(noise({3}, 2)); }) == eager);
    CHECK_FALSE(grad(w).defined());
  }
}

TEST_CASE("compile: a tensor of a step prints as its type and shape", "[compile]") {
  std::string made, from_outside;
  const Tensor w = ones({2});
  auto step = compile([&](const Tensor& x) {
    made = to_string(x + 1);
    from_outside = to_string(w);
    return x;
  });
  step(ones({3}));
  CHECK(made == "f32[3]");
  CHECK(from_outside == "f32[2]");
}

TEST_CASE("compile: a step may not have another's tensors", "[compile]") {
  Tensor leaked;
  compile([&](const Tensor& x) { leaked = x + 1; })(ones({3}));
  const std::string rest =
      " expected a tensor with values, got f32[3] of a step that was traced, which has none: "
      "return "
      "it from the step, or write to a tensor from outside with copy_";
  CHECK(error_of([&] { compile([&](const Tensor& x) { return x + leaked; })(ones({3})); }) ==
        "[add]" + rest);
  CHECK(error_of([&] {
          compile([&](const Tensor& x) {
            Tensor to = leaked;
            copy_(to, x);
          })(ones({3}));
        }) == "[copy_]" + rest);
}
