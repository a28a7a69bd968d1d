// One tensor in a file: save and load by the end of the name.
#include "brrr/io/tensor_file.h"

#include <filesystem>

#include "brrr/io/safetensors.h"
#include "tests/harness/catch.h"
#include "tests/harness/compile_check.h"
#include "tests/harness/errors_expected.h"

using namespace brrr;
using namespace brrr::test;

namespace {

template <class... T>
concept Saves = requires(const T&... values) {
  save(values...);
};

// A mark for rematerialization has a name of its own: this spelling saves to a file.
static_assert(!Saves<Tensor>);
static_assert(!Saves<Tensor, Tensor>);
static_assert(!Saves<const char*>);
static_assert(Saves<Tensor, std::string>);

}  // namespace

TEST_CASE("a tensor is saved and loaded by the end of the file's name", "[io]") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "brrr_tensor_file";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const Tensor x = transpose(noise({3, 4}, 1), 0, 1);
  for (const char* name : {"x.npy", "x.safetensors"}) {
    INFO(name);
    const std::string path = (folder / name).string();
    save(x, path);
    CHECK(bits_of(load(path)) == bits_of(contiguous(x)));
  }
  const std::string two = (folder / "two.safetensors").string();
  save_safetensors(two, {.tensors = {{"a", x}, {"b", x}}, .metadata = {}});
  CHECK_THAT(error_of([&] { load(two); }), Catch::StartsWith("[load] expected one tensor in ") &&
                                               Catch::Contains("got 2; load_safetensors"));
  for (const char* name : {"weights.pt", "weights", ".npy"}) {
    const std::string path = (folder / name).string();
    INFO(name);
    const std::string expected = "expected a path that ends in .npy or .safetensors, got \"" + path;
    CHECK_THAT(error_of([&] { save(x, path); }), Catch::StartsWith("[save] " + expected));
    CHECK_THAT(error_of([&] { load(path); }), Catch::StartsWith("[load] " + expected));
    CHECK_FALSE(std::filesystem::exists(path));
  }
  std::filesystem::remove_all(folder);
}
