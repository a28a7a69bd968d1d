#include "brrr/io/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "brrr/io/file_bytes.h"
#include "brrr/io/strided_bytes.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/tensor_impl.h"

namespace brrr {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr const char* kKnown = "'<f4', '<f8', '<f2', '<i4', '<i8' or '|b1'";

struct Descr {
  std::string_view text;
  DType dtype;
};
constexpr std::array<Descr, 6> kDescrs = {{{"<f4", DType::f32},
                                           {"<f8", DType::f64},
                                           {"<f2", DType::f16},
                                           {"<i4", DType::i32},
                                           {"<i8", DType::i64},
                                           {"|b1", DType::boolean}}};

struct NpyHeader {
  DType dtype = DType::f32;
  bool fortran_order = false;
  Dims shape;
  std::uint64_t shape_at = 0;
};

// Parses the header, the text of a Python dict with exactly three keys. Positions count from the
// start of the file.
class NpyHeaderParser {
 public:
  NpyHeaderParser(const ByteSource& source, std::string_view text, std::uint64_t base)
      : source_(source), text_(text), base_(base) {}

  NpyHeader parse() {
    NpyHeader header;
    bool have_descr = false, have_order = false, have_shape = false;
    expect('{', "to open the header");
    while (!accept('}')) {
      skip_space();
      const std::size_t at = at_;
      const std::string_view key = string();
      expect(':', "after the key");
      skip_space();
      bool* have = key == "descr"           ? &have_descr
                   : key == "fortran_order" ? &have_order
                   : key == "shape"         ? &have_shape
                                            : nullptr;
      if (!have) {
        refuse(at, fmt::format("expected the key 'descr', 'fortran_order' or 'shape', got {}",
                               in_quotes(key)));
      }
      if (std::exchange(*have, true))
        refuse(at, fmt::format("the key {} is there twice", in_quotes(key)));
      if (have == &have_descr) header.dtype = descr();
      if (have == &have_order) header.fortran_order = boolean();
      if (have == &have_shape) {
        header.shape_at = base_ + at_;
        header.shape = shape();
      }
      if (!accept(',')) {
        expect('}', "or a comma after the value");
        break;
      }
    }
    if (!have_descr || !have_order || !have_shape) {
      refuse(at_, fmt::format("the key '{}' is missing", !have_descr   ? "descr"
                                                         : !have_order ? "fortran_order"
                                                                       : "shape"));
    }
    skip_space();
    if (at_ < text_.size())
      refuse(at_, fmt::format("expected spaces to the end of the header, got {}", here()));
    return header;
  }

 private:
  [[noreturn]] void refuse(std::size_t at, const std::string& reason) const {
    source_.refuse(base_ + at, reason);
  }

  std::string here() const {
    return at_ < text_.size() ? in_quotes(text_.substr(at_, 1)) : "the end of the header";
  }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) {
      ++at_;
    }
  }

  bool accept(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void expect(char c, const char* why) {
    if (!accept(c)) refuse(at_, fmt::format("expected '{}' {}, got {}", c, why, here()));
  }

  std::string_view string() {
    if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) {
      refuse(at_, fmt::format("expected a string, got {}", here()));
    }
    const std::size_t open = at_, close = text_.find(text_[at_], at_ + 1);
    if (close == std::string_view::npos) refuse(open, "the string has no end");
    at_ = close + 1;
    return text_.substr(open + 1, close - open - 1);
  }

  DType descr() {
    const std::size_t at = at_;
    if (at_ < text_.size() && text_[at_] == '[') {
      refuse(at, fmt::format("expected a dtype of {}, got one with fields", kKnown));
    }
    const std::string_view text = string();
    for (const Descr& known : kDescrs) {
      if (text == known.text) return known.dtype;
    }
    if (text == "<b1") return DType::boolean;
    refuse(at, fmt::format("expected a dtype of {}, got {}{}", kKnown, in_quotes(text),
                           text.starts_with('>') ? "; save the array in little-endian order" : ""));
  }

  bool boolean() {
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with("True")) return at_ += 4, true;
    if (rest.starts_with("False")) return at_ += 5, false;
    refuse(at_, fmt::format("expected True or False, got {}", here()));
  }

  Dims shape() {
    const std::size_t open = at_;
    Dims dims;
    bool comma = true;
    expect('(', "to open the shape");
    while (!accept(')')) {
      skip_space();
      if (!comma) refuse(at_, fmt::format("expected ',' or ')' in the shape, got {}", here()));
      if (dims.size() == kMaxDims)
        refuse(open, fmt::format("expected at most {} dimensions, got more", kMaxDims));
      dims.push_back(dimension());
      comma = accept(',');
    }
    // In Python "(3)" is a number and not a shape.
    if (dims.size() == 1 && !comma) refuse(open, "expected a comma after the only dimension");
    return dims;
  }

  std::int64_t dimension() {
    const std::size_t at = at_;
    std::int64_t value = 0;
    bool overflow = false;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      overflow |= __builtin_mul_overflow(value, std::int64_t{10}, &value);
      overflow |= __builtin_add_overflow(value, std::int64_t{text_[at_] - '0'}, &value);
    }
    if (at_ == at) refuse(at, fmt::format("expected a dimension of at least 0, got {}", here()));
    if (overflow) refuse(at, "expected a dimension that fits into 63 bits");
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // as Python 2 wrote large integers
    return value;
  }

  const ByteSource& source_;
  std::string_view text_;
  std::uint64_t base_;
  std::size_t at_ = 0;
};

