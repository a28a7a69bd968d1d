// Every limit of the library's sources has a line in limits.txt: the test that stands at it, or why
// it limits no program. A limit is a constant kMost... or kMax..., or an array of a size that is a
// number from 8 on, in generated text too; below that are coordinates, vectors and pairs.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/harness/catch.h"
#include "tests/harness/source_tree.h"

namespace {

namespace fs = std::filesystem;

std::string contents_of(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<fs::path> files_in(const std::string& folder, const std::set<std::string>& endings) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(brrr::testing::source_path(folder))) {
    if (entry.is_regular_file() && endings.contains(entry.path().extension().string()))
      files.push_back(entry.path());
  }
  return files;
}

// The limits in a text, without comments: "kMostOperands", "text[4096]".
std::set<std::string> limits_in(const std::string& text) {
  static const std::regex constant(R"(\b(k(?:Most|Max)\w*) = )"),
      array(R"(\b([A-Za-z_]\w*)[>*&]* +(\w+(?:\[\w*\])*\[(\d+)\](?:\[\w*\])*)(?=[ ;,=]))");
  std::set<std::string> limits;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line = line.substr(0, line.find("//"));
    const std::sregex_iterator end;
    for (std::sregex_iterator found(line.begin(), line.end(), constant); found != end; ++found)
      limits.insert((*found)[1]);
    for (std::sregex_iterator found(line.begin(), line.end(), array); found != end; ++found) {
      const std::string type = (*found)[1], bound = (*found)[3];
      if (type != "return" && type != "delete" && (bound.size() > 1 || bound >= "8"))
        limits.insert((*found)[2]);
    }
  }
  return limits;
}

struct Line {
  std::string limit, test, reason;  // "path name", and one of the others
};

std::vector<Line> lines_of_table() {
  std::vector<Line> lines;
  std::istringstream text(contents_of(brrr::testing::source_path("tests/project/limits.txt")));
  for (std::string line; std::getline(text, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t bar = line.find(" | ");
    REQUIRE(bar != std::string::npos);
    const std::string what = line.substr(bar + 3);
    const bool is_test = what.rfind("test: ", 0) == 0;
    lines.push_back({line.substr(0, bar), is_test ? what.substr(6) : "", is_test ? "" : what});
  }
  return lines;
}

}  // namespace

TEST_CASE("limits are found in declarations and in generated text", "[project]") {
  using Set = std::set<std::string>;
  CHECK(limits_in("constexpr int kMostOperands = 19;  // kMostOthers = 2") == Set{"kMostOperands"});
  CHECK(limits_in("constexpr int kLeast = 2, kMaxCycles = 5;") == Set{"kMaxCycles"});
  CHECK(limits_in("  if (n == kMostOperands || kMost <= 3) return;").empty());
  CHECK(limits_in("  std::string buffers = \"Row rows[kTile];\\n  i64 bases[kTile][16];\\n\";") ==
        Set{"bases[kTile][16]"});
  CHECK(limits_in("  i64 shift[16];\n  char text[4096] = {};\n  int pair[2];") ==
        Set{"shift[16]", "text[4096]"});
  CHECK(limits_in("  return values[16];\n  a = rows[12] + 1;").empty());
}

TEST_CASE("each limit has a test that stands at it, or a reason", "[project]") {
  std::set<std::string> found;
  for (const char* folder :
       {"tensor", "dispatch", "ops", "autograd", "graph", "nn", "io", "measure", "cli"}) {
    for (const fs::path& path : files_in(folder, {".h", ".cpp", ".inl", ".cu", ".def"})) {
      const std::string name = fs::relative(path, brrr::testing::source_path("")).generic_string();
      for (const std::string& limit : limits_in(contents_of(path)))
        found.insert(name + " " + limit);
    }
  }
  CHECK(found.size() > 100);
  std::string tests;
  for (const fs::path& path : files_in("tests", {".cpp"})) {
    // A long name may stand on the line after the macro.
    tests += std::regex_replace(contents_of(path), std::regex(R"(TEST_CASE\(\s+)"), "TEST_CASE(");
  }
  std::set<std::string> listed;
  for (const Line& line : lines_of_table()) {
    INFO(line.limit << " | " << line.test << line.reason);
    CHECK(listed.insert(line.limit).second);
    CHECK(found.contains(line.limit));  // else the line is of the past
    if (!line.test.empty())
      CHECK(tests.find("TEST_CASE(\"" + line.test + "\"") != std::string::npos);
    if (line.test.empty()) CHECK(line.reason.size() > 10);
  }
  for (const std::string& limit : found) {
    INFO(limit << ": expected a line in tests/project/limits.txt");
    CHECK(listed.contains(limit));
  }
}
