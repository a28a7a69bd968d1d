#include "brrr/io/file_bytes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "brrr/io/strided_bytes.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/file_size_signal.h"
#include "brrr/tensor/tensor_impl.h"

namespace brrr {
namespace {

static_assert(std::endian::native == std::endian::little,
              "files are little-endian and their elements are read as they are");

[[noreturn]] void fail_system(const char* op, const std::string& path, const char* action) {
  const int code = errno;
  fail("[{}] {}: cannot {}: {}", op, path, action, std::strerror(code));
}

// Whether `name` is "<file>.<process>-<count>.tmp".
bool is_temporary_of(std::string_view file, std::string_view name) {
  constexpr std::string_view kEnd = ".tmp";
  if (!name.starts_with(file) || !name.ends_with(kEnd)) return false;
  if (name.size() <= file.size() + kEnd.size() || name[file.size()] != '.') return false;
  name.remove_prefix(file.size() + 1);
  name.remove_suffix(kEnd.size());
  const std::size_t dash = name.find('-');
  const auto is_number = [](std::string_view text) {
    return !text.empty() && std::ranges::all_of(text, [](char c) { return '0' <= c && c <= '9'; });
  };
  return dash != name.npos && is_number(name.substr(0, dash)) && is_number(name.substr(dash + 1));
}

// Removes the temporary files that killed processes left beside `path`. Each writer locks its file,
// and the system unlocks it when the process ends, so an unlocked file has no writer, not even in
// another container. On file systems without locks nothing is removed.
void remove_abandoned(const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path target(path);
  std::error_code problem;
  const fs::path directory = target.has_parent_path() ? target.parent_path() : fs::path(".");
  for (fs::directory_iterator each(directory, problem), end; !problem && each != end;
       each.increment(problem)) {
    if (!is_temporary_of(target.filename().native(), each->path().filename().native())) continue;
    const int file = ::open(each->path().c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) continue;
    struct stat info;
    // Without a link, the file was removed meanwhile, and another writer may have reused its name.
    if (::flock(file, LOCK_EX | LOCK_NB) == 0 && ::fstat(file, &info) == 0 &&
        S_ISREG(info.st_mode) && info.st_nlink > 0) {
      ::unlink(each->path().c_str());
    }
    ::close(file);
  }
}

// A new file beside `path`, locked, and removed again unless it was renamed.
class TemporaryFile {
 public:
  TemporaryFile(const char* op, const std::string& path) : op_(op), path_(path) {
    struct stat info;
    if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
      fail("[{}] {}: expected a regular file to write to", op, path);
    }
    remove_abandoned(path);
    while (!create()) {
    }
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (file_ >= 0) ::close(file_);
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }

  void write(const void* bytes, std::size_t count) {
    const FileSizeSignalBlocked blocked;
    const char* from = static_cast<const char*>(bytes);
    while (count > 0) {
      const ssize_t written = ::write(file_, from, count);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail_system(op_, path_, "write");
      from += written;
      count -= static_cast<std::size_t>(written);
    }
  }

  void commit() {
    if (::fsync(file_) != 0) fail_system(op_, path_, "flush to the disk");
    // Closes, and so unlocks, the file only after the rename: before, another writer would take it
    // for abandoned.
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
      fail_system(op_, path_, "rename the new file");
    }
    temporary_.clear();
    if (::close(std::exchange(file_, -1)) != 0) fail_system(op_, path_, "close");
    // The rename survives a crash only once the directory is flushed.
    const std::size_t slash = path_.rfind('/');
    const std::string directory = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
    const int handle = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (handle < 0) return;  // a directory may be writable and not readable
    // Some file systems cannot flush directories and say EINVAL.
    const bool failed = ::fsync(handle) != 0 && errno != EINVAL;
    const int code = errno;
    ::close(handle);
    errno = code;
    if (failed) fail_system(op_, path_, "flush the directory to the disk");
  }

