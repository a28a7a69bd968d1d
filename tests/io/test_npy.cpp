#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cmath>

#include "brrr/io/npy.h"
#include "tests/golden/files.h"
#include "tests/harness/catch.h"
#include "tests/harness/interchange.h"

using namespace brrr;
using namespace interchange;

namespace {

// A version 1 file with this header and this many bytes of data.
Bytes npy_file(const std::string& header, std::size_t data_bytes, char fill = 0) {
  std::string text = "\x93NUMPY";
  text += '\1';
  text += '\0';
  text += static_cast<char>(header.size() & 255);
  text += static_cast<char>(header.size() >> 8);
  return to_bytes(text + header + std::string(data_bytes, fill));
}

std::string refusal(const Bytes& bytes) {
  return error_of([&] { parse_npy(bytes, "x.npy"); });
}

template <class T>
std::vector<T> values_of(const Tensor& tensor) {
  REQUIRE(tensor.dtype() == dtype_of<T>);
  std::vector<T> values(static_cast<std::size_t>(tensor.numel()));
  gather_bytes(values.data(), tensor);
  return values;
}

}  // namespace

TEST_CASE("npy: every dtype and layout round-trips bit for bit", "[npy]") {
  TemporaryFolder folder;
  for (const DType dtype : kAllDTypes) {
    if (dtype == DType::bf16) continue;
    for (const Tensor& tensor : layouts(dtype)) {
      INFO(tensor.describe() << " strides " << to_string(tensor.strides()));
      const Bytes bytes = format_npy(tensor);
      CHECK((bytes.size() - tensor.bytes()) % 64 == 0);
      const Tensor back = parse_npy(bytes);
      CHECK(same(tensor, back));
      CHECK(back.is_contiguous());
      save_npy(folder / "t.npy", tensor);
      CHECK(read_file(folder / "t.npy") == bytes);
      CHECK(same(tensor, load_npy(folder / "t.npy")));
    }
  }
  CHECK(folder.files() == std::set<std::string>{"t.npy"});
}

TEST_CASE("npy: files that NumPy wrote", "[npy]") {
  const auto read = [](const char* hex) { return parse_npy(from_hex(hex)); };
  const Dims two_three{2, 3};

  const Tensor f4 = read(golden::npy_f4);
  CHECK(Dims(f4.shape()) == two_three);
  CHECK(values_of<float>(f4) == std::vector<float>{0, -1.5f, 2, 3.25f, -0.0f, 65504});
  CHECK(std::signbit(f4.data<float>()[4]));
  CHECK(values_of<double>(read(golden::npy_f8)) == std::vector<double>{0, -1.5, 2, 3.25, 0, 65504});
  const Tensor f2 = read(golden::npy_f2);
  CHECK(static_cast<float>(f2.data<Float16>()[1]) == -1.5f);
  CHECK(static_cast<float>(f2.data<Float16>()[5]) == 65504);
  CHECK(values_of<std::int32_t>(read(golden::npy_i4)) ==
        std::vector<std::int32_t>{0, -1, 2, 3, -4, INT32_MAX});
  CHECK(values_of<std::int64_t>(read(golden::npy_i8)) ==
        std::vector<std::int64_t>{0, -1, 2, 3, -4, INT32_MAX});
  const Tensor b1 = read(golden::npy_b1);
  CHECK(b1.dtype() == DType::boolean);
  CHECK(b1.data<bool>()[0]);
  CHECK_FALSE(b1.data<bool>()[1]);

  CHECK(read(golden::npy_scalar).rank() == 0);
  CHECK(values_of<float>(read(golden::npy_scalar)) == std::vector<float>{2.5f});
  CHECK(values_of<std::int32_t>(read(golden::npy_vector)) == std::vector<std::int32_t>{1, 2, 3});
  CHECK(Dims(read(golden::npy_empty).shape()) == Dims{2, 0, 3});
  CHECK(Dims(read(golden::npy_eight).shape()) == Dims{1, 1, 2, 1, 1, 2, 1, 1});
  CHECK(values_of<float>(read(golden::npy_version2)) == std::vector<float>{0, 1, 2});
  CHECK(values_of<float>(read(golden::npy_version3)) == std::vector<float>{0, 1, 2});

  SECTION("and what we write of the same values is the same file") {
    for (const char* hex : {golden::npy_f4, golden::npy_f8, golden::npy_f2, golden::npy_i4,
                            golden::npy_i8, golden::npy_b1, golden::npy_scalar, golden::npy_vector,
                            golden::npy_empty, golden::npy_eight}) {
      CHECK(format_npy(read(hex)) == from_hex(hex));
    }
  }
}

