// Owns the files of the kernel cache: their paths, their format, and atomic writes, so that no
// process reads a part of one.
#include "brrr/ops/jit/disk_cache.h"
#include "brrr/tensor/environment.h"
#include "brrr/tensor/fail.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>

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

class File {
 public:
  File(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  bool is_open() const { return fd_ >= 0; }

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
    while (count > 0) {
      const ssize_t put = ::write(fd_, from, count);
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) return false;
      from += put;
      count -= static_cast<std::size_t>(put);
    }
    return true;
  }
  std::uint64_t size() const {
    struct stat status;
    return ::fstat(fd_, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
  }

 private:
  int fd_;
};

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

std::string why_not_writable() {
  const std::string where = directory();
  if (where.empty()) return "";
  // The first write makes the folder and those above it.
  std::error_code unknown;
  std::filesystem::path at = std::filesystem::absolute(where, unknown);
  while (!std::filesystem::exists(at, unknown) && at != at.parent_path()) at = at.parent_path();
  if (!std::filesystem::is_directory(at, unknown)) return at.string() + " is not a folder";
  if (::access(at.c_str(), W_OK | X_OK) == 0) return "";
  return fmt::format("cannot write in {}: {}", at.string(), std::strerror(errno));
}

std::string path_of(const Hash128& key, std::string_view kind) {
  return fmt::format("{}/{}.{}", directory(), to_hex(key), kind);
}

Found read(const Hash128& key, std::string_view kind, std::string& content) {
  if (directory().empty()) return Found::no;
  File file(path_of(key, kind), O_RDONLY);
  if (!file.is_open()) return Found::no;
  Header header;
  if (file.read(reinterpret_cast<char*>(&header), sizeof(header)) != sizeof(header))
    return Found::damaged;
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 || header.key_low != key.low ||
      header.key_high != key.high || file.size() != sizeof(header) + header.bytes) {
    return Found::damaged;
  }
  content.resize(header.bytes);
  if (file.read(content.data(), content.size()) != content.size()) return Found::damaged;
  return hash_of(content) == Hash128{header.check_low, header.check_high} ? Found::yes
                                                                          : Found::damaged;
}

void write(const Hash128& key, std::string_view kind, std::string_view content) noexcept try {
  const std::string where = directory();
  if (where.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(where, ignored);
  static std::atomic<unsigned> number{0};
  const std::string path = path_of(key, kind);
  const std::string temporary = fmt::format("{}.{}.{}", path, ::getpid(), number.fetch_add(1));
  const Hash128 check = hash_of(content);
  Header header{{}, key.low, key.high, content.size(), check.low, check.high};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  bool whole;
  {
    File file(temporary, O_WRONLY | O_CREAT | O_EXCL);
    if (!file.is_open()) return;
    whole = file.write(reinterpret_cast<const char*>(&header), sizeof(header)) &&
            file.write(content.data(), content.size());
  }
  if (!whole || ::rename(temporary.c_str(), path.c_str()) != 0) ::unlink(temporary.c_str());
} catch (...) {
  // Memory ran out, say: the kernel is compiled and works, only the cache has missed it.
}

}  // namespace disk_cache

}  // namespace brrr::jit
