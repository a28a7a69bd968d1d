// Text for models of characters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <brrr/nn/data/dataset.h>

namespace brrr::data {

// Sentences of a small grammar, one a line, cut to `length` characters. What follows is partly
// chance and partly certain, so a model's loss has far to fall and a floor.
std::string generate_text(std::int64_t length, std::uint64_t seed = 0);

// The characters that a text has, by number, in the order of their codes.
class Characters {
 public:
  explicit Characters(std::string_view text);

  std::int64_t size() const { return static_cast<std::int64_t>(characters_.size()); }
  // Throws on a character that the text had not.
  Tensor encode(std::string_view text) const;  // i64 [length], on the CPU
  std::string decode(const Tensor& tokens) const;

 private:
  std::string characters_;
};

// Every `stride`-th stretch of `length` tokens, and the same stretch one token on: what comes next
// at each place. Both i64 [count, length].
Dataset next_token_windows(const Tensor& tokens, std::int64_t length, std::int64_t stride = 1);

}  // namespace brrr::data
