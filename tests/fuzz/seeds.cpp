// Where fuzzing starts from: writes files to DIR/npy, DIR/safetensors and DIR/idx.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/golden/files.h"

namespace {

struct Seed {
  const char* format;
  const char* digits;
};

constexpr Seed kSeeds[] = {
    {"npy", golden::npy_f4},
    {"npy", golden::npy_f8},
    {"npy", golden::npy_f2},
    {"npy", golden::npy_i4},
    {"npy", golden::npy_i8},
    {"npy", golden::npy_b1},
    {"npy", golden::npy_scalar},
    {"npy", golden::npy_vector},
    {"npy", golden::npy_empty},
    {"npy", golden::npy_eight},
    {"npy", golden::npy_fortran},
    {"npy", golden::npy_version2},
    {"npy", golden::npy_version3},
    {"npy", golden::npy_big_endian},
    {"npy", golden::npy_bytes},
    {"npy", golden::npy_fields},
    {"npy", golden::npy_bfloat16},
    {"safetensors", golden::safetensors_all},
    {"safetensors", golden::safetensors_names},
    {"safetensors", golden::safetensors_empty},
    {"idx", "0000080100000003618062"},
    {"idx", "00000c0200000001000000020000010080000000"},
    {"idx", "00000e00bff8000000000000"},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_seeds DIR\n");
    return 2;
  }
  int number = 0;
  for (const Seed& seed : kSeeds) {
    const std::filesystem::path folder = std::filesystem::path(argv[1]) / seed.format;
    std::filesystem::create_directories(folder);
    std::ofstream out(folder / ("seed-" + std::to_string(number++)), std::ios::binary);
    const std::string digits = seed.digits;
    for (std::size_t i = 0; i + 1 < digits.size(); i += 2) {
      out.put(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
    }
    if (!out.flush()) {
      std::fprintf(stderr, "fuzz_seeds: cannot write to %s\n", folder.c_str());
      return 1;
    }
  }
}
