// Compiled kernels on disk, so that a program compiles once per machine and not once per run. An
// entry is a file named by the hash of everything that decides its content; several processes may
// use one directory at a time.
//
// The directory is $BRRR_CACHE_DIR, else $XDG_CACHE_HOME/brrr, else ~/.cache/brrr. BRRR_CACHE=off
// turns it off. Without a writable directory, and in place of a damaged entry, kernels are compiled
// again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace brrr::jit {

struct Hash128 {
  std::uint64_t low = 0, high = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
};
Hash128 hash_of(std::string_view text);
std::string to_hex(const Hash128& hash);

namespace disk_cache {

// The folder of the entries; empty if the cache is off. Read from the environment at every call.
std::string directory();
// Why no entry can be written; empty if one can, or if the cache is off.
std::string why_not_writable();
// The file of an entry; `kind` is its ending.
std::string path_of(const Hash128& key, std::string_view kind);

enum class Found { yes, no, damaged };
// Fills `content` when the entry is there and whole.
Found read(const Hash128& key, std::string_view kind, std::string& content);
void write(const Hash128& key, std::string_view kind, std::string_view content) noexcept;

}  // namespace disk_cache

}  // namespace brrr::jit
