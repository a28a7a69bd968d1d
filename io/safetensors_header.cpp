#include "brrr/io/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "brrr/tensor/fail.h"

namespace brrr::safetensors {
namespace {

constexpr std::string_view kMetadata = "__metadata__";

constexpr std::array<std::string_view, kDTypes> kDTypeNames = {"F32", "F64", "F16", "BF16",
                                                               "I32", "I64", "BOOL"};
static_assert(static_cast<int>(DType::boolean) == 6 && static_cast<int>(DType::bf16) == 3);

// An iterator that counts the characters that the parser has read, for positions in errors: the
// parser's callbacks do not report them.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, std::size_t* taken) : at_(at), taken_(taken) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    ++*taken_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) {
    return a.at_ == b.at_;
  }
  friend bool operator!=(const CountingIterator& a, const CountingIterator& b) { return !(a == b); }

 private:
  const char* at_;
  std::size_t* taken_;
};

// Receives the parser's events. The header has a fixed form of at most three levels, so a state
// determines which events may follow, and the first one that does not fit ends the parse.
class Handler : public nlohmann::json_sax<nlohmann::json> {
 public:
  Handler(const ByteSource& source, std::string_view text, std::uint64_t base)
      : source_(source), text_(text), base_(base) {}

  Header take() { return std::move(header_); }
  std::size_t* taken() { return &taken_; }

  bool null() override { return unexpected("null"); }
  bool boolean(bool value) override { return unexpected(value ? "true" : "false"); }
  bool number_integer(std::int64_t value) override { return unexpected(fmt::format("{}", value)); }
  bool number_float(double, const std::string& text) override { return unexpected(text); }
  bool binary(nlohmann::json::binary_t&) override { return unexpected("binary"); }

  bool number_unsigned(std::uint64_t value) override {
    next_number();
    if (state_ == ParserState::shape) {
      if (value > static_cast<std::uint64_t>(INT64_MAX)) {
        refuse("expected a dimension that fits into 63 bits");
      }
      Dims& shape = entry().shape;
      if (shape.size() == kMaxDims) {
        refuse(fmt::format("expected at most {} dimensions, got more", kMaxDims));
      }
      shape.push_back(static_cast<std::int64_t>(value));
    } else if (state_ == ParserState::offsets && offsets_ < 2) {
      (offsets_++ == 0 ? entry().begin : entry().end) = value;
    } else {
      refuse_token(fmt::format("{}", value));
    }
    return true;
  }

  bool string(std::string& value) override {
    next();
    if (state_ == ParserState::dtype) {
      const auto known = std::ranges::find(kDTypeNames, value);
      if (known == kDTypeNames.end()) {
        refuse(fmt::format("expected a dtype of {}, got {}", fmt::join(kDTypeNames, ", "),
                           in_quotes(value)));
      }
      entry().dtype = static_cast<DType>(known - kDTypeNames.begin());
      state_ = ParserState::tensor;
    } else if (state_ == ParserState::metadata_value) {
      *metadata_ = std::move(value);
      state_ = ParserState::metadata;
    } else {
      refuse_token(in_quotes(value));
    }
    return true;
  }

  bool start_object(std::size_t) override {
    next();
    if (state_ == ParserState::start) {
      state_ = ParserState::top;
    } else if (state_ == ParserState::top_value) {
      state_ = in_metadata_ ? ParserState::metadata : ParserState::tensor;
    } else {
      refuse_token("an object");
    }
    return true;
  }

  bool key(std::string& name) override {
    next();
    if (state_ == ParserState::top) {
      if (!names_.insert(name).second)
        refuse(fmt::format("the name {} is there twice", in_quotes(name)));
      in_metadata_ = name == kMetadata;
      if (!in_metadata_) {
        header_.entries.push_back({.name = std::move(name), .name_at = position()});
        seen_ = {};
      }
      state_ = ParserState::top_value;
    } else if (state_ == ParserState::metadata) {
      const auto [at, is_new] = header_.metadata.try_emplace(name);
      if (!is_new) refuse(fmt::format("the metadata key {} is there twice", in_quotes(name)));
      metadata_ = &at->second;
      state_ = ParserState::metadata_value;
    } else {  // the parser sends keys only inside objects
      tensor_key(name);
    }
    return true;
  }

  bool end_object() override {
    next();
    if (state_ == ParserState::tensor) {
      for (int i = 0; i < 3; ++i) {
        if (!seen_[i]) {
          refuse(fmt::format("tensor {} has no {}", in_quotes(entry().name), in_quotes(kKeys[i])));
        }
      }
    }
    state_ = state_ == ParserState::top ? ParserState::done : ParserState::top;
    return true;
  }

  bool start_array(std::size_t) override {
    next();
    if (state_ == ParserState::shape_start) {
      entry().shape_at = position();
      state_ = ParserState::shape;
    } else if (state_ == ParserState::offsets_start) {
      entry().offsets_at = position();
      offsets_ = 0;
      state_ = ParserState::offsets;
    } else {
      refuse_token("an array");
    }
    return true;
  }