Tensor read_npy(const ByteSource& source) {
  std::array<std::uint8_t, 12> start{};
  if (source.size() < 10) {
    source.refuse(source.size(),
                  fmt::format("expected a .npy file of at least 10 bytes, got {}", source.size()));
  }
  source.read(start.data(), 0, 10);
  for (std::size_t i = 0; i < kMagic.size(); ++i) {
    if (start[i] != static_cast<std::uint8_t>(kMagic[i])) {
      source.refuse(i, "expected the mark of a .npy file, \"\\x93NUMPY\"");
    }
  }
  const int major = start[6], minor = start[7];
  if (major < 1 || major > 3 || minor != 0) {
    source.refuse(6, fmt::format("expected version 1.0, 2.0 or 3.0, got {}.{}", major, minor));
  }
  const std::uint64_t base = major == 1 ? 10 : 12;
  std::uint64_t length = start[8] | start[9] << 8;
  if (major > 1) {
    source.read(start.data() + 10, 10, 2);
    length |= std::uint64_t{start[10]} << 16 | std::uint64_t{start[11]} << 24;
  }
  if (length > source.size() - base) {
    source.refuse(8, fmt::format("expected a header of {} bytes, but the file ends at byte {}",
                                 length, source.size()));
  }
  std::string text(length, '\0');
  source.read(text.data(), base, length);

  const NpyHeader header = NpyHeaderParser(source, text, base).parse();
  const std::uint64_t data = base + length;
  const std::size_t element = size_of(header.dtype);
  const std::optional<std::int64_t> numel = try_numel(header.shape, element);
  if (!numel) {
    source.refuse(header.shape_at,
                  fmt::format("expected a shape whose bytes fit into 63 bits, got {}",
                              to_string(header.shape)));
  }
  Dims stored = header.shape;
  if (header.fortran_order) std::reverse(stored.begin(), stored.end());
  Tensor tensor = source.read_tensor(data, header.dtype, stored);
  if (const std::uint64_t end = data + tensor.bytes(); end != source.size()) {
    source.refuse(
        end, fmt::format("expected the end of the file, got {} more bytes", source.size() - end));
  }
  if (!header.fortran_order || stored.size() < 2) return tensor;
  Dims strides = contiguous_strides(stored);
  std::reverse(strides.begin(), strides.end());
  return make_view(tensor, header.shape, strides);
}

void write_npy(const Tensor& tensor, const ByteSink& sink) {
  const Tensor host = contiguous_on_host(tensor, "npy");
  const auto known = std::ranges::find(kDescrs, host.dtype(), &Descr::dtype);
  std::string shape;
  for (const std::int64_t d : host.shape())
    shape += fmt::format("{}{}", shape.empty() ? "" : ", ", d);
  if (host.rank() == 1) shape += ",";
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", known->text, shape);
  // NumPy's readers map the data, so it starts at a multiple of 64.
  const std::size_t start = (kMagic.size() + 4 + text.size() + 1 + 63) / 64 * 64;
  text.resize(start - kMagic.size() - 4 - 1, ' ');
  text += '\n';
  std::string head(kMagic);
  for (const std::size_t byte :
       {std::size_t{1}, std::size_t{0}, text.size() & 255, text.size() >> 8}) {
    head += static_cast<char>(byte);
  }
  head += text;
  sink(head.data(), head.size());
  sink(host.data(), host.bytes());
}

// Refuses bf16, for which the format has no name: arrays of NumPy's extension types read back as
// raw bytes.
void check_dtype(const Tensor& tensor) {
  if (tensor.defined() && tensor.dtype() == DType::bf16) {
    fail(
        "[npy] expected f32, f64, f16, i32, i64 or bool, got {}: the format has no bf16; convert "
        "to f32 or use save_safetensors",
        tensor.describe());
  }
}

}  // namespace

Tensor load_npy(const std::string& path) { return read_npy(ByteSource::open("npy", path)); }

Tensor parse_npy(std::span<const std::byte> bytes, std::string_view name) {
  return read_npy(ByteSource("npy", name, bytes));
}

void save_npy(const std::string& path, const Tensor& tensor) {
  check_dtype(tensor);
  write_file("npy", path, [&](const ByteSink& sink) { write_npy(tensor, sink); });
}

std::vector<std::byte> format_npy(const Tensor& tensor) {
  check_dtype(tensor);
  std::vector<std::byte> bytes;
  write_npy(tensor, [&](const void* from, std::size_t count) {
    const auto* begin = static_cast<const std::byte*>(from);
    bytes.insert(bytes.end(), begin, begin + count);
  });
  return bytes;
}

}  // namespace brrr
