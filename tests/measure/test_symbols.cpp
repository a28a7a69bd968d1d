// Names of code addresses: of this process, and of a small ELF file, whole and damaged.
#include "brrr/measure/symbols.h"

#include <elf.h>

#include <algorithm>
#include <cstring>

#include "brrr/tensor/error.h"
#include "brrr/tensor/measure_library.h"
#include "tests/harness/catch.h"

using namespace brrr;
using measure::ElfFunctions;
using measure::LoadedCode;
using measure::qualified_name;

namespace {

[[gnu::noinline]] int function_of_this_test(int x) { return x * 3 + 1; }

template <class T>
std::uintptr_t address_of(T* function) {
  return reinterpret_cast<std::uintptr_t>(function);
}

// An ELF file with one segment, which is mapped from 0x1000 on, and two functions in it.
std::string small_elf() {
  struct File {
    Elf64_Ehdr header;
    Elf64_Phdr segment;
    Elf64_Shdr sections[3];  // none, .symtab, .strtab
    Elf64_Sym symbols[4];
    char names[32];
  } file{};
  std::memcpy(file.header.e_ident, ELFMAG, SELFMAG);
  file.header.e_ident[EI_CLASS] = ELFCLASS64;
  file.header.e_ident[EI_DATA] = ELFDATA2LSB;
  file.header.e_phoff = offsetof(File, segment);
  file.header.e_phnum = 1;
  file.header.e_phentsize = sizeof(Elf64_Phdr);
  file.header.e_shoff = offsetof(File, sections);
  file.header.e_shnum = 3;
  file.header.e_shentsize = sizeof(Elf64_Shdr);
  file.segment = {.p_type = PT_LOAD,
                  .p_flags = PF_X,
                  .p_offset = 0x100,
                  .p_vaddr = 0x1000,
                  .p_paddr = 0,
                  .p_filesz = 0x100,
                  .p_memsz = 0x100,
                  .p_align = 1};
  file.sections[1].sh_type = SHT_SYMTAB;
  file.sections[1].sh_offset = offsetof(File, symbols);
  file.sections[1].sh_size = sizeof file.symbols;
  file.sections[1].sh_link = 2;
  file.sections[2].sh_type = SHT_STRTAB;
  file.sections[2].sh_offset = offsetof(File, names);
  file.sections[2].sh_size = sizeof file.names;
  const auto function = [](unsigned name, std::uint64_t start, std::uint64_t size) {
    return Elf64_Sym{name, ELF64_ST_INFO(STB_LOCAL, STT_FUNC), 0, 1, start, size};
  };
  file.symbols[1] = function(1, 0x1010, 0x10);
  file.symbols[2] = function(7, 0x1040, 0);     // until the next function
  file.symbols[3] = function(1, 0x1010, 0x10);  // an object is no function
  file.symbols[3].st_info = ELF64_ST_INFO(STB_LOCAL, STT_OBJECT);
  std::memcpy(file.names, "\0first\0second", 14);
  return {reinterpret_cast<const char*>(&file), sizeof file};
}

ElfFunctions read(const std::string& bytes) {
  return ElfFunctions(ByteSource("test", "file", std::as_bytes(std::span(bytes))));
}

std::string name_at(const ElfFunctions& file, std::uint64_t offset) {
  const ElfFunctions::Function* const found = file.at(offset);
  return found ? found->name : "";
}

}  // namespace

