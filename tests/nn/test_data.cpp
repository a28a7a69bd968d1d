// Datasets: idx and npy files, synthetic problems.
#include <cstring>
#include <limits>

#include "tests/harness/catch.h"
#include "tests/harness/idx_check.h"
#include "tests/harness/nn_reference.h"

using namespace brrr;
using namespace interchange;

namespace {

// A file of this type and shape with these bytes of elements.
Bytes idx_file(unsigned type, const std::vector<std::uint32_t>& shape,
               const std::string& elements) {
  std::string text(2, '\0');
  text += static_cast<char>(type);
  text += static_cast<char>(shape.size());
  for (const std::uint32_t d : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(d >> shift & 255);
  }
  return to_bytes(text + elements);
}

template <class T>
std::string big_endian(T value) {
  std::string text(sizeof(T), '\0');
  std::memcpy(text.data(), &value, sizeof(T));
  return {text.rbegin(), text.rend()};
}

template <class T>
std::vector<T> parsed(const Bytes& bytes) {
  const Tensor x = data::parse_idx(bytes);
  REQUIRE(x.dtype() == dtype_of<T>);
  return to_vector<T>(x);
}

std::string refusal(const Bytes& bytes) {
  return error_of([&] { data::parse_idx(bytes, "x.idx"); });
}

}  // namespace

TEST_CASE("idx: every type of element", "[data]") {
  using Ints = std::vector<std::int32_t>;
  CHECK(parsed<std::int32_t>(idx_file(0x08, {3}, "\x01\x80\xff")) == Ints{1, 128, 255});
  CHECK(parsed<std::int32_t>(idx_file(0x09, {3}, "\x01\x80\xff")) == Ints{1, -128, -1});
  CHECK(parsed<std::int32_t>(
            idx_file(0x0B, {2}, big_endian<std::int16_t>(-300) + big_endian<std::int16_t>(258))) ==
        Ints{-300, 258});
  CHECK(parsed<std::int32_t>(idx_file(
            0x0C, {2}, big_endian<std::int32_t>(INT32_MIN) + big_endian<std::int32_t>(70000))) ==
        Ints{INT32_MIN, 70000});
  CHECK(parsed<float>(idx_file(0x0D, {1}, big_endian(-1.5f))) == std::vector<float>{-1.5f});
  CHECK(parsed<double>(idx_file(0x0E, {1}, big_endian(0.1))) == std::vector<double>{0.1});
}

TEST_CASE("idx: shapes, and more elements than are read at once", "[data]") {
  CHECK(Dims(data::parse_idx(idx_file(0x08, {}, "\x07")).shape()) == Dims{});
  CHECK(Dims(data::parse_idx(idx_file(0x08, {0, 28}, "")).shape()) == Dims{0, 28});
  CHECK(Dims(data::parse_idx(idx_file(0x08, {1, 1, 1, 1, 1, 1, 1, 2}, "ab")).shape()) ==
        Dims{1, 1, 1, 1, 1, 1, 1, 2});
  std::string elements;
  for (int i = 0; i < 20001; ++i) elements += big_endian<std::int16_t>(static_cast<short>(i));
  const Tensor many = data::parse_idx(idx_file(0x0B, {3, 6667}, elements));
  CHECK(Dims(many.shape()) == Dims{3, 6667});
  CHECK(to_vector<std::int32_t>(flatten(many)) ==
        to_vector<std::int32_t>(arange(20001, {.dtype = i32})));
}

