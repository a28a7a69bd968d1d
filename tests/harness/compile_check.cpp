#include "tests/harness/compile_check.h"

#include "tests/harness/catch.h"
#include "tests/harness/samples.h"

namespace brrr::test {

std::string bits_of(const Tensor& x) {
  if (!x.defined()) return "undefined";
  const NoGrad constant;
  const Tensor whole = to(contiguous(detach(x)), cpu);
  return x.describe() + ": " + std::string(static_cast<const char*>(whole.data()), whole.bytes());
}

std::vector<std::string> bits_of(const Tensors& list) {
  std::vector<std::string> bits;
  for (const Tensor& x : list) bits.push_back(bits_of(x));
  return bits;
}

namespace {

struct Record {
  std::vector<std::vector<std::string>> results, seen;  // after each call
  std::string drawn;                                    // what the generator gives afterwards
};

Record record(const MakeWorld& make, int calls, Mode mode, Remat remat) {
  manual_seed(20);
  const World world = make();
  auto step = compile(world.step, {.mode = mode,
                                   .remat = remat,
                                   .name = "tested",
                                   .fallback = OnFallback::refuse,
                                   .frozen_rate = OnFrozenRate::ignore});
  Record all;
  for (int call = 0; call < calls; ++call) {
    const Tensors results = step(world.arguments(call));
    all.results.push_back(bits_of(results));
    all.seen.push_back(bits_of(world.seen()));
  }
  for (const Tensor& x : world.seen()) {
    if (x.defined()) all.drawn += bits_of(rand({3}, {.device = x.device()}));
  }
  all.drawn += bits_of(rand({3}));
  return all;
}

std::string first_difference(const char* what, const std::vector<std::vector<std::string>>& eager,
                             const std::vector<std::vector<std::string>>& graph) {
  for (std::size_t call = 0; call < eager.size(); ++call) {
    if (eager[call].size() != graph[call].size()) return std::string("the number of ") + what;
    for (std::size_t i = 0; i < eager[call].size(); ++i) {
      if (eager[call][i] == graph[call][i]) continue;
      const auto head = [](const std::string& bits) { return bits.substr(0, bits.find(':')); };
      return std::string(what) + " " + std::to_string(i) + " of call " + std::to_string(call) +
             ": eager " + head(eager[call][i]) + ", graph " + head(graph[call][i]);
    }
  }
  return "";
}

}  // namespace

std::string difference_from_eager(const MakeWorld& make, int calls, Mode mode, Remat remat) {
  const Record eager = record(make, calls, Mode::eager, Remat::none());
  const Record graph = record(make, calls, mode, remat);
  if (std::string text = first_difference("result", eager.results, graph.results); !text.empty())
    return text;
  if (std::string text = first_difference("seen", eager.seen, graph.seen); !text.empty())
    return text;
  return eager.drawn == graph.drawn ? "" : "what is drawn afterwards";
}

namespace {

World world_of(const Case& each) {
  World world;
  Tensors captured;
  std::uint64_t seed = 1;
  for (const Dims& shape : each.captured) captured.push_back(noise(shape, seed++, each.dtype));
  if (each.leaves) {
    for (Tensor& x : captured) requires_grad_(x);
  }
  const auto given = std::make_shared<Tensors>();
  world.step = [=](const Tensors& in) { return each.function(captured, in); };
  world.arguments = [=](int call) {
    given->clear();
    for (std::size_t i = 0; i < each.arguments.size(); ++i) {
      given->push_back(
          noise(each.arguments[i], 100 * static_cast<std::uint64_t>(call) + i + 50, each.dtype));
    }
    return *given;
  };
  world.seen = [=] {
    Tensors all = captured;
    for (const Tensor& x : captured) all.push_back(each.leaves ? grad(x) : Tensor());
    all.insert(all.end(), given->begin(), given->end());
    return all;
  };
  return world;
}

}  // namespace

void check_all(const std::vector<Case>& cases, Mode mode) {
  for (const Case& each : cases) {
    INFO(each.name);
    CHECK(difference_from_eager([&] { return world_of(each); }, 4, mode) == "");
  }
}

Tensor noise(const Dims& shape, std::uint64_t seed, DType dtype) {
  Random random(seed);
  const std::int64_t count = numel_of(shape);
  return make_sample(draw_many(random, dtype, count, -1.5, 1.5), shape, dtype).tensor;
}

Tensor integers(const Dims& shape, std::int64_t below, std::uint64_t seed, DType dtype) {
  Random random(seed);
  Values values(static_cast<std::size_t>(numel_of(shape)));
  for (double& value : values) value = static_cast<double>(random.below(below));
  return make_sample(values, shape, dtype).tensor;
}

}  // namespace brrr::test
