// Synthetic text and a character vocabulary, for small language models.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <brrr/nn/data/dataset.h>

namespace brrr::data {

// Sentences of a small grammar, one per line, cut to `length` characters. The next character is
// partly determined and partly random, so a model's loss can fall far, to a known floor above 0.
std::string generate_text(std::int64_t length, std::uint64_t seed = 0);

// A vocabulary: the distinct characters of a text, numbered in the order of their codes.
class Characters {
 public:
  explicit Characters(std::string_view text);

  std::int64_t size() const { return static_cast<std::int64_t>(characters_.size()); }
  // Throws on a character outside the vocabulary.
  Tensor encode(std::string_view text) const;  // i64 [length], on the CPU
  std::string decode(const Tensor& tokens) const;

 private:
  std::string characters_;
};

// Every `stride`-th window of `length` tokens, and the same window shifted by one token as targets.
// Both i64 [count, length].
Dataset next_token_windows(const Tensor& tokens, std::int64_t length, std::int64_t stride = 1);

}  // namespace brrr::data
