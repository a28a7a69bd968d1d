// Names of code addresses in this process: the modules of /proc/self/maps and the symbol tables of
// their ELF files. Nothing here runs in a signal handler.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <brrr/io/file_bytes.h>

namespace brrr::measure {

template <class Names>
bool starts_with_any(std::string_view text, const Names& names) {
  return std::ranges::any_of(names, [&](const auto& each) { return text.starts_with(each); });
}

// The functions of an ELF file of 64 bits, from .symtab, or from .dynsym where it is stripped.
class ElfFunctions {
 public:
  struct Function {
    std::uint64_t start = 0, size = 0;  // a virtual address of the file; 0: until the next one
    std::string name;                   // mangled
  };

  ElfFunctions() = default;
  // Throws an Error if the file is damaged, or of another kind.
  explicit ElfFunctions(const ByteSource& file);

  // The function at an offset of the file; null: none.
  const Function* at(std::uint64_t file_offset) const;
  const std::vector<Function>& all() const { return functions_; }
  // False: only exported functions are known.
  bool has_local_symbols() const { return has_symtab_; }

 private:
  struct Segment {
    std::uint64_t offset = 0, address = 0, bytes = 0;
  };

  std::vector<Segment> segments_;  // as the file maps them
  std::vector<Function> functions_;
  bool has_symtab_ = false;
};

// The function and module of an address.
struct Frame {
  std::string function = {};  // qualified_name(); "libfoo.so+0x1234" if the module does not name it
  std::string module = {};    // the base name of its file, "[vdso]"; empty: in no module
  bool named = false;

  bool operator==(const Frame&) const = default;
};

// The modules that are loaded at construction. Symbols of a module are read at the first lookup in
// it.
class LoadedCode {
 public:
  LoadedCode();

  Frame frame_at(std::uintptr_t address);
  std::string path_of(std::uintptr_t address) const;  // of its module; empty: in none
  bool has_module(std::string_view prefix) const;     // of its base name
  // The qualified names of all functions in the module that has the address.
  std::vector<std::string> functions_near(std::uintptr_t address);
  // Whether that module's file has a .symtab.
  bool has_local_symbols(std::uintptr_t address);

 private:
  struct Mapping {
    std::uintptr_t start = 0, end = 0;
    std::uint64_t offset = 0;
    std::string path;
  };

  const Mapping* mapping_of(std::uintptr_t address) const;
  const ElfFunctions& functions_of(const std::string& path);

  std::vector<Mapping> mappings_;              // executable ones, by rising address
  std::map<std::string, ElfFunctions> files_;  // by path
};

// "brrr::run_cpu" of "_ZN4brrr12_GLOBAL__N_17run_cpuERNS_4CallEPNS_6TensorEj": demangled, without
// parameters, template arguments, return type and unnamed namespaces.
std::string qualified_name(const std::string& mangled);

}  // namespace brrr::measure
