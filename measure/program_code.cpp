#include "brrr/measure/program_code.h"

#include <sys/auxv.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "brrr/graph/call_site.h"
#include "brrr/measure/symbols.h"

namespace brrr::measure {
namespace {

// Whose code addresses are. A library that is neither brrr's nor the system's may be either's, as
// the driver of a GPU is: what called it decides.
class Code {
 public:
  enum class Of : std::uint8_t { program, brrr, library, system };

  Of at(std::uintptr_t address) {
    const auto [at, is_new] = known_.try_emplace(address);
    if (is_new) at->second = owner_of(address);
    return at->second;
  }
  // Of the innermost function that is no header's.
  std::string function_of(std::span<const std::uintptr_t> stack) {
    constexpr std::array<std::string_view, 3> kHeaders = {"std::", "__gnu_cxx::", "brrr::"};
    for (const std::uintptr_t address : stack) {
      std::string name = code_.frame_at(address).function;
      if (!starts_with_any(name, kHeaders)) return name;
    }
    return code_.frame_at(stack.front()).function;
  }

 private:
  Of owner_of(std::uintptr_t address) {
    constexpr std::array<std::string_view, 3> kPaths = {"/lib", "/usr/lib", "["};
    constexpr std::array<std::string_view, 4> kNames = {"std::", "__gnu_cxx::", "_start",
                                                        "__libc_start"};
    const Frame frame = code_.frame_at(address);
    // The library may have the C++ runtime in it, which the program calls too.
    if (frame.module.starts_with(kLibrary))
      return frame.named && !frame.function.starts_with("brrr") ? Of::system : Of::brrr;
    const std::string path = code_.path_of(address);
    // Beside brrr's shared library all of the program's file is its own: its lambdas are inlined
    // into templates of brrr's and the standard library's headers, which have the name.
    if (is_shared_ && path == program_) return Of::program;
    if (frame.function.starts_with("brrr")) return Of::brrr;
    if (frame.module.empty() || starts_with_any(path, kPaths) ||
        starts_with_any(frame.function, kNames))
      return Of::system;
    return path == program_ ? Of::program : Of::library;
  }

  static constexpr std::string_view kLibrary = "libbrrr";
  LoadedCode code_;
  bool is_shared_ = code_.has_module(kLibrary);
  std::string program_ = code_.path_of(::getauxval(AT_ENTRY));
  std::map<std::uintptr_t, Of> known_;
};

// All at once: it starts a program. Empty where there is no line table.
std::vector<std::string> described(std::span<const graph::CallSite> sites) {
  std::vector<std::string> lines = graph::describe(sites);
  for (std::string& line : lines) {
    if (line.find(':') == line.npos || line.find("+0x") != line.npos) line.clear();
  }
  return lines;
}

}  // namespace

std::vector<Caller> callers_in(std::span<const std::span<const std::uintptr_t>> stacks) {
  Code code;
  std::vector<Caller> callers;
  std::vector<graph::CallSite> sites;
  for (const std::span<const std::uintptr_t>& stack : stacks) {
    const auto owner = [&](std::uintptr_t address) { return code.at(address); };
    const auto program = std::ranges::find(stack, Code::Of::program, owner);
    const auto called = std::ranges::find(std::span(stack.begin(), program), Code::Of::brrr, owner);
    Caller& caller = callers.emplace_back();
    caller.calls_brrr = called != program;
    // The program's own libraries have lines too.
    const auto own = caller.calls_brrr ? program : std::ranges::find_if(stack, [&](auto address) {
      return owner(address) == Code::Of::program || owner(address) == Code::Of::library;
    });
    const auto from = stack.subspan(static_cast<std::size_t>(own - stack.begin()));
    if (!from.empty()) caller.function = code.function_of(from);
    sites.push_back(graph::CallSite::of(from));
  }
  const std::vector<std::string> lines = described(sites);
  for (std::size_t i = 0; i < callers.size(); ++i) {
    if (!callers[i].function.empty()) callers[i].line = lines[i];
  }
  return callers;
}

std::vector<std::string> lines_of(std::span<const core::LaunchCost> launches) {
  std::vector<graph::CallSite> sites;
  for (const core::LaunchCost& each : launches) sites.push_back(each.site);
  return described(sites);
}

}  // namespace brrr::measure