TEST_CASE("a qualified name has no parameters, types and unnamed namespaces", "[symbols]") {
  CHECK(qualified_name("_ZN4brrr12_GLOBAL__N_17run_cpuERNS_4CallEPNS_6TensorEj") ==
        "brrr::run_cpu");
  CHECK(qualified_name("_ZN4brrr3addERKNS_6TensorES2_") == "brrr::add");
  CHECK(qualified_name("_ZN4brrr6TensorD1Ev") == "brrr::Tensor::~Tensor");
  CHECK(qualified_name("_ZNK4brrr11safetensors3fooB5cxx11Ev") == "brrr::safetensors::foo");
  // void brrr::fail<int>(int)
  CHECK(qualified_name("_ZN4brrr4failIiEEvT_") == "brrr::fail");
  // std::ostream& std::operator<< <char>(...), operator new, operator bool
  CHECK(qualified_name("_ZStlsISt11char_traitsIcEERSt13basic_ostreamIcT_ES5_PKc") ==
        "std::operator<<");
  CHECK(qualified_name("_Znwm") == "operator new");
  CHECK(qualified_name("_ZNKSt8functionIFvvEEclEv") == "std::function::operator()");
  CHECK(qualified_name("_ZNKSt8functionIFvvEEcvbEv") == "std::function::operator bool");
  CHECK(qualified_name("main") == "main");
  CHECK(qualified_name("") == "");
}

TEST_CASE("addresses of this process have names", "[symbols]") {
  LoadedCode code;
  const measure::Frame here = code.frame_at(address_of(&function_of_this_test) + 1);
  CHECK(function_of_this_test(1) == 4);
  CHECK(here.function == "function_of_this_test");
  CHECK(here.named);
  CHECK(here.module == "brrr_tests");
  const auto beside = code.functions_near(address_of(&open_measure_library));  // of brrr
  for (const char* const name : {"brrr::make_tensor", "brrr::run_cpu", "brrr::on_cpu::pointwise"}) {
    INFO(name);
    CHECK(std::ranges::count(beside, std::string(name)) > 0);
  }
  CHECK(code.has_local_symbols(address_of(&qualified_name)));
  CHECK(code.has_local_symbols(address_of(&open_measure_library)));
  const measure::Frame of_libc = code.frame_at(address_of(&std::strtoull) + 1);
  CHECK(of_libc.module.starts_with("libc"));
  const measure::Frame nowhere = code.frame_at(1);
  CHECK(nowhere.function == "0x1");
  CHECK(nowhere.module.empty());
  CHECK_FALSE(nowhere.named);
}

TEST_CASE("functions of an ELF file are found by offset", "[symbols]") {
  const ElfFunctions file = read(small_elf());
  CHECK(file.all().size() == 2);
  CHECK(file.has_local_symbols());
  CHECK(name_at(file, 0x110) == "first");
  CHECK(name_at(file, 0x11f) == "first");
  CHECK(name_at(file, 0x120) == "");  // between functions
  CHECK(name_at(file, 0x140) == "second");
  CHECK(name_at(file, 0x1ff) == "second");
  CHECK(name_at(file, 0x200) == "");  // behind the segment
  CHECK(name_at(file, 0x100) == "");
  CHECK(name_at(file, 0) == "");
}

TEST_CASE("a stripped ELF file has its exported functions", "[symbols]") {
  std::string stripped = small_elf();
  Elf64_Shdr table;
  const std::size_t at = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr) + sizeof table;
  std::memcpy(&table, stripped.data() + at, sizeof table);
  REQUIRE(table.sh_type == SHT_SYMTAB);
  table.sh_type = SHT_DYNSYM;
  std::memcpy(stripped.data() + at, &table, sizeof table);
  const ElfFunctions file = read(stripped);
  CHECK(file.all().size() == 2);
  CHECK_FALSE(file.has_local_symbols());
}

TEST_CASE("a damaged ELF file is refused, or has other functions", "[symbols]") {
  const std::string whole = small_elf();
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    INFO(bytes << " bytes");
    CHECK_THROWS_AS(read(whole.substr(0, bytes)), Error);
  }
  int refused = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    for (const char mask : {'\x01', '\x80', '\xff'}) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ mask);
      try {
        const ElfFunctions file = read(damaged);
        CHECK(file.all().size() <= 3);
        for (std::uint64_t offset = 0; offset < 0x300; ++offset) file.at(offset);
      } catch (const Error& error) {
        ++refused;
        CHECK(std::string(error.what()).starts_with("[test] file: "));
      }
    }
  }
  CHECK(refused > 50);
  CHECK_THROWS_WITH(read("#!/bin/sh\n" + std::string(100, ' ')),
                    Catch::Contains("expected an ELF file of 64 bits, little-endian"));
}
