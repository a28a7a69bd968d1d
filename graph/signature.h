// The key of a compiled step's entries: shapes, types, layouts and devices of the arguments, the
// numbers among them, and settings that every function depends on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <brrr/tensor/tensor.h>

namespace brrr::graph {

// The arguments of one call. `statics`: the kinds of all arguments, and the values of numbers.
struct StepArguments {
  std::span<const Tensor> tensors, fixed;
  std::span<const std::int64_t> statics;
};

struct Signature {
  std::vector<std::int64_t> words;  // all of it, to compare
  std::string text;                 // "(f32[32, 64], f32[32, 64])"
  std::vector<Tensor> shapes;       // of the tensors, without values
  std::vector<const void*> fixed;
  std::vector<std::size_t> misalignments;
  std::vector<std::int64_t> statics;
};

// Fills `words`, whose memory is reused from call to call.
void fill_words(const StepArguments& arguments, std::vector<std::int64_t>& words);
Signature signature_of(const StepArguments& arguments, std::vector<std::int64_t> words);
std::string describe(const StepArguments& arguments);

// The first thing in which two signatures differ: "argument 0 is f32[4], and was f32[3]".
std::string difference(const Signature& now, const Signature& before);

// The values of the numbers among the arguments.
std::vector<double> numbers_of(std::span<const std::int64_t> statics);

// Advice on how to need fewer signatures: "argument 1 is a number that had 9 values: pass
// ...".
// "" where no number among the arguments had three values or more.
std::string advice_on_numbers(std::span<const Signature* const> signatures);

}  // namespace brrr::graph
