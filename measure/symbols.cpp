#include "brrr/measure/symbols.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <tuple>

#include "brrr/tensor/error.h"

namespace brrr::measure {
namespace {

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// The end of an operator name such as "operator<" that starts at `from`; `from` if none starts
// there.
std::size_t end_of_operator(std::string_view text, std::size_t from) {
  constexpr std::string_view kWord = "operator";
  if (text.substr(from, kWord.size()) != kWord || (from > 0 && is_word(text[from - 1])))
    return from;
  std::size_t at = from + kWord.size();
  if (text.substr(at, 2) == "()" || text.substr(at, 2) == "[]") return at + 2;
  while (at < text.size() && std::string_view("<>=!+-*/%^&|~,").find(text[at]) != text.npos) ++at;
  return at == from + kWord.size() ? from : at;
}

// Removes text in <>, () and [], and "(anonymous namespace)::".
std::string without_groups(std::string_view text) {
  constexpr std::string_view kUnnamed = "(anonymous namespace)::";
  std::string result;
  int depth = 0;
  for (std::size_t i = 0; i < text.size();) {
    if (depth == 0 && text.substr(i, kUnnamed.size()) == kUnnamed) {
      i += kUnnamed.size();
      continue;
    }
    const std::size_t end = end_of_operator(text, i);
    const std::string_view part = text.substr(i, std::max<std::size_t>(end - i, 1));
    i += part.size();
    if (part == "<" || part == "(" || part == "[") ++depth;
    if (depth == 0) result += part;
    if (part == ">" || part == ")" || part == "]") depth = std::max(depth - 1, 0);
  }
  return result;
}

// Reads structs or text from a file. Checks the size of the file before it allocates.
template <class T>
std::vector<T> read_array(const ByteSource& file, std::uint64_t offset, std::uint64_t count) {
  if (count > file.size() / sizeof(T)) file.refuse(offset, "a table is longer than the file");
  std::vector<T> result(count);
  file.read(result.data(), offset, count * sizeof(T));
  return result;
}

bool is_elf64(const Elf64_Ehdr& header) {
  return std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
         header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_ident[EI_DATA] == ELFDATA2LSB &&
         header.e_phentsize == sizeof(Elf64_Phdr) && header.e_shentsize == sizeof(Elf64_Shdr);
}

std::vector<ElfFunctions::Function> read_functions(const ByteSource& file, const Elf64_Shdr& table,
                                                   const Elf64_Shdr& strings) {
  std::vector<ElfFunctions::Function> functions;
  const auto text = read_array<char>(file, strings.sh_offset, strings.sh_size);
  for (const Elf64_Sym& symbol :
       read_array<Elf64_Sym>(file, table.sh_offset, table.sh_size / sizeof(Elf64_Sym))) {
    const auto type = ELF64_ST_TYPE(symbol.st_info);
    if ((type != STT_FUNC && type != STT_GNU_IFUNC) || symbol.st_shndx == SHN_UNDEF ||
        symbol.st_name >= text.size())
      continue;
    const char* const name = text.data() + symbol.st_name;
    const std::size_t length = ::strnlen(name, text.size() - symbol.st_name);
    if (length > 0)
      functions.push_back({symbol.st_value, symbol.st_size, std::string(name, length)});
  }
  std::ranges::sort(functions, [](const auto& a, const auto& b) {
    return std::tie(a.start, a.size, a.name) < std::tie(b.start, b.size, b.name);
  });
  return functions;
}

}  // namespace

std::string qualified_name(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> demangled(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), std::free);
  if (!demangled) return mangled;
  std::string name = without_groups(demangled.get());
  while (name.ends_with(' ')) name.pop_back();
  for (const char* const qualifier : {" const", " &", " &&"}) {
    if (name.ends_with(qualifier)) name.resize(name.size() - std::strlen(qualifier));
  }
  while (name.ends_with(' ')) name.pop_back();
  // A return type ends at the last space, unless that is of "operator new" or "operator bool".
  const std::size_t converts = name.rfind("operator ");
  const std::size_t space = name.rfind(' ', converts == name.npos ? name.npos : converts);
  return space == name.npos ? name : name.substr(space + 1);
}

ElfFunctions::ElfFunctions(const ByteSource& file) {
  const Elf64_Ehdr header = read_array<Elf64_Ehdr>(file, 0, 1).front();
  if (!is_elf64(header)) file.refuse(0, "expected an ELF file of 64 bits, little-endian");
  const auto sections = read_array<Elf64_Shdr>(file, header.e_shoff, header.e_shnum);
  for (const Elf64_Phdr& each : read_array<Elf64_Phdr>(file, header.e_phoff, header.e_phnum)) {
    if (each.p_type == PT_LOAD) segments_.push_back({each.p_offset, each.p_vaddr, each.p_filesz});
  }
  for (const unsigned wanted : {SHT_SYMTAB, SHT_DYNSYM}) {
    for (const Elf64_Shdr& each : sections) {
      if (each.sh_type != wanted || each.sh_link >= sections.size() || !functions_.empty())
        continue;
      functions_ = read_functions(file, each, sections[each.sh_link]);
      has_symtab_ = wanted == SHT_SYMTAB && !functions_.empty();
    }
  }
}

