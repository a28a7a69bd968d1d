// Owns the files of the cache: their paths, their format, whom they are trusted from, and atomic
// writes, so that no process reads a part of one.
#include "brrr/ops/jit/disk_cache.h"
#include "brrr/tensor/environment.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/file_size_signal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

namespace brrr::jit {
namespace {

std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ull;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ull;
  return x ^ (x >> 32);
}

// In front of every entry. Plain numbers of this machine: a cache is not carried to another kind of
// machine.
struct Header {
  char magic[8];
  std::uint64_t key_low, key_high;
  std::uint64_t bytes;
  std::uint64_t check_low, check_high;  // of the content
};
constexpr char kMagic[8] = {'b', 'r', 'r', 'r', 'j', 'i', 't', '1'};

// Entries are far smaller; a larger file is not read into memory.
constexpr std::uint64_t kMostBytes = 1 << 28;

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  bool is_open() const { return fd_ >= 0; }
  int get() const { return fd_; }

  // Up to `count` bytes; fewer at the end of the file or on an error.
  std::size_t read(char* to, std::size_t count) {
    std::size_t done = 0;
    while (done < count) {
      const ssize_t got = ::read(fd_, to + done, count - done);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      done += static_cast<std::size_t>(got);
    }
    return done;
  }
  bool write(const char* from, std::size_t count) {
    const FileSizeSignalBlocked blocked;
    while (count > 0) {
      const ssize_t put = ::write(fd_, from, count);
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) return false;
      from += put;
      count -= static_cast<std::size_t>(put);
    }
    return true;
  }

 private:
  int fd_;
};

// Why others may have written to what is open, a file or a folder; empty: only its owner, who is
// the effective user or root, may have.
std::string why_untrusted(const Descriptor& open, mode_t type) {
  struct stat status;
  if (::fstat(open.get(), &status) != 0) return std::strerror(errno);
  if ((status.st_mode & S_IFMT) != type)
    return S_ISDIR(status.st_mode) ? "is a directory" : "is not a regular file";
  if (status.st_uid != ::geteuid() && status.st_uid != 0)
    return fmt::format("belongs to user {}, not to {}", status.st_uid, ::geteuid());
  if (status.st_mode & (S_IWGRP | S_IWOTH))
    return fmt::format("is writable by others (mode {:o})", status.st_mode & 07777);
  return "";
}

// Opens without following a link, and checks what it has opened. Not open: `why` says why, or is
// empty if there is nothing. A fifo does not block.
Descriptor open_trusted(int folder, const std::string& name, mode_t type, std::string& why) {
  Descriptor file(
      ::openat(folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file.is_open()) {
    const bool missing =
        errno == ENOENT || errno == ENOTDIR || (type == S_IFDIR && errno == EACCES);
    if (!missing)
      why = errno == ELOOP ? "is a link" : fmt::format("cannot be read: {}", std::strerror(errno));
    return file;
  }
  why = why_untrusted(file, type);
  return why.empty() ? std::move(file) : Descriptor();
}

// The folder of the entries, as open_trusted.
Descriptor open_folder(std::string& why) {
  std::string where = disk_cache::directory();
  if (where.empty()) return Descriptor();
  while (where.size() > 1 && where.ends_with('/'))
    where.pop_back();  // O_NOFOLLOW looks at the link
  Descriptor folder = open_trusted(AT_FDCWD, where, S_IFDIR, why);
  if (why == "is not a regular file") why = "is not a folder";
  if (!why.empty()) why = where + " " + why;
  if (!folder.is_open()) return folder;
  why = disk_cache::why_replaceable(where);
  return why.empty() ? std::move(folder) : Descriptor();
}

// Makes a folder and those above it for the owner alone, whatever the umask.
void make_folders(const std::filesystem::path& path) {
  std::error_code unknown;
  if (path.empty() || std::filesystem::exists(path, unknown)) return;
  make_folders(path.parent_path());
  if (::mkdir(path.c_str(), 0700) == 0) ::chmod(path.c_str(), 0700);
}

}  // namespace

Hash128 hash_of(std::string_view text) {
  std::uint64_t low = 0x9e3779b97f4a7c15ull ^ text.size(), high = 0xc2b2ae3d27d4eb4full;
  for (std::size_t i = 0; i < text.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + i, std::min<std::size_t>(8, text.size() - i));
    low = mix(low ^ word) + high;
    high = mix(high + word * 0xff51afd7ed558ccdull) ^ (low << 1);
  }
  return {mix(low), mix(high ^ low)};
}

