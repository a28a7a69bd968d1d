#include "tests/harness/cubin.h"

#include <cstdint>
#include <cstring>
#include <map>

namespace brrr::testing {
namespace {

struct ElfHeader {
  unsigned char ident[16];
  std::uint16_t type, machine;
  std::uint32_t version;
  std::uint64_t entry, program_offset, section_offset;
  std::uint32_t flags;
  std::uint16_t header_size, program_size, programs, section_size, sections, names;
};
struct Section {
  std::uint32_t name, type;
  std::uint64_t flags, address, offset, size;
  std::uint32_t link, info;
  std::uint64_t alignment, entry_size;
};
struct Symbol {
  std::uint32_t name;
  unsigned char info, other;
  std::uint16_t section;
  std::uint64_t value, size;
};

// Attributes of .nv.info: a record is a format, a number, a length, and then a symbol and a value.
constexpr std::uint8_t kSized = 4, kRegisters = 0x2f, kFrame = 0x11;

template <class T>
bool read_at(std::string_view bytes, std::uint64_t at, T& value) {
  if (at > bytes.size() || bytes.size() - at < sizeof(T)) return false;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return true;
}

std::string name_at(std::string_view bytes, std::uint64_t at) {
  if (at >= bytes.size()) return "";
  return std::string(bytes.substr(at, bytes.find('\0', at) - at));
}

}  // namespace

std::vector<KernelResources> resources_of(std::string_view cubin) {
  ElfHeader header;
  if (!read_at(cubin, 0, header) || std::memcmp(header.ident, "\177ELF", 4) != 0) return {};
  std::vector<Section> sections(header.sections);
  for (std::size_t i = 0; i < sections.size(); ++i) {
    if (!read_at(cubin, header.section_offset + i * sizeof(Section), sections[i])) return {};
  }
  if (header.names >= sections.size()) return {};
  const std::uint64_t names = sections[header.names].offset;
  std::map<std::string, KernelResources> kernels;
  std::map<std::string, int> shared;
  const Section* info = nullptr;
  const Section* symbols = nullptr;
  for (const Section& section : sections) {
    const std::string name = name_at(cubin, names + section.name);
    if (name.starts_with(".text.")) kernels[name.substr(6)].entry = name.substr(6);
    if (name.starts_with(".nv.shared.")) shared[name.substr(11)] = static_cast<int>(section.size);
    if (name == ".nv.info") info = &section;
    if (section.type == 2) symbols = &section;
  }
  if (info && symbols && symbols->link < sections.size()) {
    for (std::uint64_t at = info->offset; at + 4 <= info->offset + info->size;) {
      std::uint8_t format, attribute;
      std::uint16_t size;
      std::uint32_t symbol_number, value;
      if (!read_at(cubin, at, format) || !read_at(cubin, at + 1, attribute) ||
          !read_at(cubin, at + 2, size))
        break;
      if (format == kSized && (attribute == kRegisters || attribute == kFrame) &&
          read_at(cubin, at + 4, symbol_number) && read_at(cubin, at + 8, value)) {
        Symbol symbol;
        if (!read_at(cubin, symbols->offset + symbol_number * sizeof(Symbol), symbol)) break;
        const auto kernel =
            kernels.find(name_at(cubin, sections[symbols->link].offset + symbol.name));
        if (kernel != kernels.end()) {
          (attribute == kRegisters ? kernel->second.registers : kernel->second.local_bytes) =
              static_cast<int>(value);
        }
      }
      at += 4u + (format == kSized ? size : 0u);
    }
  }
  std::vector<KernelResources> result;
  for (auto& [name, kernel] : kernels) {
    if (const auto found = shared.find(name); found != shared.end())
      kernel.shared_bytes = found->second;
    result.push_back(kernel);
  }
  return result;
}

}  // namespace brrr::testing
