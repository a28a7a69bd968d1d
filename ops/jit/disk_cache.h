// Compiled kernels on disk, so that a program compiles once per machine and not once per run. An
// entry is a file named by the hash of everything that decides its content; several processes may
// use one directory at a time.
//
// The directory is $BRRR_CACHE_DIR, else $XDG_CACHE_HOME/brrr, else ~/.cache/brrr. BRRR_CACHE=off
// turns it off. Without a writable directory, and in place of a damaged entry, kernels are compiled
// again.
//
// Entries are executed. So the directory is made with mode 0700 and files with 0600, and an entry
// counts as missing unless it and the directory belong to the effective user or root, give nobody
// else the right to write, and are no links.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
// Why no entry is kept, or used; empty if they are, or if the cache is off.
std::string why_unusable();
// The file of an entry; `kind` is its ending.
std::string path_of(const Hash128& key, std::string_view kind);

enum class Found { yes, no, damaged, untrusted };
// Fills `content` when the entry is there, whole, and nobody else's.
Found read(const Hash128& key, std::string_view kind, std::string& content);
void write(const Hash128& key, std::string_view kind, std::string_view content) noexcept;

// A file of the directory without an entry's header. `why`: what makes it untrusted or damaged.
Found read_file(const std::string& name, std::string& content, std::string& why);
// Replaces it atomically; the reason if that fails.
std::string write_file(const std::string& name, std::string_view content);

// The entries that are there and not used, each with the reason.
std::vector<std::pair<std::string, std::string>> refused();

// Which folder above `path` lets others replace what is below it, and how; empty: none does.
std::string why_replaceable(const std::string& path);

}  // namespace disk_cache

}  // namespace brrr::jit
