#include "brrr/graph/call_site.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>

#include "brrr/tensor/error.h"

namespace brrr::graph {
namespace {

// A loaded object: its address range and file.
struct Object {
  std::uintptr_t low = 0, high = 0, base = 0;
  std::string path;
};

// The path of the executable, whose name in the loader's list is empty.
const std::string& program() {
  static const std::string path = [] {
    char text[4096];
    const ssize_t length = ::readlink("/proc/self/exe", text, sizeof text);
    return std::string(text, length > 0 ? static_cast<std::size_t>(length) : 0);
  }();
  return path;
}

// The object that an address is in.
Object object_at(const void* address) {
  dl_find_object found{};
  if (_dl_find_object(const_cast<void*>(address), &found) != 0) return {0, 0, 0, program()};
  const link_map& map = *found.dlfo_link_map;
  return {reinterpret_cast<std::uintptr_t>(found.dlfo_map_start),
          reinterpret_cast<std::uintptr_t>(found.dlfo_map_end), map.l_addr,
          *map.l_name ? map.l_name : program()};
}

const Object& library() {
  static const Object here = object_at(reinterpret_cast<const void*>(&CallSite::here));
  return here;
}

// A static library is part of the program: its frames are recognized by name, in describe().
bool is_shared() {
  static const bool shared = library().path != program();
  return shared;
}

struct SourceLocation {
  std::string function, line;  // line is "" when nothing is known
  std::string object;
};

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 && text ? text.get() : name;
}

// "symbol+0x2f" of an address, or "object+0x2f" where no symbol precedes it.
std::string from_symbols(const void* address, const Object& object) {
  Dl_info info{};
  if (!dladdr(address, &info) || !info.dli_sname) {
    return fmt::format("{}+{:#x}", object.path,
                       reinterpret_cast<std::uintptr_t>(address) - object.base);
  }
  return fmt::format("{}+{:#x}", demangled(info.dli_sname),
                     static_cast<const char*>(address) - static_cast<const char*>(info.dli_saddr));
}

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

// Shortens "(anonymous namespace)::train_step(brrr::Tensor const&)", and lambdas in that function,
// to "train_step".
std::string short_name(std::string function) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)::";
  for (std::size_t at; (at = function.find(kAnonymous)) != std::string::npos;)
    function.erase(at, kAnonymous.size());
  const std::string bare = function.substr(0, std::min(function.find('('), function.find("::{")));
  // std::function's own name would hide the lambda that it calls.
  return bare == "operator" || bare.starts_with("std::") ? "a lambda" : bare.substr(0, 80);
}

// The path relative to the current directory, if that is shorter.
std::string short_path(const std::string& path) {
  const std::filesystem::path full = std::filesystem::path(path).lexically_normal();
  std::error_code error;
  const std::filesystem::path here = std::filesystem::current_path(error);
  const std::string relative = error ? "" : full.lexically_relative(here).string();
  return relative.empty() || relative.size() > full.string().size() ? full.string() : relative;
}

// The function at an address, and those that it was inlined into.
using SourceLocations = std::vector<SourceLocation>;

// Asks binutils' addr2line for addresses of one object.
void read_line_table(const Object& object, std::span<const void* const> addresses,
                     std::map<const void*, SourceLocations>& known) {
  std::string command = "addr2line -a -i -f -C -e " + quoted(object.path);
  for (const void* address : addresses) {
    // A return address follows the call instruction.
    command += fmt::format(" {:#x}", reinterpret_cast<std::uintptr_t>(address) - object.base - 1);
  }
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(
      ::popen((command + " 2>/dev/null").c_str(), "r"), &::pclose);
  if (!out) return;
  char line[4096];
  const auto next = [&](std::string& text) {
    if (!std::fgets(line, sizeof line, out.get())) return false;
    text = line;
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
    return true;
  };
  // Output: a line for each address, followed by its functions and their source lines.
  std::size_t count = 0;
  SourceLocations found;
  const auto finish = [&] {
    if (count > 0 && !found.empty()) known[addresses[count - 1]] = std::move(found);
    found.clear();
  };
  for (std::string function, where; next(function);) {
    if (function.starts_with("0x")) {
      finish();
      if (++count > addresses.size()) return;
      continue;
    }
    if (!next(where)) break;
    where = where.substr(0, where.find(" (discriminator"));
    if (where.starts_with("??") || where.ends_with(":?") || where.ends_with(":0")) continue;
    found.push_back({short_name(function), short_path(where), object.path});
  }
  finish();
}

