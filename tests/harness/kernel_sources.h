// Texts that a compiler got, taken apart and put together.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tests/harness/catch.h"

namespace brrr::testing {

// A kernel's own text, between the preludes and the end of their namespace.
inline std::string own_text(const std::string& whole) {
  constexpr std::string_view kBegin = "\n#line 1 \"kernel\"\n", kEnd = "\n}  // namespace brrr\n";
  const std::size_t begin = whole.find(kBegin);
  REQUIRE(begin != std::string::npos);
  REQUIRE(whole.ends_with(kEnd));
  const std::size_t from = begin + kBegin.size();
  return whole.substr(from, whole.size() - kEnd.size() - from);
}

// Kernels of one program are in namespaces, so that entries of the same name do not clash.
inline std::string joined(std::span<const std::string> texts) {
  constexpr std::string_view kLinkage = "extern \"C\" ";
  std::string program;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    program += "namespace k" + std::to_string(i) + " {\n" + texts[i] + "}\n";
  }
  for (std::size_t at = 0; (at = program.find(kLinkage, at)) != std::string::npos;)
    program.erase(at, kLinkage.size());
  return program;
}

}  // namespace brrr::testing
