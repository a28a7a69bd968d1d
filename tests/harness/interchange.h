// What the tests of npy, safetensors and DLPack share: tensors of known bytes in many layouts,
// error texts, golden files, and the checks that hold for any input to a parser.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <brrr/io/npy.h>
#include <brrr/io/safetensors.h>
#include <brrr/io/strided_bytes.h>
#include <brrr/tensor/allocator.h>
#include <brrr/tensor/error.h>
#include <brrr/tensor/tensor.h>
#include <brrr/tensor/tensor_impl.h>

#include "tests/harness/errors_expected.h"

namespace interchange {

using Bytes = std::vector<std::byte>;

inline constexpr brrr::DType kAllDTypes[] = {
#define X(e, type, name) brrr::DType::e,
    BRRR_DTYPES(X)
#undef X
};

using brrr::test::error_of;

inline Bytes to_bytes(const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return Bytes(begin, begin + text.size());
}

inline Bytes from_hex(const std::string& digits) {
  Bytes bytes;
  for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// Repeatable random numbers (xorshift).
struct Random {
  std::uint64_t state;
  std::uint64_t operator()(std::uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
  }
};

// Any bits that the dtype can have.
inline brrr::Tensor filled(brrr::DType dtype, const brrr::Dims& shape, std::uint64_t seed = 1) {
  brrr::Tensor tensor = brrr::make_tensor(dtype, shape, brrr::cpu);
  Random random{seed * 0x9e3779b97f4a7c15u};
  auto* bytes = static_cast<std::uint8_t*>(tensor.data());
  const bool is_bool = dtype == brrr::DType::boolean;
  for (std::size_t i = 0; i < tensor.bytes(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(random(is_bool ? 2 : 256));
  }
  return tensor;
}

template <class T>
brrr::Tensor tensor_of(const brrr::Dims& shape, const std::vector<T>& values) {
  brrr::Tensor tensor = brrr::make_tensor(brrr::dtype_of<T>, shape, brrr::cpu);
  for (std::size_t i = 0; i < values.size(); ++i) static_cast<T*>(tensor.data())[i] = values[i];
  return tensor;
}

// A tensor of each layout: 0-d, empty, 8-d, transposed, stepped, offset, expanded, reversed.
inline std::vector<brrr::Tensor> layouts(brrr::DType dtype) {
  using brrr::Dims, brrr::make_view;
  std::vector<brrr::Tensor> all;
  for (const Dims& shape : {Dims{}, Dims{0}, Dims{1}, Dims{7}, Dims{2, 0, 3}, Dims{4, 6},
                            Dims{1, 2, 1, 3, 1, 2, 1, 2}}) {
    all.push_back(filled(dtype, shape, all.size() + 1));
  }
  const brrr::Tensor base = filled(dtype, {4, 6}, 99);
  all.push_back(make_view(base, Dims{6, 4}, Dims{1, 6}));
  all.push_back(make_view(base, Dims{2, 3}, Dims{12, 2}));
  all.push_back(make_view(base, Dims{2, 2}, Dims{6, 1}, 7));
  all.push_back(make_view(base, Dims{3, 4, 2}, Dims{0, 6, 0}));
  all.push_back(make_view(base, Dims{4, 6}, Dims{-6, -1}, 23));
  all.push_back(make_view(base, Dims{}, Dims{}, 5));
  all.push_back(make_view(base, Dims{0, 6}, Dims{1, 6}));
  const brrr::Tensor eight = filled(dtype, {2, 1, 2, 3, 1, 2, 2, 1}, 98);
  all.push_back(make_view(eight, Dims{1, 2, 2, 1, 3, 2, 1, 2}, Dims{1, 1, 2, 4, 4, 12, 24, 24}));
  return all;
}

inline Bytes elements(const brrr::Tensor& tensor) {
  Bytes bytes(tensor.bytes());
  brrr::gather_bytes(bytes.data(), tensor);
  return bytes;
}

inline bool same(const brrr::Tensor& a, const brrr::Tensor& b) {
  return a.dtype() == b.dtype() && std::ranges::equal(a.shape(), b.shape()) &&
         elements(a) == elements(b);
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "brrr-test-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("no temporary folder");
    path_ = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

 private:
  std::filesystem::path path_;
};

inline Bytes read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return to_bytes(text);
}

inline void write_file(const std::string& path, const Bytes& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
}

inline void require(bool condition, const char* what) {
  if (!condition) throw std::logic_error(what);
}

// Invariants of a parser for arbitrary bytes: either an Error with the byte's offset, or tensors no
// larger than the file, which survive a round trip. `parse` returns the result, `again` writes and
// parses it, `equal` compares. Returns whether the bytes were accepted.
template <class Parse, class Again, class Equal>
bool check_parser(const char* prefix, std::span<const std::byte> bytes, Parse parse, Again again,
                  Equal equal) {
  const std::int64_t live = brrr::memory_stats(brrr::cpu).live;
  brrr::reset_peak_memory(brrr::cpu);
  try {
    const auto found = parse(bytes);
    require(brrr::memory_stats(brrr::cpu).peak - live <= static_cast<std::int64_t>(bytes.size()),
            "more memory than the file holds");
    require(equal(found, again(found)), "written and read again, it differs");
    return true;
  } catch (const brrr::Error& error) {
    const std::string text = error.what();
    require(text.starts_with(prefix), text.c_str());
    require(std::stoull(text.substr(std::strlen(prefix))) <= bytes.size(), text.c_str());
    require(text.find(": ", std::strlen(prefix)) != text.npos, text.c_str());
    require(brrr::memory_stats(brrr::cpu).peak - live <= static_cast<std::int64_t>(bytes.size()),
            "more memory than the file holds");
    return false;
  }
}

inline bool check_npy(std::span<const std::byte> bytes) {
  return check_parser(
      "[npy] file: at byte ", bytes, [](auto b) { return brrr::parse_npy(b, "file"); },
      [](const brrr::Tensor& t) { return brrr::parse_npy(brrr::format_npy(t)); },
      [](const brrr::Tensor& a, const brrr::Tensor& b) { return same(a, b); });
}

inline bool check_safetensors(std::span<const std::byte> bytes) {
  return check_parser(
      "[safetensors] file: at byte ", bytes,
      [](auto b) { return brrr::parse_safetensors(b, "file"); },
      [](const brrr::SafeTensors& f) {
        return brrr::parse_safetensors(brrr::format_safetensors(f));
      },
      [](const brrr::SafeTensors& a, const brrr::SafeTensors& b) {
        if (a.metadata != b.metadata || a.tensors.size() != b.tensors.size()) return false;
        for (const auto& [name, tensor] : a.tensors) {
          const brrr::Tensor* other = b.find(name);
          if (!other || !same(tensor, *other)) return false;
        }
        return true;
      });
}

// Damages bytes in one to three places: changes, inserts, removes, repeats or cuts.
inline Bytes mutated(Bytes bytes, Random& random) {
  for (std::uint64_t n = random(3) + 1; n > 0 && !bytes.empty(); --n) {
    const std::uint64_t at = random(bytes.size());
    const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    constexpr char kTelling[] = "0123456789{}[]()\"',:.-LeE\\ \n\xff\x80";
    switch (random(7)) {
      case 0: bytes[at] = static_cast<std::byte>(random(256)); break;
      case 1:
      case 2: bytes[at] = static_cast<std::byte>(kTelling[random(sizeof(kTelling))]); break;
      case 3:
        bytes.insert(place, static_cast<std::byte>(kTelling[random(sizeof(kTelling))]));
        break;
      case 4: bytes.erase(place); break;
      case 5: {
        const Bytes piece(place, place + static_cast<std::ptrdiff_t>(random(
                                             std::min<std::uint64_t>(40, bytes.size() - at))));
        bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(random(bytes.size())),
                     piece.begin(), piece.end());
        break;
      }
      default: bytes.resize(at);
    }
  }
  return bytes;
}

}  // namespace interchange
