// The disk cache as an attacker would fill it: what others can have written is neither read nor
// executed, and is named. Also what the cache writes, under every umask.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "brrr/ops/jit/cpu_compiler.h"
#include "brrr/ops/jit/disk_cache.h"
#include "tests/harness/catch.h"
#include "tests/harness/environment.h"
#include "tests/harness/jit_rows.h"
#include "tests/harness/skip.h"

using namespace brrr;
using namespace brrr::jit;
using namespace brrr::testing;
namespace fs = std::filesystem;

namespace {

// Each kind of entry that is loaded.
const std::vector<std::string> kKinds = {"so", "kernel", "cubin", "matmul"};
constexpr uid_t kNobody = 65534;

mode_t mode_of(const std::string& path) {
  struct stat status {};
  REQUIRE(::lstat(path.c_str(), &status) == 0);
  return status.st_mode & 07777;
}

struct Umask {
  mode_t before;
  explicit Umask(mode_t mask) : before(::umask(mask)) {}
  ~Umask() { ::umask(before); }
};

struct Planted {
  std::string what;  // in `why`
  std::function<void(const std::string& path)> plant;
  bool needs_root = false;
};

void move_aside(const std::string& path) { fs::rename(path, path + ".aside"); }

const std::vector<Planted>& planted() {
  static const std::vector<Planted> all = {
      {"is writable by others (mode 620)", [](auto& path) { ::chmod(path.c_str(), 0620); }},
      {"is writable by others (mode 602)", [](auto& path) { ::chmod(path.c_str(), 0602); }},
      {"is writable by others (mode 4777)", [](auto& path) { ::chmod(path.c_str(), 04777); }},
      {"is a link",
       [](auto& path) {
         move_aside(path);
         fs::create_symlink(path + ".aside", path);
       }},
      {"is a link",
       [](auto& path) {
         fs::remove(path);
         fs::create_symlink("/nowhere", path);
       }},
      {"is not a regular file",
       [](auto& path) {
         fs::remove(path);
         REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
       }},
      {"is a directory",
       [](auto& path) {
         fs::remove(path);
         fs::create_directory(path);
       }},
      {"belongs to user 65534, not to 0",
       [](auto& path) { REQUIRE(::chown(path.c_str(), kNobody, kNobody) == 0); }, true},
      {"is damaged", [](auto& path) { fs::resize_file(path, 60); }},
      {"is damaged", [](auto& path) { fs::resize_file(path, 0); }},
      {"is damaged",
       [](auto& path) {  // a hash that is not that of the content
         std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
         file.seekp(32);
         file.write("forged!!forged!!", 16);
       }},
      {"is damaged",
       [](auto& path) {  // a size beyond the end
         std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
         file.seekp(24);
         file.write("\377\377\377\377\377\377\377\177", 8);
       }},
      {"is too large", [](auto& path) { fs::resize_file(path, std::uintmax_t{1} << 40); }},
  };
  return all;
}

bool can_plant(const Planted& each) {
  if (!each.needs_root || ::geteuid() == 0) return true;
  static bool said = false;
  if (!std::exchange(said, true)) skip("files of another owner in the disk cache: needs root");
  return false;
}

}  // namespace

TEST_CASE("the disk cache is made for its owner alone under every umask", "[cache]") {
  for (const mode_t mask : {0000, 0002, 0022, 0077, 0277}) {
    INFO("umask " << std::oct << mask);
    const CacheDirectory directory;
    const Umask scope(mask);
    const test::EnvironmentVariable below("BRRR_CACHE_DIR", directory.path().string() + "/a/b");
    disk_cache::write(hash_of("k"), "so", "content");
    CHECK(disk_cache::write_file("ceilings-1.json", "{}") == "");
    for (const std::string& folder : {std::string(), std::string("/a"), std::string("/a/b")})
      CHECK(mode_of(directory.path().string() + folder) == 0700);
    CHECK(mode_of(disk_cache::path_of(hash_of("k"), "so")) == 0600);
    CHECK(mode_of(directory.path().string() + "/a/b/ceilings-1.json") == 0600);
    std::string content;
    CHECK(disk_cache::read(hash_of("k"), "so", content) == disk_cache::Found::yes);
    CHECK(disk_cache::refused().empty());
    CHECK(disk_cache::why_unusable() == "");
  }
}