 private:
  // False: the name was taken, or another writer removed the file before it was locked.
  bool create() {
    static std::atomic<unsigned> counter{0};
    temporary_ = fmt::format("{}.{}-{}.tmp", path_, ::getpid(), counter.fetch_add(1));
    file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_ < 0 && errno == EEXIST) return false;
    if (file_ < 0) {
      temporary_.clear();
      fail_system(op_, path_, "create a file there");
    }
    struct stat info;
    ::flock(file_, LOCK_EX);  // fails only on file systems without locks
    if (::fstat(file_, &info) != 0 || info.st_nlink > 0) return true;
    ::close(std::exchange(file_, -1));
    return false;
  }

  const char* op_;
  const std::string& path_;
  std::string temporary_;
  int file_ = -1;
};

}  // namespace

ByteSource::ByteSource(const char* op, std::string name, int file, std::uint64_t size)
    : op_(op), name_(std::move(name)), file_(file), size_(size) {}

ByteSource::ByteSource(const char* op, std::string_view name, std::span<const std::byte> memory)
    : op_(op), name_(name), memory_(memory.data()), size_(memory.size()) {}

ByteSource::ByteSource(ByteSource&& other) noexcept
    : op_(other.op_),
      name_(std::move(other.name_)),
      file_(std::exchange(other.file_, -1)),
      memory_(other.memory_),
      size_(other.size_) {}

ByteSource::~ByteSource() {
  if (file_ >= 0) ::close(file_);
}

ByteSource ByteSource::open(const char* op, const std::string& path) {
  // O_NONBLOCK, so that opening a pipe does not block; it is refused below.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) fail_system(op, path, "open");
  ByteSource source(op, path, file, 0);
  struct stat info;
  if (::fstat(file, &info) != 0) fail_system(op, path, "ask for its size");
  if (!S_ISREG(info.st_mode)) fail("[{}] {}: expected a regular file", op, path);
  source.size_ = static_cast<std::uint64_t>(info.st_size);
  return source;
}

void ByteSource::read(void* to, std::uint64_t at, std::size_t count) const {
  if (at > size_ || count > size_ - at) {
    refuse(std::min(at, size_),
           fmt::format("expected {} more bytes, but the file ends at byte {}", count, size_));
  }
  if (file_ < 0) {
    if (count > 0) std::memcpy(to, memory_ + at, count);
    return;
  }
  char* out = static_cast<char*>(to);
  while (count > 0) {
    const ssize_t got = ::pread(file_, out, count, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_system(op_, name_, "read");
    if (got == 0) refuse(at, "the file became shorter while it was read");
    out += got;
    at += static_cast<std::uint64_t>(got);
    count -= static_cast<std::size_t>(got);
  }
}

Tensor ByteSource::read_tensor(std::uint64_t at, DType dtype,
                               std::span<const std::int64_t> shape) const {
  const std::optional<std::int64_t> numel = try_numel(shape, size_of(dtype));
  if (!numel) refuse(at, fmt::format("expected a size of 63 bits, got {}", to_string(shape)));
  const std::uint64_t bytes = static_cast<std::uint64_t>(*numel) * size_of(dtype);
  if (at > size_ || bytes > size_ - at) {
    refuse(std::min(at, size_),
           fmt::format("expected {} bytes of {}{}, but the file ends at byte {}", bytes,
                       name_of(dtype), to_string(shape), size_));
  }
  Tensor tensor = make_tensor(dtype, shape, cpu);
  read(tensor.data(), at, bytes);
  if (dtype == DType::boolean) {
    const auto* values = static_cast<const std::uint8_t*>(tensor.data());
    for (std::uint64_t i = 0; i < bytes; ++i) {
      if (values[i] > 1) {
        refuse(at + i, fmt::format("expected a bool of 0 or 1, got {}", values[i]));
      }
    }
  }
  return tensor;
}

void ByteSource::refuse(std::uint64_t at, std::string_view reason) const {
  fail("[{}] {}: at byte {}: {}", op_, name_, at, reason);
}

void write_file(const char* op, const std::string& path,
                const std::function<void(const ByteSink&)>& fill) {
  TemporaryFile file(op, path);
  fill([&](const void* bytes, std::size_t count) { file.write(bytes, count); });
  file.commit();
}

void require_writable(const char* op, const std::string& path) {
  const TemporaryFile file(op, path);
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMost = 80;
  if (text.size() <= kMost) return fmt::format("{:?}", text);
  return fmt::format("{:?}...", text.substr(0, kMost));
}

}  // namespace brrr