  bool end_array() override {
    next();
    if (state_ == ParserState::offsets && offsets_ != 2) {
      refuse(fmt::format("expected two numbers for \"data_offsets\", got {}", offsets_));
    }
    state_ = ParserState::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    // "[json.exception...] parse error at line 1, column 5: syntax error while ...": keep the end.
    std::string_view reason = error.what();
    if (const std::size_t column = reason.find(", column "); column != reason.npos) {
      const std::size_t colon = reason.find(": ", column);
      if (colon != reason.npos) reason.remove_prefix(colon + 2);
    }
    // The reason may cite raw bytes of the file.
    std::string shown;
    for (const char c : reason.substr(0, 200)) {
      shown += c >= ' ' && c <= '~' ? std::string(1, c)
                                    : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
    source_.refuse(base_ + (position > 0 ? position - 1 : 0),
                   fmt::format("expected a header of JSON: {}", shown));
  }

 private:
  enum class ParserState {
    start,
    top,             // expects a name
    top_value,       // expects the value of a name
    metadata,        // expects a key of "__metadata__"
    metadata_value,  // expects the value of such a key
    tensor,          // expects a key of a tensor's object
    dtype,           // expects the value of "dtype"; likewise below
    shape_start,
    shape,
    offsets_start,
    offsets,
    done,
  };
  static constexpr std::array<std::string_view, 3> kKeys = {"dtype", "shape", "data_offsets"};

  void tensor_key(const std::string& name) {
    constexpr ParserState after[] = {ParserState::dtype, ParserState::shape_start,
                                     ParserState::offsets_start};
    for (int i = 0; i < 3; ++i) {
      if (name != kKeys[i]) continue;
      if (std::exchange(seen_[i], true)) {
        refuse(fmt::format("tensor {} has {} twice", in_quotes(entry().name), in_quotes(name)));
      }
      state_ = after[i];
      return;
    }
    refuse(fmt::format("expected the key \"dtype\", \"shape\" or \"data_offsets\", got {}",
                       in_quotes(name)));
  }

  TensorInfo& entry() { return header_.entries.back(); }

  // Sets the start of this event's token: it follows the previous one and spaces, ',' or ':'.
  void next() {
    start_ = end_;
    while (start_ < text_.size() &&
           std::string_view(" \t\r\n,:").find(text_[start_]) != text_.npos) {
      ++start_;
    }
    end_ = taken_;
  }
  // The same for a number, which the parser recognizes only after reading the character behind it.
  void next_number() {
    next();
    if (end_ > start_ && (text_[end_ - 1] < '0' || text_[end_ - 1] > '9')) --end_;
  }
  std::uint64_t position() const { return base_ + start_; }

  [[noreturn]] void refuse(const std::string& reason) const { source_.refuse(position(), reason); }

  [[noreturn]] void refuse_token(const std::string& got) const {
    refuse(fmt::format("expected {}, got {}", expected(), got));
  }
  bool unexpected(const std::string& got) {
    next();
    refuse_token(got);
  }

  std::string expected() const {
    switch (state_) {
      case ParserState::top_value:
        return in_metadata_
                   ? "an object of texts for \"__metadata__\""
                   : fmt::format("an object for tensor {}", in_quotes(header_.entries.back().name));
      case ParserState::metadata_value: return "a text as the value of a metadata key";
      case ParserState::dtype: return "a text for \"dtype\"";
      case ParserState::shape_start: return "an array for \"shape\"";
      case ParserState::shape: return "dimensions that are whole numbers of at least 0";
      case ParserState::offsets_start: return "an array for \"data_offsets\"";
      case ParserState::offsets: return "two whole numbers for \"data_offsets\"";
      default: return "an object";
    }
  }

  const ByteSource& source_;
  std::string_view text_;
  std::uint64_t base_;
  std::size_t taken_ = 0, start_ = 0, end_ = 0;
  ParserState state_ = ParserState::start;
  bool in_metadata_ = false;
  std::array<bool, 3> seen_{};
  int offsets_ = 0;
  std::string* metadata_ = nullptr;
  std::unordered_set<std::string> names_;
  Header header_;
};

// A JSON string; throws when the text is not UTF-8.
std::string json_string(std::string_view text, const char* what) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    fail("[safetensors] expected {} in UTF-8, got {}", what, in_quotes(text));
  }
}

}  // namespace

Header parse_header(const ByteSource& source, std::string_view text, std::uint64_t base) {
  if (!text.starts_with('{')) source.refuse(base, "expected a header that starts with '{'");
  Handler handler(source, text, base);
  nlohmann::json::sax_parse(CountingIterator(text.data(), handler.taken()),
                            CountingIterator(text.data() + text.size(), handler.taken()), &handler);
  return handler.take();
}

std::string format_header(const Header& header) {
  std::string text = "{";
  if (!header.metadata.empty()) {
    text += fmt::format("\"{}\":{{", kMetadata);
    bool first = true;
    for (const auto& [key, value] : header.metadata) {
      text +=
          fmt::format("{}{}:{}", std::exchange(first, false) ? "" : ",",
                      json_string(key, "a metadata key"), json_string(value, "a metadata value"));
    }
    text += '}';
  }
  std::unordered_set<std::string_view> names{kMetadata};
  for (const TensorInfo& entry : header.entries) {
    if (!names.insert(entry.name).second) {
      fail(entry.name == kMetadata
               ? fmt::format("[safetensors] expected the name of a tensor, got \"{}\", which the "
                             "format keeps for itself",
                             kMetadata)
               : fmt::format("[safetensors] expected names that differ, got {} twice",
                             in_quotes(entry.name)));
    }
    text += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        text.size() > 1 ? "," : "", json_string(entry.name, "a name"),
                        kDTypeNames[static_cast<int>(entry.dtype)], fmt::join(entry.shape, ","),
                        entry.begin, entry.end);
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMostHeader) {
    fail("[safetensors] expected a header of at most {} bytes, got {}", kMostHeader, text.size());
  }
  return text;
}

}  // namespace brrr::safetensors