TEST_CASE("an entry that others can have written counts as missing and is named", "[cache]") {
  for (const std::string& kind : kKinds) {
    for (const Planted& each : planted()) {
      if (!can_plant(each)) continue;
      INFO(kind << ": " << each.what);
      const CacheDirectory directory;
      const Hash128 key = hash_of("an entry");
      const std::string path = disk_cache::path_of(key, kind);
      const std::string written(500, 'x');
      disk_cache::write(key, kind, written);
      each.plant(path);
      std::string content = "as before";
      const disk_cache::Found found = disk_cache::read(key, kind, content);
      CHECK((found == disk_cache::Found::untrusted || found == disk_cache::Found::damaged));
      CHECK(content == "as before");
      const auto refused = disk_cache::refused();
      REQUIRE(refused.size() == 1);
      CHECK(refused[0].first == to_hex(key) + "." + kind);
      CHECK(refused[0].second == each.what);
      if (each.what == "is a directory") continue;
      // The next write replaces it, and not what a link leads to.
      disk_cache::write(key, kind, "new");
      REQUIRE(disk_cache::read(key, kind, content) == disk_cache::Found::yes);
      CHECK(content == "new");
      CHECK(mode_of(path) == 0600);
      CHECK(disk_cache::refused().empty());
    }
  }
}

TEST_CASE("no entry of a folder that others can change is used", "[cache]") {
  const auto check = [](const std::string& what, bool needs_root, auto plant) {
    if (needs_root && ::geteuid() != 0) return skip("folders of another owner: needs root");
    INFO(what);
    const CacheDirectory directory;
    const std::string folder = directory.path().string() + "/cache";
    const test::EnvironmentVariable below("BRRR_CACHE_DIR", folder + "/");
    const Hash128 key = hash_of("k");
    disk_cache::write(key, "so", "content");
    plant(folder);
    std::string content, why;
    CHECK(disk_cache::read(key, "so", content) == disk_cache::Found::untrusted);
    CHECK(disk_cache::read_file("ceilings-1.json", content, why) == disk_cache::Found::untrusted);
    CHECK_THAT(why, Catch::EndsWith(what));
    CHECK(disk_cache::why_unusable() == why);
    CHECK(disk_cache::write_file("ceilings-1.json", "{}") == why);
    CHECK_FALSE(fs::exists(folder + "/ceilings-1.json"));
    CHECK(disk_cache::refused().empty());
  };
  check("/cache is writable by others (mode 770)", false,
        [](const std::string& folder) { ::chmod(folder.c_str(), 0770); });
  check("/cache is writable by others (mode 1777)", false,
        [](const std::string& folder) { ::chmod(folder.c_str(), 01777); });
  check("/cache is a link", false, [](const std::string& folder) {
    move_aside(folder);
    fs::create_directory_symlink(folder + ".aside", folder);
  });
  check("/cache belongs to user 65534, not to 0", true,
        [](const std::string& folder) { REQUIRE(::chown(folder.c_str(), kNobody, kNobody) == 0); });
  check(" is writable by all (mode 777)", false,
        [](const std::string& folder) { ::chmod(fs::path(folder).parent_path().c_str(), 0777); });
}

TEST_CASE("a planted shared object is not executed", "[cache]") {
  const CacheDirectory directory;
  const std::string evil = "extern \"C\" int answer() { return -1; }\n";
  std::string object;
  load_cpu_function("answer", evil);
  REQUIRE(disk_cache::read(cpu_object_key(evil), "so", object) == disk_cache::Found::yes);
  int number = 0;
  const auto answer_of = [&](auto spoil) {
    const std::string source =
        "extern \"C\" int answer() { return " + std::to_string(++number) + "; }  // planted\n";
    const Hash128 key = cpu_object_key(source);
    disk_cache::write(key, "so", object);
    spoil(disk_cache::path_of(key, "so"));
    return reinterpret_cast<int (*)()>(load_cpu_function("answer", source))();
  };
  // Its owner's word is taken: this is what the others would execute.
  CHECK(answer_of([](const std::string&) {}) == -1);
  for (const Planted& each : planted()) {
    if (each.what == "is damaged" || !can_plant(each)) continue;  // tests/ops/test_jit.cpp
    INFO(each.what);
    const int answer = answer_of(each.plant);
    CHECK(answer == number);
  }
}

TEST_CASE("kernels are not compiled where others can replace them", "[cache]") {
  const CacheDirectory directory;
  const std::string folder = directory.path().string();
  fs::create_directory(folder);
  ::chmod(folder.c_str(), 0777);
  const test::EnvironmentVariable temporary("TMPDIR", folder);
  const test::EnvironmentVariable cache("BRRR_CACHE", "off");
  CHECK_THROWS_WITH(load_cpu_function("f", "extern \"C\" void f() {}  // in TMPDIR\n"),
                    Catch::Contains("expected a directory to compile in, but " + folder +
                                    " is writable by all (mode 777); set TMPDIR"));
  ::chmod(folder.c_str(), 01777);
  CHECK(load_cpu_function("f", "extern \"C\" void f() {}  // in TMPDIR\n"));
  CHECK(directory.files().empty());
}