TEST_CASE("npy: Fortran's order is a transposed view", "[npy]") {
  const Tensor tensor = parse_npy(from_hex(golden::npy_fortran));
  CHECK(Dims(tensor.shape()) == Dims{2, 3, 4});
  CHECK(Dims(tensor.strides()) == Dims{1, 2, 6});
  CHECK_FALSE(tensor.is_contiguous());
  std::vector<std::int32_t> counted(24);
  for (int i = 0; i < 24; ++i) counted[static_cast<std::size_t>(i)] = i;
  CHECK(values_of<std::int32_t>(tensor) == counted);
}

TEST_CASE("npy: Fortran's order has every rank's strides", "[npy]") {
  for (const Dims& shape :
       {Dims{3}, Dims{3, 2}, Dims{2, 3, 4, 5}, Dims{3, 2, 1, 4, 5}, Dims{2, 3, 1, 2, 4, 1, 3, 2}}) {
    INFO(to_string(shape));
    // The file has the first index fastest; each element is its number in the usual order.
    std::size_t count = 1;
    for (const std::int64_t d : shape) count *= static_cast<std::size_t>(d);
    std::vector<std::int32_t> counted(count), stored;
    for (std::size_t i = 0; i < counted.size(); ++i) {
      counted[i] = static_cast<std::int32_t>(i);
      auto rest = static_cast<std::int64_t>(i);
      std::int64_t number = 0;
      for (int d = 0; d < shape.size(); ++d) {
        number = number * shape[d] + rest % shape[d];
        rest /= shape[d];
      }
      stored.push_back(static_cast<std::int32_t>(number));
    }
    std::string text = "{'descr': '<i4', 'fortran_order': True, 'shape': (";
    for (const std::int64_t d : shape) text += std::to_string(d) + ",";
    Bytes bytes = npy_file(text + ")}", stored.size() * 4);
    std::memcpy(bytes.data() + bytes.size() - stored.size() * 4, stored.data(), stored.size() * 4);
    const Tensor tensor = parse_npy(bytes);
    CHECK(Dims(tensor.shape()) == shape);
    CHECK(values_of<std::int32_t>(tensor) == counted);
    std::int64_t stride = 1;
    for (int d = 0; d < shape.size(); stride *= shape[d++])
      CHECK(Dims(tensor.strides())[d] == stride);
  }
}

TEST_CASE("npy: headers that other writers may make", "[npy]") {
  const auto shape_of = [](const std::string& header, std::size_t bytes) {
    return Dims(parse_npy(npy_file(header, bytes)).shape());
  };
  CHECK(shape_of("{\"shape\":(2,),\"fortran_order\":False,\"descr\":\"<f4\"}", 8) == Dims{2});
  CHECK(shape_of("{'descr':'<f4','fortran_order':True,'shape':( 2 , 3 ,) , } \n", 24) ==
        Dims{2, 3});
  CHECK(shape_of("{'descr': '<i8', 'fortran_order': False, 'shape': (2L, 1L), }", 16) ==
        Dims{2, 1});
  CHECK(shape_of("{'descr': '<b1', 'fortran_order': True, 'shape': (), }", 1) == Dims{});
}

namespace {

struct Damaged {
  Bytes bytes;
  std::string expected;
};

void check_refusals(const std::vector<Damaged>& files) {
  for (const Damaged& file : files) CHECK(refusal(file.bytes) == "[npy] x.npy: " + file.expected);
}

}  // namespace

