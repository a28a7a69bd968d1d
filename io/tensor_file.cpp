#include "brrr/io/tensor_file.h"

#include <filesystem>

#include "brrr/io/npy.h"
#include "brrr/io/safetensors.h"
#include "brrr/tensor/fail.h"

namespace brrr {
namespace {

bool is_npy(const char* function, const std::string& path) {
  const std::string end = std::filesystem::path(path).extension().string();
  if (end == ".npy") return true;
  if (end == ".safetensors") return false;
  fail("[{}] expected a path that ends in .npy or .safetensors, got \"{}\"", function, path);
}

}  // namespace

void save(const Tensor& tensor, const std::string& path) {
  if (is_npy("save", path)) return save_npy(path, tensor);
  save_safetensors(path, {.tensors = {{"tensor", tensor}}, .metadata = {}});
}

Tensor load(const std::string& path) {
  if (is_npy("load", path)) return load_npy(path);
  const SafeTensors file = load_safetensors(path);
  if (file.tensors.size() == 1) return file.tensors[0].second;
  fail("[load] expected one tensor in {}, got {}; load_safetensors reads them all", path,
       file.tensors.size());
}

}  // namespace brrr