// Locations that were looked up, by address.
struct LocationCache {
  std::mutex mutex;
  std::map<const void*, SourceLocations> places;
};
LocationCache& location_cache() {
  static LocationCache* all = new LocationCache;
  return *all;
}

void look_up(std::span<const CallSite> sites, std::map<const void*, SourceLocations>& places) {
  std::map<std::string, std::pair<Object, std::vector<const void*>>> by_object;
  for (const CallSite& site : sites) {
    for (const void* address : site.frames()) {
      if (places.contains(address)) continue;
      const Object object = object_at(address);
      auto& [of, addresses] = by_object[object.path];
      of = object;
      addresses.push_back(address);
      places[address] = {{"", from_symbols(address, object), object.path}};
    }
  }
  for (const auto& [path, each] : by_object) read_line_table(each.first, each.second, places);
}

// Also tests for headers of brrr: in Clang's line tables, code inlined from a header has the name
// of the function that it was inlined into.
bool in_brrr(const SourceLocation& place) {
  return place.function.starts_with("brrr::") || place.line.starts_with("include/brrr/") ||
         place.line.find("/include/brrr/") != std::string::npos;
}
// A header of the standard library.
bool in_std(const SourceLocation& place) {
  return place.line.find("/include/c++/") != std::string::npos;
}

std::string text_of(const SourceLocation& place) {
  return place.function.empty() ? place.line : fmt::format("{} in {}", place.line, place.function);
}

}  // namespace

CallSite CallSite::here() {
  constexpr int kDeepest = 64;
  void* frames[kDeepest];
  const int depth = ::backtrace(frames, kDeepest);
  const Object& own = library();
  const auto outside = [&](const void* frame) {
    const auto address = reinterpret_cast<std::uintptr_t>(frame);
    return address < own.low || address >= own.high;
  };
  CallSite site;
  int first = 0;
  // A sanitizer adds frames between backtrace and its caller.
  while (first < depth && outside(frames[first])) ++first;
  if (is_shared()) {
    while (first < depth && !outside(frames[first])) ++first;
  }
  for (int i = first; i < depth && site.n_ < kMost; ++i) site.frames_[site.n_++] = frames[i];
  return site;
}

CallSite CallSite::of(std::span<const std::uintptr_t> stack) {
  CallSite site;
  for (const std::uintptr_t address : stack.first(std::min<std::size_t>(stack.size(), kMost)))
    site.frames_[site.n_++] = reinterpret_cast<const void*>(address + 1);
  return site;
}

std::vector<std::string> describe(std::span<const CallSite> sites) {
  LocationCache& all = location_cache();
  const std::lock_guard lock(all.mutex);
  look_up(sites, all.places);
  std::vector<std::string> lines;
  for (const CallSite& site : sites) {
    const SourceLocation* chosen = nullptr;
    const auto choose = [&chosen](const SourceLocation& place) {
      if (!chosen) chosen = &place;
      if (place.object != chosen->object) return true;  // libc, which calls main
      const bool users = !place.function.empty() && !in_brrr(place) && !in_std(place);
      if (users) chosen = &place;
      return users;
    };
    for (const void* frame : site.frames()) {
      if (std::ranges::any_of(all.places[frame], choose)) break;
    }
    lines.push_back(chosen ? text_of(*chosen) : "an unknown place");
  }
  return lines;
}

std::string describe(const CallSite& site) {
  static std::atomic_flag advised;
  std::string place = describe(std::span(&site, 1))[0];
  if (place.find("+0x") != std::string::npos && !advised.test_and_set())
    place += "; compile with -g for lines";
  return place;
}

void rethrow_with(const CallSite& site) {
  const std::string place = fmt::format(" (at {})", describe(site));
  try {
    throw;
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(error.what() + place, error.requested());
  } catch (const CudaError& error) {
    throw CudaError(error.what() + place, error.code());
  } catch (const Error& error) {
    throw Error(error.what() + place);
  }
}

}  // namespace brrr::graph