TEST_CASE("npy: a damaged file is refused with the place and the reason", "[npy]") {
  const Bytes good = from_hex(golden::npy_f4);
  const auto with = [&](std::size_t at, int value) {
    Bytes bytes = good;
    bytes[at] = static_cast<std::byte>(value);
    return bytes;
  };
  Bytes longer = good;
  longer.resize(good.size() + 3);
  check_refusals({
      {{}, "at byte 0: expected a .npy file of at least 10 bytes, got 0"},
      {to_bytes("\x93NUMPY"), "at byte 6: expected a .npy file of at least 10 bytes, got 6"},
      {with(0, 'x'), "at byte 0: expected the mark of a .npy file, \"\\x93NUMPY\""},
      {with(3, 'x'), "at byte 3: expected the mark of a .npy file, \"\\x93NUMPY\""},
      {with(6, 4), "at byte 6: expected version 1.0, 2.0 or 3.0, got 4.0"},
      {with(6, 0), "at byte 6: expected version 1.0, 2.0 or 3.0, got 0.0"},
      {with(7, 9), "at byte 6: expected version 1.0, 2.0 or 3.0, got 1.9"},
      {with(9, 255), "at byte 8: expected a header of 65398 bytes, but the file ends at byte 152"},
      {Bytes(good.begin(), good.end() - 1),
       "at byte 128: expected 24 bytes of f32[2, 3], but the file ends at byte 151"},
      {longer, "at byte 152: expected the end of the file, got 3 more bytes"},
      {npy_file("", 0), "at byte 10: expected '{' to open the header, got the end of the header"},
      {npy_file("[", 0), "at byte 10: expected '{' to open the header, got \"[\""},
      {npy_file("{", 0), "at byte 11: expected a string, got the end of the header"},
      {npy_file("{}", 0), "at byte 12: the key 'descr' is missing"},
      {npy_file("{'descr': '<f4'}", 0), "at byte 26: the key 'fortran_order' is missing"},
      {npy_file("{'descr': '<f4', 'fortran_order': True}", 0),
       "at byte 49: the key 'shape' is missing"},
      {npy_file("{'descr", 0), "at byte 11: the string has no end"},
      {npy_file("{'descr' '<f4'}", 0), "at byte 19: expected ':' after the key, got \"'\""},
      {npy_file("{'descr': 4}", 0), "at byte 20: expected a string, got \"4\""},
      {npy_file("{'color': 4}", 0),
       "at byte 11: expected the key 'descr', 'fortran_order' or 'shape', got \"color\""},
      {npy_file("{'descr': '<f4', 'descr': '<f4'}", 0),
       "at byte 27: the key \"descr\" is there twice"},
      {npy_file("{'descr': '<f4' 'shape': ()}", 0),
       "at byte 26: expected '}' or a comma after the value, got \"'\""},
      {npy_file("{'fortran_order': false}", 0), "at byte 28: expected True or False, got \"f\""},
      {npy_file("{'fortran_order': 1}", 0), "at byte 28: expected True or False, got \"1\""},
      {npy_file("{'descr': '<f4'}x", 0), "at byte 26: the key 'fortran_order' is missing"},
  });
}

TEST_CASE("npy: a damaged shape or type is refused with the place and the reason", "[npy]") {
  const std::string start = "{'descr': '<f4', 'fortran_order': False, 'shape': ";
  const std::string known = "'<f4', '<f8', '<f2', '<i4', '<i8' or '|b1'";
  check_refusals({
      {npy_file(start + "()}x", 4),
       "at byte 63: expected spaces to the end of the header, got \"x\""},
      {npy_file(start + "2", 8), "at byte 60: expected '(' to open the shape, got \"2\""},
      {npy_file(start + "(2)}", 8), "at byte 60: expected a comma after the only dimension"},
      {npy_file(start + "(2 3)}", 8), "at byte 63: expected ',' or ')' in the shape, got \"3\""},
      {npy_file(start + "(-2,)}", 8), "at byte 61: expected a dimension of at least 0, got \"-\""},
      {npy_file(start + "(,)}", 8), "at byte 61: expected a dimension of at least 0, got \",\""},
      {npy_file(start + "(2", 8),
       "at byte 62: expected ',' or ')' in the shape, got the end of the header"},
      {npy_file(start + "(9223372036854775808,)}", 8),
       "at byte 61: expected a dimension that fits into 63 bits"},
      {npy_file(start + "(9223372036854775807,)}", 8),
       "at byte 60: expected a shape whose bytes fit into 63 bits, got [9223372036854775807]"},
      {npy_file(start + "(0, 4611686018427387904, 4)}", 0),
       "at byte 60: expected a shape whose bytes fit into 63 bits, got [0, 4611686018427387904, "
       "4]"},
      {npy_file(start + "(1,1,1,1,1,1,1,1,1)}", 4),
       "at byte 60: expected at most 8 dimensions, got more"},
      {npy_file(start + "(1000000000000,)}", 8),
       "at byte 77: expected 4000000000000 bytes of f32[1000000000000], but the file ends at byte "
       "85"},
      {npy_file("{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }", 3, 2),
       "at byte 67: expected a bool of 0 or 1, got 2"},
      {from_hex(golden::npy_big_endian),
       "at byte 20: expected a dtype of " + known +
           ", got \">f4\"; save the array in little-endian order"},
      {from_hex(golden::npy_bytes), "at byte 20: expected a dtype of " + known + ", got \"|u1\""},
      {from_hex(golden::npy_bfloat16),
       "at byte 20: expected a dtype of " + known + ", got \"<V2\""},
      {from_hex(golden::npy_fields),
       "at byte 20: expected a dtype of " + known + ", got one with fields"},
  });
}

