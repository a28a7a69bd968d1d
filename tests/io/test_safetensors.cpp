#include "brrr/io/safetensors.h"
#include "tests/golden/files.h"
#include "tests/harness/catch.h"
#include "tests/harness/interchange.h"

using namespace brrr;
using namespace interchange;
using Catch::Matchers::StartsWith;

namespace {

Bytes file_of(const std::string& header, std::size_t data_bytes, char fill = 0) {
  std::string text(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(text.data(), &length, 8);
  return to_bytes(text + header + std::string(data_bytes, fill));
}

std::string refusal(const Bytes& bytes) {
  return error_of([&] { parse_safetensors(bytes, "x"); });
}

std::string header_of(const SafeTensors& file) {
  const Bytes bytes = format_safetensors(file);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  return {reinterpret_cast<const char*>(bytes.data()) + 8, length};
}

}  // namespace

TEST_CASE("safetensors: every dtype and layout round-trips bit for bit", "[safetensors]") {
  TemporaryFolder folder;
  for (const DType dtype : kAllDTypes) {
    SafeTensors file;
    for (const Tensor& tensor : layouts(dtype)) {
      file.tensors.emplace_back("t" + std::to_string(file.tensors.size()), tensor);
    }
    file.metadata = {{"step", "12"}, {"note", "two\nlines \"quoted\" \u00e9"}};
    const Bytes bytes = format_safetensors(file);
    save_safetensors(folder / "m.safetensors", file);
    CHECK(read_file(folder / "m.safetensors") == bytes);
    const SafeTensors back = load_safetensors(folder / "m.safetensors");
    CHECK(back.metadata == file.metadata);
    REQUIRE(back.tensors.size() == file.tensors.size());
    for (std::size_t i = 0; i < file.tensors.size(); ++i) {
      INFO(file.tensors[i].second.describe());
      CHECK(back.tensors[i].first == file.tensors[i].first);
      CHECK(same(back.tensors[i].second, file.tensors[i].second));
    }
    CHECK_FALSE(back.tensors[3].second.shares_storage_with(back.tensors[5].second));
  }
  CHECK(folder.files() == std::set<std::string>{"m.safetensors"});
}

TEST_CASE("safetensors: a file of the reference implementation", "[safetensors]") {
  const Bytes golden = from_hex(golden::safetensors_all);
  const SafeTensors file = parse_safetensors(golden);
  CHECK(file.metadata == std::map<std::string, std::string>{{"format", "pt"}});
  std::string names;
  for (const auto& [name, tensor] : file.tensors) names += name;
  CHECK(names == "idfnbht");
  CHECK(same(file.at("i"), tensor_of<std::int64_t>({2}, {-1, std::int64_t{1} << 62})));
  CHECK(same(file.at("d"), tensor_of<double>({2, 1}, {0.1, -0.0})));
  CHECK(same(file.at("f"), tensor_of<float>({2, 3}, {0, -1.5f, 2, 3.25f, -0.0f, 65504})));
  CHECK(same(file.at("n"), tensor_of<std::int32_t>({}, {-7})));
  CHECK(same(file.at("b"), tensor_of<BFloat16>({3}, {BFloat16(1), BFloat16(-2), BFloat16(3)})));
  CHECK(same(file.at("h"), tensor_of<Float16>({3}, {Float16(1), Float16(-2), Float16(65504)})));
  CHECK(same(file.at("t"), tensor_of<bool>({3}, {true, false, true})));
  CHECK(format_safetensors(file) == golden);

  const SafeTensors odd = parse_safetensors(from_hex(golden::safetensors_names));
  CHECK(odd.at("").data<float>()[0] == 1);
  CHECK(odd.at("q\"\\/\n\x01").data<float>()[0] == 2);
  CHECK(odd.at("\u00e9\u4e2d\U0001f600").data<float>()[0] == 3);
  CHECK(Dims(odd.at("none").shape()) == Dims{0, 4});
  CHECK(format_safetensors(odd) == from_hex(golden::safetensors_names));

  const SafeTensors empty = parse_safetensors(from_hex(golden::safetensors_empty));
  CHECK(empty.tensors.empty());
  CHECK(format_safetensors(empty) == from_hex(golden::safetensors_empty));
}

TEST_CASE("safetensors: wide elements come first, so that all are aligned", "[safetensors]") {
  SafeTensors file;
  file.tensors = {{"flag", filled(DType::boolean, {3})},
                  {"half", filled(DType::bf16, {3})},
                  {"a", filled(DType::f32, {1})},
                  {"wide", filled(DType::f64, {1})},
                  {"b", filled(DType::i32, {1})}};
  CHECK(header_of(file) == R"({"wide":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},)"
                           R"("a":{"dtype":"F32","shape":[1],"data_offsets":[8,12]},)"
                           R"("b":{"dtype":"I32","shape":[1],"data_offsets":[12,16]},)"
                           R"("half":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]},)"
                           R"("flag":{"dtype":"BOOL","shape":[3],"data_offsets":[22,25]}})"
                           "    ");
}

TEST_CASE("safetensors: the order in a file is that of its bytes", "[safetensors]") {
  const std::string header = R"({"b":{"data_offsets":[4,8],"shape":[1],"dtype":"F32"},)"
                             R"("e":{"dtype":"F32","shape":[0],"data_offsets":[4,4]},)"
                             "\n\t\"a\" : {\"dtype\" : \"\\u00463\\u0032\", \"shape\": [ ], "
                             "\"data_offsets\": [0, 4] } }\r\n";
  const SafeTensors file = parse_safetensors(file_of(header, 8));
  std::string names;
  for (const auto& [name, tensor] : file.tensors) names += name;
  CHECK(names == "aeb");
  CHECK(file.find("c") == nullptr);
  CHECK(error_of([&] { file.at("c"); }) ==
        "[safetensors] expected one of 3 tensors, got the name \"c\", which is not there");
}

namespace {

// A file of one tensor: "a" stands at byte 9, its object at 13, "dtype" at 14.
Bytes of_tensor(const std::string& body, std::size_t bytes = 4) {
  return file_of("{\"a\":{" + body + "}}", bytes);
}

const std::string type = "\"dtype\":\"F32\",", shape = "\"shape\":[1],";
const std::string offsets = "\"data_offsets\":[0,4]";
const std::string good = type + shape + offsets;

struct Damaged {
  Bytes bytes;
  std::string expected;
};

void check_refusals(const std::vector<Damaged>& files) {
  for (const Damaged& file : files) {
    const std::string text = refusal(file.bytes);
    const std::string expected = "[safetensors] x: " + file.expected;
    // What the JSON parser adds is its own wording.
    CHECK((expected.ends_with("JSON: ") ? text.substr(0, expected.size()) : text) == expected);
  }
}

}  // namespace

TEST_CASE("safetensors: a damaged file is refused with the place and the reason", "[safetensors]") {
  const auto sized = [](std::uint64_t length) {
    std::string text(8, '\0');
    std::memcpy(text.data(), &length, 8);
    return to_bytes(text);
  };
  check_refusals({
      {{}, "at byte 0: expected 8 more bytes, but the file ends at byte 0"},
      {to_bytes("1234567"), "at byte 0: expected 8 more bytes, but the file ends at byte 7"},
      {sized(1), "at byte 0: expected a header of 1 bytes, but the file ends at byte 8"},
      {sized(100000001), "at byte 0: expected a header of at most 100000000 bytes, got 100000001"},
      {sized(~std::uint64_t{0}),
       "at byte 0: expected a header of at most 100000000 bytes, got "
       "18446744073709551615"},
      {sized(0), "at byte 8: expected a header that starts with '{'"},
      {file_of(" {}", 0), "at byte 8: expected a header that starts with '{'"},
      {file_of("\xef\xbb\xbf{}", 0), "at byte 8: expected a header that starts with '{'"},
      {file_of("{}x", 0), "at byte 10: expected a header of JSON: "},
      {file_of("{", 0), "at byte 9: expected a header of JSON: "},
      {file_of("{\"a\"}", 0), "at byte 12: expected a header of JSON: "},
      {file_of("{\"a\xff\":1}", 0), "at byte 11: expected a header of JSON: "},
      {file_of("{/**/}", 0), "at byte 9: expected a header of JSON: "},
      {file_of("{},", 0), "at byte 10: expected a header of JSON: "},
      {file_of("{\"a\":1}", 0), "at byte 13: expected an object for tensor \"a\", got 1"},
      {file_of("{\"a\": [[[[", 0), "at byte 14: expected an object for tensor \"a\", got an array"},
      {file_of("{\"a\":null}", 0), "at byte 13: expected an object for tensor \"a\", got null"},
      {file_of("{\"a\":\"b\"}", 0), "at byte 13: expected an object for tensor \"a\", got \"b\""},
      {file_of("{\"__metadata__\":3}", 0),
       "at byte 24: expected an object of texts for \"__metadata__\", got 3"},
      {file_of("{\"__metadata__\":{\"k\":{}}}", 0),
       "at byte 29: expected a text as the value of a metadata key, got an object"},
      {file_of("{\"__metadata__\":{\"k\":true}}", 0),
       "at byte 29: expected a text as the value of a metadata key, got true"},
      {file_of("{\"__metadata__\":{\"k\":\"\",\"k\":\"\"}}", 0),
       "at byte 32: the metadata key \"k\" is there twice"},
      {file_of("{\"__metadata__\":{},\"__metadata__\":{}}", 0),
       "at byte 27: the name \"__metadata__\" is there twice"},
      {file_of("{\"a\":{" + good + "},\"\\u0061\":{" + good + "}}", 4),
       "at byte 62: the name \"a\" is there twice"},
  });
}

TEST_CASE("safetensors: a damaged header is refused with the place and the reason",
          "[safetensors]") {
  check_refusals({
      {of_tensor(""), "at byte 14: tensor \"a\" has no \"dtype\""},
      {of_tensor(type + offsets), "at byte 48: tensor \"a\" has no \"shape\""},
      {of_tensor("\"dtype\":\"F32\",\"shape\":[1]"),
       "at byte 39: tensor \"a\" has no \"data_offsets\""},
      {of_tensor(good + ",\"more\":1"),
       "at byte 61: expected the key \"dtype\", \"shape\" or \"data_offsets\", got \"more\""},
      {of_tensor(type + good), "at byte 28: tensor \"a\" has \"dtype\" twice"},
      {of_tensor("\"dtype\":\"U8\""),
       "at byte 22: expected a dtype of F32, F64, F16, BF16, I32, I64, BOOL, got \"U8\""},
      {of_tensor("\"dtype\":32"), "at byte 22: expected a text for \"dtype\", got 32"},
      {of_tensor("\"dtype\": false"), "at byte 23: expected a text for \"dtype\", got false"},
  });
}

TEST_CASE("safetensors: damaged shapes and offsets are refused", "[safetensors]") {
  check_refusals({
      {of_tensor(type + "\"shape\":1"), "at byte 36: expected an array for \"shape\", got 1"},
      {of_tensor(type + "\"shape\":[1.5]"),
       "at byte 37: expected dimensions that are whole numbers of at least 0, got 1.5"},
      {of_tensor(type + "\"shape\":[2, -1]"),
       "at byte 40: expected dimensions that are whole numbers of at least 0, got -1"},
      {of_tensor(type + "\"shape\":[1,[2]]"),
       "at byte 39: expected dimensions that are whole numbers of at least 0, got an array"},
      {of_tensor(type + "\"shape\":[9223372036854775808]"),
       "at byte 37: expected a dimension that fits into 63 bits"},
      {of_tensor(type + "\"shape\":[1,1,1,1,1,1,1,1,1]"),
       "at byte 53: expected at most 8 dimensions, got more"},
      {of_tensor("\"data_offsets\":[0]"),
       "at byte 31: expected two numbers for \"data_offsets\", got 1"},
      {of_tensor("\"data_offsets\":[0,1,2]"),
       "at byte 34: expected two whole numbers for \"data_offsets\", got 2"},
      {of_tensor("\"data_offsets\":[0,-1]"),
       "at byte 32: expected two whole numbers for \"data_offsets\", got -1"},
      {of_tensor("\"data_offsets\":{}"),
       "at byte 29: expected an array for \"data_offsets\", got an object"},
      {of_tensor(type + "\"shape\":[4611686018427387904]," + offsets),
       "at byte 36: expected a shape whose bytes fit into 63 bits, got [4611686018427387904] for "
       "tensor \"a\""},
      {of_tensor(type + shape + "\"data_offsets\":[4,0]"),
       "at byte 55: expected offsets in order, got [4, 0] for tensor \"a\""},
      {of_tensor(type + shape + "\"data_offsets\":[0,8]", 8),
       "at byte 55: expected 4 bytes for f32[1], got 8 for tensor \"a\""},
      {of_tensor(type + shape + "\"data_offsets\":[4,8]", 8),
       "at byte 55: expected tensor \"a\" to begin at offset 0, where the one before ends, got 4"},
      {file_of("{\"a\":{" + good + "},\"b\":{" + good + "}}", 4),
       "at byte 108: expected tensor \"b\" to begin at offset 4, where the one before ends, got 0"},
      {of_tensor(good, 3),
       "at byte 55: tensor \"a\" ends at offset 4, but the file holds 3 bytes of data"},
      {of_tensor(good, 6),
       "at byte 66: expected the end of the file, got 2 bytes that belong to no tensor"},
      {file_of("{}", 1),
       "at byte 10: expected the end of the file, got 1 bytes that belong to no tensor"},
      {file_of("{\"a\":{\"dtype\":\"BOOL\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, 9),
       "at byte 63: expected a bool of 0 or 1, got 9"},
  });
}

TEST_CASE("safetensors: cut at every byte, every header byte changed, random damage",
          "[safetensors]") {
  const Bytes good = from_hex(golden::safetensors_all);
  REQUIRE(check_safetensors(good));
  for (std::size_t size = 0; size < good.size(); ++size) {
    INFO("cut at " << size);
    CHECK_FALSE(check_safetensors(std::span(good).first(size)));
  }
  const Bytes small = from_hex(golden::safetensors_names);
  for (std::size_t at = 0; at < 248; ++at) {
    Bytes bytes = small;
    for (int value = 0; value < 256; ++value) {
      bytes[at] = static_cast<std::byte>(value);
      check_safetensors(bytes);
    }
  }
  Random random{20240301};
  int accepted = 0;
  for (int i = 0; i < 10000; ++i) {
    accepted += check_safetensors(mutated(i % 2 ? good : small, random));
  }
  CHECK(accepted > 100);
  CHECK(accepted < 9000);
}

TEST_CASE("safetensors: a deeply nested header costs nothing", "[safetensors]") {
  const std::string deep = "{\"a\":{\"shape\":" + std::string(1'000'000, '[');
  CHECK(refusal(file_of(deep, 0)) ==
        "[safetensors] x: at byte 23: expected dimensions that are whole numbers of at least 0, "
        "got an array");
}

TEST_CASE("safetensors: what cannot be saved is refused by name", "[safetensors]") {
  const Tensor t = filled(DType::f32, {2});
  const auto refused = [](std::vector<std::pair<std::string, Tensor>> tensors,
                          std::map<std::string, std::string> metadata = {}) {
    return error_of([&] { format_safetensors({std::move(tensors), std::move(metadata)}); });
  };
  CHECK(refused({{"a", t}, {"b", t}, {"a", t}}) ==
        "[safetensors] expected names that differ, got \"a\" twice");
  CHECK(refused({{"__metadata__", t}}) ==
        "[safetensors] expected the name of a tensor, got \"__metadata__\", which the format keeps "
        "for itself");
  CHECK_THAT(refused({{"a\xff", t}}),
             StartsWith("[safetensors] expected a name in UTF-8, got \"a"));
  CHECK_THAT(refused({}, {{"\xc3", ""}}),
             StartsWith("[safetensors] expected a metadata key in UTF-8, got \""));
  CHECK_THAT(refused({}, {{"k", "\xc3"}}),
             StartsWith("[safetensors] expected a metadata value in UTF-8, got \""));
  CHECK(refused({{"a", Tensor()}}) ==
        "[safetensors] expected a tensor with data for \"a\", got an undefined tensor");
  CHECK(refused({{"a", make_meta_tensor(DType::f32, Dims{2}, cpu)}}) ==
        "[safetensors] expected a tensor with data for \"a\", got the meta tensor f32[2]");

  TemporaryFolder folder;
  save_safetensors(folder / "m", {{{"a", t}}, {}});
  CHECK_THROWS_AS(save_safetensors(folder / "m", {{{"a", Tensor()}}, {}}), Error);
  CHECK(same(load_safetensors(folder / "m").at("a"), t));
  CHECK(folder.files() == std::set<std::string>{"m"});
}
