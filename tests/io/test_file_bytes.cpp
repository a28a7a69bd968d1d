// Writing files: what killed processes leave beside them.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "brrr/io/file_bytes.h"
#include "tests/harness/catch.h"
#include "tests/harness/errors_expected.h"

using namespace brrr;
namespace fs = std::filesystem;

namespace {

class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / ("brrr_files_" + std::to_string(::getpid()))) {
    fs::remove_all(path_);
    fs::create_directory(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string at(const std::string& name) const { return path_ / name; }
  void write(const std::string& name) const { std::ofstream(at(name)) << "old"; }
  std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& each : fs::directory_iterator(path_)) found.insert(each.path().filename());
    return found;
  }

 private:
  fs::path path_;
};

void write_new(const std::string& path) {
  write_file("test", path, [](const ByteSink& sink) { sink("new", 3); });
}

}  // namespace

TEST_CASE("files: leftovers of killed writers are removed by the next one", "[files]") {
  const Folder folder;
  // Of processes that are no more, or have another's number now.
  folder.write("model.999999999-0.tmp");
  folder.write("model.1-12.tmp");
  folder.write("model." + std::to_string(::getpid()) + "-999999.tmp");
  // Not of this file, or not of a writer.
  const std::set<std::string> others = {"model.1-.tmp",    "model.-1.tmp",  "model.tmp",
                                        "model.1-2.tmp2",  "model.a-2.tmp", "other.1-0.tmp",
                                        "model.x.1-0.tmp", "model_1-0.tmp", "model.1-2-3.tmp",
                                        "1-0.tmp",         "amodel.1-0.tmp"};
  for (const std::string& name : others) folder.write(name);
  fs::create_directory(folder.at("model.2-0.tmp"));
  fs::create_symlink("other.1-0.tmp", folder.at("model.3-0.tmp"));
  // Of a writer that lives, here or in another container: it holds a lock.
  folder.write("model.5-0.tmp");
  const int living = ::open(folder.at("model.5-0.tmp").c_str(), O_WRONLY | O_CLOEXEC);
  REQUIRE(::flock(living, LOCK_EX) == 0);

  write_new(folder.at("model"));
  std::set<std::string> expected = others;
  expected.insert({"model", "model.2-0.tmp", "model.3-0.tmp", "model.5-0.tmp"});
  CHECK(folder.names() == expected);
  ::close(living);
  write_new(folder.at("model"));
  expected.erase("model.5-0.tmp");
  CHECK(folder.names() == expected);
}

TEST_CASE("files: writers of one file leave each other's alone", "[files]") {
  const Folder folder;
  const std::string path = folder.at("model");
  write_file("test", path, [&](const ByteSink& outer) {
    write_new(path);  // finds the outer one's file, locked
    outer("outer", 5);
  });
  CHECK(folder.names() == std::set<std::string>{"model"});
  std::string text;
  std::ifstream(path) >> text;
  CHECK(text == "outer");
}

TEST_CASE("files: whether one can be written is checked first", "[files]") {
  const Folder folder;
  folder.write("model");
  require_writable("test", folder.at("model"));
  require_writable("test", folder.at("new"));
  CHECK(folder.names() == std::set<std::string>{"model"});
  std::string text;
  std::ifstream(folder.at("model")) >> text;
  CHECK(text == "old");
  CHECK_THAT(test::error_of([&] { require_writable("test", folder.at("nowhere/model")); }),
             Catch::EndsWith("nowhere/model: cannot create a file there: No such file or "
                             "directory"));
  fs::create_directory(folder.at("directory"));
  CHECK_THAT(test::error_of([&] { require_writable("test", folder.at("directory")); }),
             Catch::EndsWith("expected a regular file to write to"));
}
