// Registers, shared memory and spills of the kernels in a cubin, which is an ELF file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace brrr::testing {

struct KernelResources {
  std::string entry;
  int registers = 0;
  int shared_bytes = 0;
  int local_bytes = 0;  // stack and spills, a thread
};
std::vector<KernelResources> resources_of(std::string_view cubin);  // empty: this is no cubin

}  // namespace brrr::testing