TEST_CASE("idx: a damaged file is refused with the byte and the reason", "[data]") {
  const Bytes good = idx_file(0x08, {2, 3}, "abcdef");
  const auto with = [&](std::size_t at, int value) {
    Bytes bytes = good;
    bytes[at] = static_cast<std::byte>(value);
    return bytes;
  };
  const auto cut = [&](std::size_t size) {
    return Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
  };
  CHECK(refusal(good).empty());
  CHECK(refusal(with(0, 1)) == "[idx] x.idx: at byte 0: expected a 0 to begin with, got 1");
  CHECK(refusal(with(1, 0x93)) == "[idx] x.idx: at byte 1: expected a 0 to begin with, got 147");
  CHECK(refusal(with(2, 0x0A)) ==
        "[idx] x.idx: at byte 2: expected the type 0x08, 0x09, 0x0b, 0x0c, 0x0d or 0x0e, got 0x0a");
  CHECK(refusal(with(3, 9)) == "[idx] x.idx: at byte 3: expected at most 8 dimensions, got 9");
  CHECK(refusal(with(7, 3)) ==
        "[idx] x.idx: at byte 18: expected 9 bytes of elements for [3, 3], got 6");
  CHECK(refusal(with(7, 1)) ==
        "[idx] x.idx: at byte 15: expected 3 bytes of elements for [1, 3], got 6");
  CHECK(refusal(with(4, 0x7f)).starts_with("[idx] x.idx: at byte 18: expected"));
  CHECK(refusal({}) ==
        "[idx] x.idx: at byte 0: expected 4 more bytes, but the file ends at byte 0");
  CHECK(refusal(cut(10)) ==
        "[idx] x.idx: at byte 8: expected 4 more bytes, but the file ends at byte 10");
  CHECK(refusal(cut(17)) ==
        "[idx] x.idx: at byte 17: expected 6 bytes of elements for [2, 3], got 5");
  const std::uint32_t most = std::numeric_limits<std::uint32_t>::max();
  CHECK(refusal(idx_file(0x08, {most, most, most}, "a")) ==
        "[idx] x.idx: at byte 4: expected a shape whose bytes fit into 63 bits, got [4294967295, "
        "4294967295, 4294967295]");
}

TEST_CASE("idx: any bytes give a tensor or an error with the byte's offset", "[data]") {
  std::string elements;
  for (int i = 0; i < 24; ++i) elements += big_endian<std::int32_t>(i * 1000);
  const Bytes seeds[] = {idx_file(0x0C, {2, 3, 4}, elements), idx_file(0x08, {7}, "abcdefg"),
                         idx_file(0x0E, {2}, big_endian(1.0) + big_endian(2.0))};
  interchange::Random random{77};
  int accepted = 0, refused = 0;
  for (int round = 0; round < 6000; ++round) {
    ++(check_idx(mutated(seeds[round % 3], random)) ? accepted : refused);
  }
  CHECK(accepted > 100);
  CHECK(refused > 1000);
}

TEST_CASE("data: datasets from files", "[data]") {
  TemporaryFolder folder;
  write_file(folder / "images",
             idx_file(0x08, {2, 1, 3}, std::string("\x00\xff\x33\x66\x99\xcc", 6)));
  write_file(folder / "labels", idx_file(0x08, {2}, "\x07\x03"));
  const data::Dataset digits = data::load_idx_dataset(folder / "images", folder / "labels");
  CHECK(digits.size() == 2);
  CHECK(digits.inputs.describe() == "f32[2, 1, 3]");
  CHECK(to_vector<float>(digits.inputs) == std::vector<float>{0, 1, 0.2f, 0.4f, 0.6f, 0.8f});
  CHECK(to_vector<std::int64_t>(digits.targets) == std::vector<std::int64_t>{7, 3});

  save_npy(folder / "x.npy", transpose(arange(6, {.dtype = f32}), 0, 0));
  save_npy(folder / "y.npy", arange(6));
  const data::Dataset numbers = data::load_npy_dataset(folder / "x.npy", folder / "y.npy");
  CHECK(to_vector<float>(numbers.inputs) == std::vector<float>{0, 1, 2, 3, 4, 5});
  CHECK(numbers.targets.dtype() == i64);

  write_file(folder / "labels", idx_file(0x08, {3}, "\x07\x03\x01"));
  CHECK(error_of([&] { data::load_idx_dataset(folder / "images", folder / "labels"); }) ==
        "[dataset] expected inputs and targets of as many rows, at least 1, got f32[2, 1, 3] and "
        "i64[3]");
  CHECK(error_of([&] {
          data::load_idx(folder / "absent");
        }).starts_with("[idx] " + (folder / "absent")));
  CHECK_FALSE(error_of([] { data::make_dataset(zeros({0, 2}), zeros({0})); }).empty());
  CHECK_FALSE(error_of([] { data::make_dataset(zeros({2}), Tensor()); }).empty());
  const Tensor transposed = transpose(test::pattern({3, 4}, 0), 0, 1);
  CHECK(data::make_dataset(transposed, zeros({4})).inputs.is_contiguous());
}

