#include "brrr/tensor/file_bytes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>

#include "brrr/tensor/error.h"
#include "brrr/tensor/strided_bytes.h"

namespace brrr {
namespace {

static_assert(std::endian::native == std::endian::little,
              "files are little-endian and their elements are read as they are");

[[noreturn]] void fail_system(const char* op, const std::string& path, const char* action) {
  const int code = errno;
  fail(fmt::format("[{}] {}: cannot {}: {}", op, path, action, std::strerror(code)));
}

// A new file beside `path`, removed again unless it was renamed.
class TemporaryFile {
 public:
  TemporaryFile(const char* op, const std::string& path) : op_(op), path_(path) {
    static std::atomic<unsigned> counter{0};
    struct stat info;
    if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
      fail(fmt::format("[{}] {}: expected a regular file to write to", op, path));
    }
    do {  // a name may be left over from a process that was killed
      temporary_ = fmt::format("{}.{}-{}.tmp", path, ::getpid(), counter.fetch_add(1));
      file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (file_ < 0 && errno == EEXIST);
    if (file_ < 0) fail_system(op_, path_, "create a file there");
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (file_ >= 0) ::close(file_);
    if (!temporary_.empty()) ::unlink(temporary_.c_str());
  }

  void write(const void* bytes, std::size_t count) {
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
    if (::close(std::exchange(file_, -1)) != 0) fail_system(op_, path_, "close");
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
      fail_system(op_, path_, "rename the new file");
    }
    temporary_.clear();
    // The rename itself lasts through a crash once the directory is on the disk.
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
  // Not blocking, so that a pipe is refused below and not waited for.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) fail_system(op, path, "open");
  ByteSource source(op, path, file, 0);
  struct stat info;
  if (::fstat(file, &info) != 0) fail_system(op, path, "ask for its size");
  if (!S_ISREG(info.st_mode)) fail(fmt::format("[{}] {}: expected a regular file", op, path));
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
  fail(fmt::format("[{}] {}: at byte {}: {}", op_, name_, at, reason));
}

void write_file(const char* op, const std::string& path,
                const std::function<void(const ByteSink&)>& fill) {
  TemporaryFile file(op, path);
  fill([&](const void* bytes, std::size_t count) { file.write(bytes, count); });
  file.commit();
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMost = 80;
  if (text.size() <= kMost) return fmt::format("{:?}", text);
  return fmt::format("{:?}...", text.substr(0, kMost));
}

}  // namespace brrr