const ElfFunctions::Function* ElfFunctions::at(std::uint64_t file_offset) const {
  for (const Segment& segment : segments_) {
    if (file_offset < segment.offset || file_offset - segment.offset >= segment.bytes) continue;
    const std::uint64_t address = file_offset - segment.offset + segment.address;
    const auto after = std::ranges::upper_bound(functions_, address, {}, &Function::start);
    if (after == functions_.begin()) return nullptr;
    const Function& found = *std::prev(after);
    return found.size == 0 || address - found.start < found.size ? &found : nullptr;
  }
  return nullptr;
}

LoadedCode::LoadedCode() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    // 7f00-7f10 r-xp 00001000 08:01 123    /usr/lib/libfoo.so
    Mapping mapping;
    std::string range, rights, offset, device, node;
    std::istringstream words(line);
    words >> range >> rights >> offset >> device >> node >> std::ws;
    std::getline(words, mapping.path);
    const std::size_t dash = range.find('-');
    if (dash == range.npos || rights.find('x') == rights.npos) continue;
    mapping.start = std::strtoull(range.c_str(), nullptr, 16);
    mapping.end = std::strtoull(range.c_str() + dash + 1, nullptr, 16);
    mapping.offset = std::strtoull(offset.c_str(), nullptr, 16);
    mappings_.push_back(std::move(mapping));
  }
}

const LoadedCode::Mapping* LoadedCode::mapping_of(std::uintptr_t address) const {
  const auto after = std::ranges::upper_bound(mappings_, address, {}, &Mapping::start);
  if (after == mappings_.begin()) return nullptr;
  const Mapping& found = *std::prev(after);
  return address < found.end ? &found : nullptr;
}

const ElfFunctions& LoadedCode::functions_of(const std::string& path) {
  const auto known = files_.find(path);
  if (known != files_.end()) return known->second;
  ElfFunctions& functions = files_[path];
  try {
    functions = ElfFunctions(ByteSource::open("symbols", path));
  } catch (const Error&) {
    // No such file: "[vdso]", "/tmp/kernel.so (deleted)".
  }
  return functions;
}

Frame LoadedCode::frame_at(std::uintptr_t address) {
  const Mapping* const mapping = mapping_of(address);
  if (!mapping) return {.function = fmt::format("{:#x}", address)};
  constexpr std::string_view kDeleted = " (deleted)";
  std::string path = mapping->path;
  if (path.ends_with(kDeleted)) path.resize(path.size() - kDeleted.size());
  Frame frame{.module = path.substr(path.rfind('/') + 1)};
  const std::uint64_t offset = address - mapping->start + mapping->offset;
  if (const ElfFunctions::Function* const function = functions_of(mapping->path).at(offset)) {
    frame.function = qualified_name(function->name);
    frame.named = true;
    return frame;
  }
  // The loader knows the exports of modules whose file is gone, and of the vDSO.
  Dl_info info{};
  if (files_.at(mapping->path).all().empty() &&
      ::dladdr(std::bit_cast<void*>(address), &info) != 0 && info.dli_sname) {
    frame.function = qualified_name(info.dli_sname);
    frame.named = true;
    return frame;
  }
  frame.function = fmt::format("{}+{:#x}", frame.module.empty() ? "code" : frame.module, offset);
  return frame;
}

bool LoadedCode::has_module(std::string_view prefix) const {
  return std::ranges::any_of(mappings_, [&](const Mapping& each) {
    return std::string_view(each.path).substr(each.path.rfind('/') + 1).starts_with(prefix);
  });
}

std::string LoadedCode::path_of(std::uintptr_t address) const {
  const Mapping* const mapping = mapping_of(address);
  return mapping ? mapping->path : std::string();
}

std::vector<std::string> LoadedCode::functions_near(std::uintptr_t address) {
  std::vector<std::string> names;
  const Mapping* const mapping = mapping_of(address);
  if (!mapping) return names;
  for (const ElfFunctions::Function& function : functions_of(mapping->path).all())
    names.push_back(qualified_name(function.name));
  return names;
}

bool LoadedCode::has_local_symbols(std::uintptr_t address) {
  const Mapping* const mapping = mapping_of(address);
  return mapping && functions_of(mapping->path).has_local_symbols();
}

}  // namespace brrr::measure
