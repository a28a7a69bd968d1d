// Overlap of views: the exact test against enumeration, and writes between parts of one tensor,
// eager and compiled.
#include <cstdlib>
#include <set>

#include "brrr/graph/plan.h"
#include "brrr/graph/trace.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/overlap.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/compile_plan.h"
#include "tests/harness/errors_expected.h"

using namespace brrr;
using namespace brrr::test;

namespace {

struct Box {
  Dims shape, strides;
  std::int64_t offset = 0, element = 1;

  Region region() const { return {shape, strides, offset, element}; }
};

Box random_box(Random& random, int most_rank, std::int64_t most_stride, std::int64_t element) {
  Box box;
  const auto rank = random.below(most_rank + 1);
  for (std::int64_t d = 0; d < rank; ++d) {
    box.shape.push_back(random.below(20) == 0 ? 0 : 1 + random.below(4));
    box.strides.push_back(random.below(2 * most_stride + 1) - most_stride);
  }
  box.offset = random.below(3 * most_stride);
  box.element = element;
  return box;
}

// Where the elements start, in elements, one for each index.
std::vector<std::int64_t> places_of(const Box& box) {
  std::vector<std::int64_t> places;
  const std::int64_t n = numel_of(box.shape);
  for (std::int64_t k = 0; k < n; ++k) {
    std::int64_t place = box.offset, rest = k;
    for (int d = box.shape.size() - 1; d >= 0; --d) {
      place += rest % box.shape[d] * box.strides[d];
      rest /= box.shape[d];
    }
    places.push_back(place);
  }
  return places;
}

std::set<std::int64_t> bytes_of(const Box& box) {
  std::set<std::int64_t> bytes;
  for (const std::int64_t place : places_of(box)) {
    for (std::int64_t i = 0; i < box.element; ++i) bytes.insert(place * box.element + i);
  }
  return bytes;
}

bool overlap(const Box& a, const Box& b) {
  const std::set<std::int64_t> bytes = bytes_of(b);
  for (const std::int64_t byte : bytes_of(a)) {
    if (bytes.contains(byte)) return true;
  }
  return false;
}

std::string text_of(const Box& box) {
  return to_string(box.shape) + " strides " + to_string(box.strides) + " offset " +
         std::to_string(box.offset) + " of " + std::to_string(box.element);
}

}  // namespace