TEST_CASE("npy: cut at every byte, every header byte changed, random damage", "[npy]") {
  const Bytes good = from_hex(golden::npy_i4);
  REQUIRE(check_npy(good));
  for (std::size_t size = 0; size < good.size(); ++size) {
    INFO("cut at " << size);
    CHECK_FALSE(check_npy(std::span(good).first(size)));
  }
  for (std::size_t at = 0; at < 128; ++at) {
    Bytes bytes = good;
    for (int value = 0; value < 256; ++value) {
      bytes[at] = static_cast<std::byte>(value);
      check_npy(bytes);
    }
  }
  Random random{20240229};
  int accepted = 0;
  for (const char* hex : {golden::npy_f4, golden::npy_fortran, golden::npy_eight, golden::npy_b1,
                          golden::npy_version2}) {
    for (int i = 0; i < 4000; ++i) accepted += check_npy(mutated(from_hex(hex), random));
  }
  CHECK(accepted > 100);    // changed data and spaces still make a file
  CHECK(accepted < 19000);  // most damage does not
}

TEST_CASE("npy: what cannot be saved is refused by name", "[npy]") {
  CHECK(error_of([] {
          format_npy(filled(DType::bf16, {2, 3}));
        }) ==
        "[npy] expected f32, f64, f16, i32, i64 or bool, got bf16[2, 3]: the format has no bf16; "
        "convert to f32 or use save_safetensors");
  CHECK(error_of([] { format_npy(make_meta_tensor(DType::f32, Dims{2}, cpu)); }) ==
        "[npy] expected a tensor with data, got the meta tensor f32[2]");
  CHECK(error_of([] { format_npy(Tensor()); }) ==
        "[npy] expected a tensor with data, got an undefined tensor");
}

TEST_CASE("npy: failures of the system leave the old file and nothing else", "[npy]") {
  TemporaryFolder folder;
  const Tensor tensor = filled(DType::f32, {64, 64});
  const std::string path = folder / "t.npy";
  CHECK(error_of([&] { load_npy(path); }) ==
        "[npy] " + path + ": cannot open: No such file or directory");
  CHECK(error_of([&] { save_npy(folder / "no/t.npy", tensor); }) ==
        "[npy] " + (folder / "no/t.npy") +
            ": cannot create a file there: No such file or directory");
  const std::string dot = folder / ".";
  CHECK(error_of([&] { load_npy(dot); }) == "[npy] " + dot + ": expected a regular file");
  CHECK(error_of([&] { save_npy(dot, tensor); }) ==
        "[npy] " + dot + ": expected a regular file to write to");
  CHECK(error_of([&] { save_npy("/dev/null", tensor); }) ==
        "[npy] /dev/null: expected a regular file to write to");
  const std::string pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(error_of([&] { load_npy(pipe); }) == "[npy] " + pipe + ": expected a regular file");
  std::filesystem::remove(pipe);

  save_npy(path, filled(DType::i32, {3}));
  const Bytes before = read_file(path);
  rlimit limit;
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, limit.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const std::string error = error_of([&] { save_npy(path, tensor); });
  ::setrlimit(RLIMIT_FSIZE, &limit);
  ::signal(SIGXFSZ, handler);
  CHECK(error == "[npy] " + path + ": cannot write: File too large");
  CHECK(read_file(path) == before);
  CHECK(folder.files() == std::set<std::string>{"t.npy"});
  save_npy(path, tensor);
  CHECK(same(load_npy(path), tensor));
}
