// Bounds-checked reading of files and atomic writing, for the readers and writers of all formats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include <brrr/tensor/tensor.h>

namespace brrr {

// The bytes of a file, or of memory that looks like one. Errors read "[op] name: at byte N:
// reason". Files are read, not mapped: one copy straight into aligned storage, and a file that
// is truncated meanwhile is an error and not a signal.
class ByteSource {
 public:
  static ByteSource open(const char* op, const std::string& path);
  ByteSource(const char* op, std::string_view name, std::span<const std::byte> memory);
  ByteSource(ByteSource&& other) noexcept;
  ByteSource& operator=(ByteSource&&) = delete;
  ~ByteSource();

  std::uint64_t size() const { return size_; }
  // Copies `count` bytes from `at` on; refuses when the source ends before that.
  void read(void* to, std::uint64_t at, std::size_t count) const;
  // A contiguous CPU tensor from the bytes at `at`. Allocates only when the source holds them all;
  // refuses a bool that is neither 0 nor 1.
  Tensor read_tensor(std::uint64_t at, DType dtype, std::span<const std::int64_t> shape) const;

  [[noreturn]] void refuse(std::uint64_t at, std::string_view reason) const;

 private:
  ByteSource(const char* op, std::string name, int file, std::uint64_t size);

  const char* op_;
  std::string name_;
  int file_ = -1;
  const std::byte* memory_ = nullptr;
  std::uint64_t size_ = 0;
};

// Takes the bytes of a writer, in order.
using ByteSink = std::function<void(const void* bytes, std::size_t count)>;

// Replaces a file atomically: `fill` writes a temporary file in the same folder, which is flushed
// to the disk and renamed. On a failure the old file is unchanged and the temporary is removed, as
// are temporaries that killed processes left there.
void write_file(const char* op, const std::string& path,
                const std::function<void(const ByteSink&)>& fill);

// Throws the error of write_file if no file can be made at `path`.
void require_writable(const char* op, const std::string& path);

// Text that came from outside, for an error: in quotes, escaped, cut when long.
std::string in_quotes(std::string_view text);

}  // namespace brrr