std::string to_hex(const Hash128& hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

namespace disk_cache {

std::string directory() {
  if (setting_of("BRRR_CACHE", {"on", "off"}) == "off") return "";
  if (auto chosen = setting("BRRR_CACHE_DIR"); !chosen.empty()) return chosen;
  if (auto base = setting("XDG_CACHE_HOME"); !base.empty()) return base + "/brrr";
  if (auto home = setting("HOME"); !home.empty()) return home + "/.cache/brrr";
  return "";
}

std::string why_replaceable(const std::string& path) {
  std::error_code unknown;
  const std::filesystem::path whole = std::filesystem::absolute(path, unknown);
  for (std::filesystem::path at = whole.parent_path();; at = at.parent_path()) {
    struct stat status;
    if (::stat(at.c_str(), &status) == 0 && (status.st_mode & S_IWOTH) &&
        !(status.st_mode & S_ISVTX)) {
      return fmt::format("{} is writable by all (mode {:o})", at.string(), status.st_mode & 07777);
    }
    if (at == at.parent_path()) return "";
  }
}

std::string why_unusable() {
  const std::string where = directory();
  if (where.empty()) return "";
  std::string why;
  if (!open_folder(why).is_open() && !why.empty()) return why;
  // The first write makes the folder and those above it.
  std::error_code unknown;
  std::filesystem::path at = std::filesystem::absolute(where, unknown);
  while (!std::filesystem::exists(at, unknown) && at != at.parent_path()) at = at.parent_path();
  if (!std::filesystem::is_directory(at, unknown)) return at.string() + " is not a folder";
  if (::access(at.c_str(), R_OK | W_OK | X_OK) != 0)
    return fmt::format("cannot write in {}: {}", at.string(), std::strerror(errno));
  return why_replaceable(where);
}

std::string path_of(const Hash128& key, std::string_view kind) {
  return fmt::format("{}/{}.{}", directory(), to_hex(key), kind);
}

Found read_file(const std::string& name, std::string& content, std::string& why) {
  why.clear();
  const Descriptor folder = open_folder(why);
  if (!folder.is_open()) return why.empty() ? Found::no : Found::untrusted;
  Descriptor file = open_trusted(folder.get(), name, S_IFREG, why);
  if (!file.is_open()) return why.empty() ? Found::no : Found::untrusted;
  struct stat status;
  if (::fstat(file.get(), &status) != 0 ||
      static_cast<std::uint64_t>(status.st_size) > kMostBytes) {
    why = "is too large";
    return Found::damaged;
  }
  content.resize(static_cast<std::size_t>(status.st_size));
  content.resize(file.read(content.data(), content.size()));
  return Found::yes;
}

std::string write_file(const std::string& name, std::string_view content) {
  const std::string where = directory();
  if (where.empty()) return "the disk cache is off";
  std::error_code unknown;
  make_folders(std::filesystem::absolute(where, unknown));
  std::string why;
  const Descriptor folder = open_folder(why);
  if (!folder.is_open()) return why.empty() ? why_unusable() : why;
  static std::atomic<unsigned> number{0};
  const std::string temporary = fmt::format("{}.{}.{}", name, ::getpid(), number.fetch_add(1));
  Descriptor file(::openat(folder.get(), temporary.c_str(),
                           O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.is_open()) return fmt::format("cannot write in {}: {}", where, std::strerror(errno));
  if (::fchmod(file.get(), 0600) == 0 && file.write(content.data(), content.size()) &&
      ::renameat(folder.get(), temporary.c_str(), folder.get(), name.c_str()) == 0)
    return "";
  why = fmt::format("cannot write {}/{}: {}", where, name, std::strerror(errno));
  ::unlinkat(folder.get(), temporary.c_str(), 0);
  return why;
}

namespace {

std::string name_of(const Hash128& key, std::string_view kind) {
  return fmt::format("{}.{}", to_hex(key), kind);
}

Found read_entry(const Hash128& key, std::string_view kind, std::string& content,
                 std::string& why) {
  std::string all;
  const Found found = read_file(name_of(key, kind), all, why);
  if (found != Found::yes) return found;
  why = "is damaged";
  Header header;
  if (all.size() < sizeof header) return Found::damaged;
  std::memcpy(&header, all.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.key_low != key.low ||
      header.key_high != key.high || header.bytes != all.size() - sizeof header)
    return Found::damaged;
  all.erase(0, sizeof header);
  if (hash_of(all) != Hash128{header.check_low, header.check_high}) return Found::damaged;
  content = std::move(all);
  why.clear();
  return Found::yes;
}

// The key in the name of an entry; none if it is no name of one.
std::optional<Hash128> key_in(const std::string& stem) {
  Hash128 key;
  constexpr std::size_t kDigits = 16;
  if (stem.size() != 2 * kDigits) return {};
  for (auto [part, at] : {std::pair(&key.high, std::size_t{0}), std::pair(&key.low, kDigits)}) {
    const char* const from = stem.data() + at;
    if (std::from_chars(from, from + kDigits, *part, 16).ptr != from + kDigits) return {};
  }
  return key;
}

}  // namespace

Found read(const Hash128& key, std::string_view kind, std::string& content) {
  std::string why;
  return read_entry(key, kind, content, why);
}

void write(const Hash128& key, std::string_view kind, std::string_view content) noexcept try {
  const Hash128 check = hash_of(content);
  Header header{{}, key.low, key.high, content.size(), check.low, check.high};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  std::string all(reinterpret_cast<const char*>(&header), sizeof header);
  write_file(name_of(key, kind), all.append(content));
} catch (...) {
  // Memory ran out, say: the kernel is compiled and works, only the cache has missed it.
}

std::vector<std::pair<std::string, std::string>> refused() {
  std::vector<std::pair<std::string, std::string>> list;
  std::string content, why;
  if (!open_folder(why).is_open()) return list;
  std::error_code problem;
  for (std::filesystem::directory_iterator each(directory(), problem), end; !problem && each != end;
       each.increment(problem)) {
    const std::filesystem::path path = each->path();
    const std::optional<Hash128> key = key_in(path.stem());
    const std::string kind = path.has_extension() ? path.extension().string().substr(1) : "";
    if (!key && kind != "json") continue;
    key ? read_entry(*key, kind, content, why) : read_file(path.filename(), content, why);
    if (!why.empty()) list.emplace_back(path.filename(), why);
  }
  std::ranges::sort(list);
  return list;
}

}  // namespace disk_cache

}  // namespace brrr::jit