TEST_CASE("overlap: random boxes share bytes when they do", "[overlap]") {
  constexpr std::int64_t kElements[] = {1, 2, 4, 8};
  Random random(11);
  int shared = 0, distinct = 0;
  for (int round = 0; round < 60'000; ++round) {
    const std::int64_t element = kElements[random.below(4)];
    const int rank = round % 8 == 0 ? 4 : 3;
    const std::int64_t stride = round % 3 == 0 ? 40 : 12;
    const Box a = random_box(random, rank, stride, element);
    const Box b =
        random_box(random, rank, stride, round % 4 == 0 ? kElements[random.below(4)] : element);
    const bool expected = overlap(a, b);
    (expected ? shared : distinct) += 1;
    if (may_overlap(a.region(), b.region()) != expected ||
        may_overlap(b.region(), a.region()) != expected)
      FAIL(text_of(a) << " and " << text_of(b) << (expected ? " share" : " share no") << " bytes");
  }
  CHECK(shared > 9'000);
  CHECK(distinct > 10'000);
}

TEST_CASE("overlap: random boxes hold an element twice when they do", "[overlap]") {
  Random random(12);
  int twice = 0, once = 0;
  for (int round = 0; round < 60'000; ++round) {
    const Box box = random_box(random, round % 8 == 0 ? 5 : 3, round % 3 == 0 ? 90 : 15, 4);
    const std::vector<std::int64_t> places = places_of(box);
    const bool expected = std::set(places.begin(), places.end()).size() < places.size();
    (expected ? twice : once) += 1;
    if (may_overlap_itself(box.region()) != expected)
      FAIL(text_of(box) << (expected ? " holds" : " does not hold") << " an element twice");
  }
  CHECK(twice > 5'000);
  CHECK(once > 10'000);
}

TEST_CASE("overlap: the search ends, and what it leaves open counts as overlap", "[overlap]") {
  // Strides of which nothing smaller is a divisor: a subset sum of sixteen numbers.
  Box a, b;
  Random random(13);
  for (int d = 0; d < kMaxDims; ++d) {
    for (Box* box : {&a, &b}) {
      box->shape.push_back(1000);
      box->strides.push_back(1'000'000'007 + 2 * random.below(1'000'000));
    }
  }
  b.offset = 3'000'000'000'001;
  CHECK(may_overlap(a.region(), b.region()));
  CHECK(may_overlap_itself(a.region()));
}

namespace {

struct Parts {
  const char* name;
  Dims shape;
  std::function<std::pair<Tensor, Tensor>(const Tensor&)> of;  // what is written, and read
};

// The parts that PyTorch's users write to and read from side by side.
const Parts kParts[] = {
    {"halves of the last dimension",
     {4, 6},
     [](const Tensor& x) {
       return std::pair{narrow(x, 1, 0, 3), narrow(x, 1, 3, 3)};
     }},
    {"rotary halves",
     {2, 3, 2, 8},
     [](const Tensor& x) {
       return std::pair{slice(x, -1, 4, 8), slice(x, -1, 0, 4)};
     }},
    {"ranges of a cache",
     {2, 9, 4},
     [](const Tensor& x) {
       return std::pair{narrow(x, 1, 5, 4), narrow(x, 1, 1, 4)};
     }},
    {"even and odd columns",
     {3, 10},
     [](const Tensor& x) {
       return std::pair{slice(x, 1, 0, 10, 2), slice(x, 1, 1, 10, 2)};
     }},
    {"even and odd rows of one half",
     {6, 8},
     [](const Tensor& x) {
       const Tensor half = narrow(x, 1, 4, 4);
       return std::pair{slice(half, 0, 0, 6, 2), slice(half, 0, 1, 6, 2)};
     }},
    {"a diagonal and the one beside it",
     {5, 5},
     [](const Tensor& x) {
       const Tensor flat = view(x, {25});
       return std::pair{slice(flat, 0, 0, 24, 6), slice(flat, 0, 1, 25, 6)};
     }},
    {"a diagonal and a column",
     {5, 5},
     [](const Tensor& x) {
       const Tensor flat = view(x, {25});
       return std::pair{slice(flat, 0, 6, 25, 6), slice(flat, 0, 5, 25, 5)};
     }},
    {"a block and the transposed block across",
     {6, 6},
     [](const Tensor& x) {
       return std::pair{narrow(narrow(x, 0, 0, 3), 1, 3, 3),
                        transpose(narrow(narrow(x, 0, 3, 3), 1, 0, 3), 0, 1)};
     }},
};

using Write = void (*)(Tensor& to, const Tensor& from);
constexpr Write kWrites[] = {
    [](Tensor& to, const Tensor& from) { add_(to, from); },
    [](Tensor& to, const Tensor& from) { addcmul_(to, from, from); },
    [](Tensor& to, const Tensor& from) { copy_(to, from); },
};

}  // namespace

TEST_CASE("overlap: parts of a tensor are written from others", "[overlap]") {
  for (const Parts& parts : kParts) {
    for (const Write write : kWrites) {
      INFO(parts.name);
      const Tensor x = noise(parts.shape, 1);
      Tensor expected = clone(x), got = clone(x);
      auto [to, from] = parts.of(expected);
      const Tensor copy = clone(from);
      write(to, copy);
      std::tie(to, from) = parts.of(got);
      write(to, from);
      CHECK(bits_of(got) == bits_of(expected));
    }
  }
}

TEST_CASE("overlap: parts that share an element are refused", "[overlap]") {
  const Tensor x = noise({5, 6}, 1), flat = view(x, {30});
  const std::pair<Tensor, Tensor> wrong[] = {
      {narrow(x, 1, 0, 4), narrow(x, 1, 2, 4)},
      {slice(flat, 0, 0, 29, 7), slice(flat, 0, 1, 30, 6)},
      {narrow(narrow(x, 0, 0, 3), 1, 0, 3), transpose(narrow(narrow(x, 0, 2, 3), 1, 2, 3), 0, 1)},
  };
  for (const auto& [part, other] : wrong) {
    Tensor to = part;
    const std::string text = error_of([&, &other = other] { add_(to, other); });
    CHECK(text.find("do not overlap the output") != std::string::npos);
  }
}

TEST_CASE("overlap: steps that write between parts have eager's bits", "[overlap][compile]") {
  std::vector<Case> cases;
  for (const Parts& parts : kParts) {
    for (const Write write : kWrites) {
      // Of a temporary, of what is captured, and of an argument; then the other part by the first.
      cases.push_back({parts.name,
                       [&parts, write](const Tensors& captured, const Tensors& arguments) {
                         const Tensor made = exp(arguments[0]);
                         for (const Tensor& x : {made, captured[0], arguments[0]}) {
                           auto [to, from] = parts.of(x);
                           write(to, from);
                           const Tensor between = to * 0.5;
                           mul_(from, to);
                           sub_(to, between);
                         }
                         return Tensors{made, made + captured[0] * arguments[0]};
                       },
                       {parts.shape},
                       {parts.shape}});
    }
  }
  check_all(cases);
}

TEST_CASE("overlap: calls on distinct parts of a buffer do not wait for each other",
          "[overlap][compile]") {
  const graph::PlanOptions options = {true, true, true};
  const Tensors arguments = {noise({8, 8}, 1)};
  graph::Trace trace("halves", arguments);
  const Tensor x = trace.inputs()[0] + 1;
  Tensor low = narrow(x, 1, 0, 4), high = narrow(x, 1, 4, 4);
  sin_(low);        // call 1
  cos_(high);       // call 2
  add_(low, high);  // call 3 reads what call 2 wrote
  graph::Graph traced = trace.finish(Tensors{x * 2});
  const graph::Plan plan = make_plan(traced, options);
  CHECK(problem_of_plan(traced, options, plan) == "");
  REQUIRE(plan.predecessors.size() == 5);
  CHECK(plan.predecessors[1] == std::vector<int>{0});
  CHECK(plan.predecessors[2] == std::vector<int>{0});
  CHECK(plan.predecessors[3] == std::vector<int>{2, 1});
  CHECK(plan.predecessors[4] == std::vector<int>{3});
}

TEST_CASE("overlap: halves of a tensor as two arguments that a step writes to",
          "[overlap][compile]") {
  std::vector<std::string> bits[2];
  for (const Mode mode : {Mode::eager, Mode::graph}) {
    auto step = compile(
        [](Tensor a, Tensor b) {
          add_(a, b);
          mul_(b, a);
          return a - b;
        },
        {.mode = mode});
    const Tensor x = noise({4, 6}, 3);
    for (int call = 0; call < 3; ++call) {
      const Tensor result = step(narrow(x, 1, 0, 3), narrow(x, 1, 3, 3));
      for (const Tensor& seen : {result, x}) bits[mode == Mode::graph].push_back(bits_of(seen));
    }
    if (mode == Mode::graph) CHECK(step.report().entries[0].calls == 3);
  }
  CHECK(bits[1] == bits[0]);
}
