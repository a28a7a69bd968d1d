#include "brrr/nn/data/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "brrr/io/strided_bytes.h"
#include "brrr/nn/data/random.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/fail.h"

namespace brrr::data {
namespace {

// Verb and object follow from the noun.
struct Actor {
  std::string_view noun, verb, object;
};
constexpr std::array<Actor, 8> kActors = {{{"cat", "chases", "the mouse"},
                                           {"dog", "guards", "the house"},
                                           {"bird", "sings", "a song"},
                                           {"fox", "steals", "the grapes"},
                                           {"owl", "watches", "the moon"},
                                           {"bee", "visits", "a flower"},
                                           {"child", "reads", "a book"},
                                           {"river", "follows", "the valley"}}};
constexpr std::array<std::string_view, 6> kAdjectives = {"old",   "quick", "small",
                                                         "quiet", "brave", "lazy"};
constexpr std::array<std::string_view, 4> kTimes = {"at night", "in spring", "every day",
                                                    "before dawn"};

template <class List>
const auto& one_of(Random& random, const List& list) {
  return list[random.below(list.size())];
}

}  // namespace

std::string generate_text(std::int64_t length, std::uint64_t seed) {
  if (length < 0 || length > std::int64_t{1} << 30)
    fail("[generate_text] expected a length of 0 to 2^30, got {}", length);
  Random random(seed);
  const auto wanted = static_cast<std::size_t>(length);
  std::string text;
  while (text.size() < wanted) {
    const Actor& actor = one_of(random, kActors);
    text += "the ";
    if (random.below(2)) text += fmt::format("{} ", one_of(random, kAdjectives));
    text += fmt::format("{} {} {}", actor.noun, actor.verb, actor.object);
    if (random.below(3) == 0) text += fmt::format(" {}", one_of(random, kTimes));
    text += ".\n";
  }
  text.resize(wanted);
  return text;
}

Characters::Characters(std::string_view text) : characters_(text) {
  std::ranges::sort(characters_);
  characters_.erase(std::unique(characters_.begin(), characters_.end()), characters_.end());
}

Tensor Characters::encode(std::string_view text) const {
  std::vector<std::int64_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text) {
    const std::size_t at = characters_.find(c);
    if (at == std::string::npos) {
      fail("[encode] expected one of {:?}, got {:?} at {}", characters_, c, tokens.size());
    }
    tokens.push_back(static_cast<std::int64_t>(at));
  }
  const auto length = static_cast<std::int64_t>(tokens.size());
  return tensor(tokens, {length}, cpu);
}

std::string Characters::decode(const Tensor& tokens) const {
  if (!tokens.defined() || category_of(tokens.dtype()) != Category::integer)
    fail("[decode] expected integer tokens, got {}", tokens.describe());
  std::string text;
  for (const std::int64_t token : to_vector<std::int64_t>(tokens)) {
    if (token < 0 || token >= size()) {
      fail("[decode] expected tokens below {}, got {}", size(), token);
    }
    text += characters_[token];
  }
  return text;
}

Dataset next_token_windows(const Tensor& tokens, std::int64_t length, std::int64_t stride) {
  const bool fits = tokens.defined() && tokens.dtype() == i64 && tokens.rank() == 1 &&
                    length >= 1 && stride >= 1 && tokens.numel() > length;
  if (!fits) {
    fail(
        "[next_token_windows] expected more i64 tokens than the length, and a stride of at least "
        "1, got {}, {} and {}",
        tokens.describe(), length, stride);
  }
  const Tensor all = contiguous_on_host(tokens, "next_token_windows");
  const auto* from = all.data<std::int64_t>();
  const std::int64_t count = (all.numel() - length - 1) / stride + 1;
  const Options here{.dtype = i64, .device = cpu};
  const Tensor inputs = empty({count, length}, here), targets = empty({count, length}, here);
  auto *input = inputs.data<std::int64_t>(), *target = targets.data<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t* window = from + i * stride;
    input = std::copy_n(window, length, input);
    target = std::copy_n(window + 1, length, target);
  }
  return {inputs, targets};
}

}  // namespace brrr::data