TEST_CASE("data: two spirals", "[data]") {
  const data::Dataset spirals = data::two_spirals(2000, 0);
  CHECK(spirals.inputs.describe() == "f32[2000, 2]");
  CHECK(spirals.targets.describe() == "i64[2000]");
  const std::vector<float> points = to_vector<float>(spirals.inputs);
  const std::vector<std::int64_t> classes = to_vector<std::int64_t>(spirals.targets);
  double wrong = 0;
  for (std::size_t i = 0; i < 2000; ++i) {
    CHECK(classes[i] == static_cast<std::int64_t>(i % 2));
    const double x = points[2 * i], y = points[2 * i + 1], along = std::hypot(x, y);
    CHECK(along <= 1.0001);
    // The angle of arm 0 at this radius, or half a turn on for arm 1.
    const double angle = 2 * M_PI * (1.5 * along + 0.5 * static_cast<double>(classes[i]));
    wrong = std::max(wrong, std::hypot(x - along * std::cos(angle), y - along * std::sin(angle)));
  }
  CHECK(wrong < 1e-5);
  CHECK(same(data::two_spirals(64).inputs, data::two_spirals(64).inputs));
  CHECK_FALSE(same(data::two_spirals(64, 0.02, 1.5, 1).inputs, data::two_spirals(64).inputs));
  CHECK(error_of([] { data::two_spirals(0); }) ==
        "[two_spirals] expected sizes of at least 1 and at most 2^28 in all, got [0]");
  CHECK(error_of([] { data::two_spirals((1 << 28) + 1); }) ==
        "[two_spirals] expected sizes of at least 1 and at most 2^28 in all, got [268435457]");

  SECTION("no draw of the program's own generator is used") {
    manual_seed(4);
    const Tensor expected = rand({4});
    manual_seed(4);
    data::two_spirals(10);
    data::regression(10, 2);
    CHECK(same(rand({4}), expected));
  }
}

TEST_CASE("data: regression", "[data]") {
  const data::Dataset clean = data::regression(500, 4, 2, 0),
                      noisy = data::regression(500, 4, 2, 0.5);
  CHECK(clean.inputs.describe() == "f32[500, 4]");
  CHECK(clean.targets.describe() == "f32[500, 2]");
  CHECK(item(mean(clean.inputs)) == Approx(0).margin(0.1));
  CHECK(item(var(clean.inputs)) == Approx(1).margin(0.1));
  CHECK(item(var(clean.targets)) > 0.05);
  CHECK(same(data::regression(500, 4, 2, 0).targets, clean.targets));
  CHECK_FALSE(same(noisy.targets, clean.targets));
  CHECK_FALSE(error_of([] { data::regression(4, 0); }).empty());
}

TEST_CASE("data: text and its windows", "[data]") {
  const std::string text = data::generate_text(5000);
  CHECK(text.size() == 5000);
  CHECK(text == data::generate_text(5000));
  CHECK(text != data::generate_text(5000, 1));
  CHECK(text.starts_with(data::generate_text(100)));  // a shorter text is a prefix
  CHECK(text.starts_with("the "));
  CHECK(data::generate_text(0).empty());

  const data::Characters characters(text);
  CHECK(characters.size() > 15);
  CHECK(characters.size() < 32);
  const Tensor tokens = characters.encode(text);
  CHECK(tokens.describe() == "i64[5000]");
  CHECK(item(max(tokens)) == characters.size() - 1);
  CHECK(item(min(tokens)) == 0);
  CHECK(characters.decode(tokens) == text);
  CHECK(error_of([&] { characters.encode("the X"); }).ends_with(", got 'X' at 4"));
  CHECK_FALSE(error_of([&] { characters.decode(tokens + 1000); }).empty());

  const data::Dataset windows = data::next_token_windows(arange(8), 3, 2);
  CHECK(windows.inputs.describe() == "i64[3, 3]");
  CHECK(to_vector<std::int64_t>(windows.inputs) ==
        std::vector<std::int64_t>{0, 1, 2, 2, 3, 4, 4, 5, 6});
  CHECK(to_vector<std::int64_t>(windows.targets) ==
        std::vector<std::int64_t>{1, 2, 3, 3, 4, 5, 5, 6, 7});
  CHECK(data::next_token_windows(arange(4), 3).size() == 1);
  CHECK_FALSE(error_of([] { data::next_token_windows(arange(3), 3); }).empty());
  CHECK_FALSE(error_of([] { data::next_token_windows(arange(8), 3, 0); }).empty());
}
