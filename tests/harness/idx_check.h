// Invariants of the idx reader for arbitrary bytes.
#pragma once

#include "tests/harness/interchange.h"
#include <brrr/nn/data/idx.h>

namespace interchange {

// Either an Error with the byte's offset, or a tensor of at most four bytes per byte of the file.
// Returns whether the bytes were accepted.
inline bool check_idx(std::span<const std::byte> bytes) {
  const std::string prefix = "[idx] file: at byte ";
  const std::int64_t live = brrr::memory_stats(brrr::cpu).live;
  brrr::reset_peak_memory(brrr::cpu);
  bool accepted = true;
  try {
    brrr::data::parse_idx(bytes, "file");
  } catch (const brrr::Error& error) {
    const std::string text = error.what();
    require(text.starts_with(prefix), text.c_str());
    require(std::stoull(text.substr(prefix.size())) <= bytes.size(), text.c_str());
    accepted = false;
  }
  require(brrr::memory_stats(brrr::cpu).peak - live <= static_cast<std::int64_t>(4 * bytes.size()),
          "more memory than the file describes");
  return accepted;
}

}  // namespace interchange
