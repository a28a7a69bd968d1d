// The layers of the tree: each folder includes only folders before it, and no file is a bucket or
// too long; no function is, either.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/harness/catch.h"
#include "tests/harness/source_tree.h"

namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kLayers = {"tensor", "dispatch", "ops",     "io", "autograd",
                                          "graph",  "nn",       "measure", "cli"};

// The index of a folder's layer; one past the end for folders that may include everything.
std::size_t layer_of(const std::string& folder) {
  return static_cast<std::size_t>(std::find(kLayers.begin(), kLayers.end(), folder) -
                                  kLayers.begin());
}

struct Source {
  std::string path;  // relative to the root
  std::string folder;
  std::vector<std::string> lines;
};

bool is_source(const fs::path& path) {
  static const std::set<std::string> extensions = {".h", ".cpp", ".inl", ".cu", ".def"};
  return extensions.count(path.extension().string());
}

std::vector<Source> read_sources() {
  std::vector<Source> found;
  std::vector<std::string> folders = kLayers;
  folders.insert(folders.end(), {"include", "examples", "tests", "bench"});
  for (const std::string& folder : folders) {
    const fs::path root = brrr::testing::source_path(folder);
    if (!fs::exists(root)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      if (!entry.is_regular_file() || !is_source(entry.path())) continue;
      Source source{
          fs::relative(entry.path(), brrr::testing::source_path("")).string(), folder, {}};
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);) source.lines.push_back(line);
      found.push_back(std::move(source));
    }
  }
  return found;
}

const std::vector<Source>& sources() {
  static const std::vector<Source> all = read_sources();
  return all;
}

// The file that an #include names, whichever its brackets; "" when the line is none.
std::string included_by(const std::string& line) {
  const std::size_t hash = line.find_first_not_of(" \t");
  if (hash == std::string::npos || line[hash] != '#') return "";
  const std::size_t word = line.find_first_not_of(" \t", hash + 1);
  if (word == std::string::npos || line.compare(word, 7, "include") != 0) return "";
  const std::size_t open = line.find_first_of("\"<", word);
  const std::size_t close = open == std::string::npos ? open : line.find_first_of("\">", open + 1);
  return close == std::string::npos ? "" : line.substr(open + 1, close - open - 1);
}

// Why a file of `folder` may not include `target`; "" when it may. Headers of the library are named
// from brrr/ on, so that they are found in no other project's folders.
std::string forbidden(const std::string& folder, const std::string& target) {
  const bool ours = target.starts_with("brrr/");
  const std::string path = ours ? target.substr(5) : target;
  const std::string first = path.substr(0, path.find('/'));
  if (ours && path == "brrr.h")
    return layer_of(folder) < kLayers.size()
               ? "a layer includes the header that includes every layer"
               : "";
  if (first == path) return "";  // of the system, or beside the file
  const std::size_t from = layer_of(folder), to = layer_of(first);
  if (to < kLayers.size() && first != "cli" && !ours) return target + " is brrr/" + target;
  if (from < kLayers.size()) {
    if (first == "tests" || first == "examples" || first == "bench")
      return "a layer includes " + first;
    if (to < kLayers.size() && to > from)
      return folder + " includes " + first + ", which is above it";
  }
  return "";
}

}  // namespace

TEST_CASE("the check of includes knows a wrong arrow", "[layering]") {
  CHECK(included_by("#include \"brrr/ops/functions.h\"") == "brrr/ops/functions.h");
  CHECK(included_by("  #  include <cuda.h>") == "cuda.h");
  CHECK(included_by("// includes nothing").empty());
  CHECK(forbidden("ops", "brrr/tensor/tensor.h").empty());
  CHECK(forbidden("ops", "brrr/ops/shapes.h").empty());
  CHECK_FALSE(forbidden("tensor", "brrr/dispatch/call.h").empty());
  CHECK_FALSE(forbidden("autograd", "brrr/graph/ir.h").empty());
  CHECK_FALSE(forbidden("ops", "brrr/io/npy.h").empty());
  CHECK_FALSE(forbidden("nn", "tests/harness/samples.h").empty());
  CHECK_FALSE(forbidden("ops", "tensor/tensor.h").empty());
  CHECK_FALSE(forbidden("tests", "tensor/tensor.h").empty());
  CHECK_FALSE(forbidden("graph", "brrr/brrr.h").empty());
  CHECK(forbidden("examples", "brrr/brrr.h").empty());
}

TEST_CASE("includes point one way", "[layering]") {
  const std::vector<Source>& all = sources();
  CHECK(all.size() > 50);
  for (const Source& source : all) {
    if (source.path.starts_with("tests/consumer/")) continue;  // another project
    for (std::size_t i = 0; i < source.lines.size(); ++i) {
      const std::string target = included_by(source.lines[i]);
      if (target.empty()) continue;
      const bool program = source.folder == "cli" &&
                           target == "brrr/brrr.h";  // the program is a user of the library
      const std::string problem = program ? "" : forbidden(source.folder, target);
      INFO(source.path << ":" << i + 1 << ": " << problem);
      CHECK(problem.empty());
    }
  }
}

// Every file of brrr that `path` includes, directly or not, itself among them.
std::set<std::string> closure_of(const std::string& path) {
  static const std::vector<Source> all = sources();
  std::set<std::string> found;
  std::vector<std::string> open = {path};
  while (!open.empty()) {
    const std::string next = open.back();
    open.pop_back();
    if (!found.insert(next).second) continue;
    for (const Source& source : all) {
      if (source.path != next && source.path != "include/brrr/" + next) continue;
      for (const std::string& line : source.lines) {
        const std::string target = included_by(line);
        if (target.starts_with("brrr/")) open.push_back(target.substr(5));
      }
    }
  }
  return found;
}

bool of_toolkit(const std::string& target) {
  static const std::regex names("(cu(da|pti|blas)|nv(rtc|tx|ml))[^/]*[.]h|nvtx3/.*");
  return std::regex_match(target, names);
}

// The lines of includes outside of `#if BRRR_HAS_CUDA` and `#if __has_include`.
std::vector<std::string> unconditional_includes(const std::vector<std::string>& lines) {
  std::vector<std::string> found;
  std::vector<bool> hidden;
  for (const std::string& line : lines) {
    if (line.starts_with("#if")) {
      hidden.push_back(line.find(" BRRR_HAS_CUDA") != std::string::npos ||
                       line.find("__has_include") != std::string::npos);
    } else if (line.starts_with("#el") && !hidden.empty()) {
      hidden.back() = false;
    } else if (line.starts_with("#endif") && !hidden.empty()) {
      hidden.pop_back();
    } else if (std::ranges::find(hidden, true) == hidden.end()) {
      if (std::string target = included_by(line); !target.empty()) found.push_back(target);
    }
  }
  return found;
}

// How a file comes to include a header of the CUDA toolkit: "a.cpp > b.h > cuda.h"; "" if it does
// not.
std::string way_to_toolkit(const std::string& path) {
  static const std::map<std::string, const Source*> by_path = [] {
    std::map<std::string, const Source*> result;
    for (const Source& source : sources()) result[source.path] = &source;
    return result;
  }();
  static std::map<std::string, std::string> known;
  const auto source = by_path.find(path);
  if (source == by_path.end()) return "";
  const auto [entry, is_new] = known.emplace(path, "");
  if (!is_new) return entry->second;
  for (const std::string& target : unconditional_includes(source->second->lines)) {
    const std::string rest =
        of_toolkit(target)
            ? target
            : way_to_toolkit(target.starts_with("brrr/") ? target.substr(5) : target);
    if (!rest.empty()) return known[path] = path + " > " + rest;
  }
  return "";
}

// Of a build without a toolkit.
bool compiled_without_toolkit(const std::string& path) {
  static const std::regex needs_toolkit(
      "ops/cuda/.*|tests/(fake_cuda|gpu|consumer)/.*|(.*/)?(test_)?cuda_(?!absent)[a-z_]*[.]cpp|"
      "tests/cli/nvtx_log[.]cpp");
  return path.ends_with(".cpp") && !std::regex_match(path, needs_toolkit);
}

TEST_CASE("the search for headers of the toolkit finds them through others", "[layering]") {
  CHECK(way_to_toolkit("tests/harness/cuda_op_faults.cpp").find(" > ") != std::string::npos);
  CHECK(way_to_toolkit("tests/ops/test_cuda_kernels.cpp").find(" > ") != std::string::npos);
  CHECK(unconditional_includes({"#if BRRR_HAS_CUDA", "#include <cuda.h>", "#endif"}).empty());
  CHECK(unconditional_includes({"#if !BRRR_HAS_CUDA", "#include <cuda.h>", "#endif"}).size() == 1);
  CHECK(of_toolkit("cublasLt.h"));
  CHECK(of_toolkit("nvtx3/nvToolsExt.h"));
  CHECK_FALSE(of_toolkit("brrr/tensor/cuda_api.h"));
  CHECK_FALSE(compiled_without_toolkit("tests/ops/test_cuda_kernels.cpp"));
  CHECK(compiled_without_toolkit("tests/ops/test_kernels.cpp"));
  CHECK(compiled_without_toolkit("graph/cuda_absent.cpp"));
}

TEST_CASE("what is built without a CUDA toolkit includes none of its headers", "[layering]") {
  for (const Source& source : sources()) {
    if (!compiled_without_toolkit(source.path)) continue;
    CHECK(way_to_toolkit(source.path) == "");
  }
}

// What a program sees of the layers below nn/: no implementation of tensors, streams and dispatch.
TEST_CASE("brrr.h includes the public headers and no others", "[layering]") {
  std::set<std::string> found = closure_of("brrr.h");
  std::erase_if(found, [](const std::string& path) { return path.starts_with("nn/"); });
  const std::set<std::string> expected = {
      "brrr.h",
      "autograd/autograd.h",
      "autograd/gradcheck.h",
      "dispatch/call.h",
      "dispatch/cost.h",
      "dispatch/dtype_rule.h",
      "dispatch/for_each.h",
      "dispatch/gradient.h",
      "dispatch/observe.h",
      "dispatch/ops.def",
      "dispatch/scalar.h",
      "dispatch/setting.h",
      "graph/call_site.h",
      "graph/compile.h",
      "graph/generated_kernel.h",
      "graph/remat.h",
      "graph/step_report.h",
      "graph/step_time.h",
      "graph/why_not_fused.h",
      "io/dlpack.h",
      "io/npy.h",
      "io/safetensors.h",
      "io/tensor_file.h",
      "ops/formulas.h",
      "ops/functions.h",
      "ops/literal.h",
      "ops/matmul.h",
      "ops/operand.h",
      "ops/register_op.h",
      "tensor/allocator.h",
      "tensor/device.h",
      "tensor/dims.h",
      "tensor/dtype.h",
      "tensor/error.h",
      "tensor/half.h",
      "tensor/half.inl",
      "tensor/host_copy.h",
      "tensor/index.h",
      "tensor/stream.h",
      "tensor/tensor.h",
      "tensor/tensor_fields.h",
      "tensor/thread_pool.h",
  };
  CHECK(found == expected);
}

TEST_CASE("state by thread is in ThreadContext, but for caches of one file", "[layering]") {
  const std::set<std::string> allowed = {
      "tensor/thread_context.h",  "tensor/error.cpp",          // the context
      "tensor/cpu_allocator.cpp", "tensor/pool.h",             // free lists
      "ops/cuda/workspace.cpp",   "ops/cuda/matmul_plan.cpp",  // what was used last
  };
  for (const Source& source : sources()) {
    if (layer_of(source.folder) == kLayers.size() || allowed.contains(source.path)) continue;
    for (const std::string& line : source.lines) {
      INFO(source.path << ": " << line);
      CHECK(line.substr(0, line.find("//")).find("thread_local") == std::string::npos);
    }
  }
}

// The op that a line names, as Op::name or by a constant such as kNameOp; "" when it names none.
std::string op_named_by(const std::string& line) {
  static const std::regex name("(^|[^A-Za-z0-9_])(?:Op::([a-z][a-z0-9_]*)|k[A-Z]\\w*Op\\b)");
  std::smatch found;
  if (!std::regex_search(line, found, name) || found[2] == "first_registered") return "";
  return found[2].matched ? found[2] : found[0];
}

TEST_CASE("no op is named outside of ops/", "[layering]") {
  CHECK(op_named_by("  call.op == Op::copy") == "copy");
  CHECK(op_named_by("Call call(kFactorCopyOp, nullptr, 1);") == "(kFactorCopyOp");
  CHECK(op_named_by("i < kMaxOps").empty());
  CHECK(op_named_by("TapeNode(Op::first_registered)").empty());
  CHECK(op_named_by("PointwiseOp::name").empty());
  for (const Source& source : sources()) {
    if (source.folder == "ops" || layer_of(source.folder) == kLayers.size()) continue;
    for (std::size_t i = 0; i < source.lines.size(); ++i) {
      INFO(source.path << ":" << i + 1 << ": " << source.lines[i]);
      CHECK(op_named_by(source.lines[i]).empty());
    }
  }
}

// The files of the library in which a line of code fits the pattern, in order.
std::vector<std::string> files_with(const std::string& pattern) {
  const std::regex wanted(pattern);
  std::vector<std::string> files;
  for (const Source& source : sources()) {
    if (layer_of(source.folder) == kLayers.size()) continue;
    if (std::ranges::any_of(source.lines, [&](const std::string& line) {
          return std::regex_search(line.substr(0, line.find("//")), wanted);
        }))
      files.push_back(source.path);
  }
  std::ranges::sort(files);
  return files;
}

// Whether a line of code decides by text: searches it, or compares it with a literal.
bool searches_text(const std::string& line) {
  static const std::regex searched(
      R"re(\.(find|rfind|find_\w+|starts_with|ends_with|contains|compare|substr)\(["'])re"
      R"re(|\b(text|expression|source|statements|visited|names?|code|type)(\(\))?\.)re"
      R"re((find|rfind|find_\w+|starts_with|ends_with|contains|compare|substr)\()re"
      R"re(|[=!]= "|" [=!]= |\btext(\(\))? [=!]= |\] [=!]= '|\bstrn?(cmp|str|chr)\(|\bregex)re");
  return std::regex_search(line.substr(0, line.find("//")), searched);
}

TEST_CASE("decisions about a computation are made of values, not of its text", "[layering]") {
  CHECK(searches_text(R"(if (value.text == "a") return value.operands;)"));
  CHECK(searches_text(R"(text.find_first_of("<>=") == std::string::npos;)"));
  CHECK(searches_text(R"(for (std::size_t at = text.find(call); at != npos;))"));
  CHECK(searches_text(R"(other.kind == value.kind && other.text == value.text &&)"));
  CHECK(searches_text(R"(if (text[i] == '!' && text.substr(i, 2) != "!=") return false;)"));
  CHECK_FALSE(searches_text(R"(value.expression.is(ScalarOp::divide))"));
  CHECK_FALSE(searches_text(R"(levels.find(value) == levels.end())"));
  const std::set<std::string> parsers = {
      // Of expressions, formulas, attributes, and the names of values that a user's gradient needs.
      "dispatch/expression.cpp", "dispatch/formula.cpp", "dispatch/op_info.cpp",
      "ops/register_op.cpp",
      // Of settings, files, symbols, messages, and what compilers and libraries say of themselves.
      "graph/call_site.cpp", "graph/ceilings_file.cpp", "graph/choose.cpp",
      "graph/replay_check.cpp", "graph/step_entry.cpp", "ops/cpu/isa.cpp",
      "ops/cpu/matmul_vectors.cpp", "ops/jit/cpu_compiler.cpp", "ops/jit/cpu_toolchain.cpp",
      "ops/jit/cuda_compiler.cpp", "ops/jit/disk_cache.cpp"};
  std::set<std::string> searching;
  for (const Source& source : sources()) {
    if (!std::set<std::string>{"dispatch", "ops", "autograd", "graph"}.contains(source.folder))
      continue;
    for (std::size_t i = 0; i < source.lines.size(); ++i) {
      if (!searches_text(source.lines[i])) continue;
      INFO(source.path << ":" << i + 1 << ": " << source.lines[i]);
      CHECK(parsers.contains(source.path));
      searching.insert(source.path);
    }
  }
  CHECK(searching == parsers);
  // The one place where a row becomes text, and the one where a value does.
  CHECK(files_with(R"([(, ]#(expression|map|before|__VA_ARGS__)\b)") ==
        std::vector<std::string>{"ops/table.cpp"});
  CHECK(files_with(R"(\b(expression|identity|combine|finish)\.text\(\))") ==
        std::vector<std::string>{"ops/jit/render_values.cpp"});
}

// Whether a line names a card, a processor, a file of results, or a time that was measured.
bool names_measurement(const std::string& line) {
  static const std::regex named(
      R"re(\b[AHV]100\b|\b[HB]200\b|\b(Xeon|EPYC|GeForce)\b|\bnvidia-|bench/results)re"
      R"re(|[0-9] (us|ns|ms|microseconds|TFLOP/s|GFLOP/s|GB/s|TB/s)\b)re");
  return std::regex_search(line, named);
}

TEST_CASE("what decides names no card, no model and no figure of a step", "[layering]") {
  CHECK(names_measurement("// on an H100 a transformer's step of 8 x 1024"));
  CHECK(names_measurement("// takes 31.1 us, and 20.8 with one of them"));
  CHECK(names_measurement("constexpr double kPeak = 989e12;  // 989 TFLOP/s"));
  CHECK_FALSE(names_measurement("constexpr int kThreads = 256;  // of a block"));
  for (const Source& source : sources()) {
    if (!std::set<std::string>{"dispatch", "ops", "autograd", "graph"}.contains(source.folder))
      continue;
    for (std::size_t i = 0; i < source.lines.size(); ++i) {
      // An example of what is printed stands in quotes.
      const std::string line = std::regex_replace(source.lines[i], std::regex("\"[^\"]*\""), "");
      if (!names_measurement(line)) continue;
      INFO(source.path << ":" << i + 1 << ": " << source.lines[i]);
      CHECK(false);
    }
  }
}

TEST_CASE("a structured op has five places", "[layering]") {
  // Its row with the gradient, its declaration, its function with the shape rule, and its kernels.
  CHECK(files_with("\\bcumsum\\b") ==
        std::vector<std::string>{"dispatch/ops.def", "ops/cpu/scan.cpp", "ops/cuda/scan.cpp",
                                 "ops/functions.h", "ops/reductions.cpp"});
  for (const std::string name : {
#define BRRR_STRUCTURED(name, ...) #name,
#include "brrr/dispatch/ops.def"
       }) {
    INFO(name);
    std::vector<std::string> folders;
    for (const std::string& file : files_with("^void " + name + "\\(const Call&"))
      folders.push_back(fs::path(file).parent_path().string());
    std::ranges::sort(folders);
    CHECK(folders == std::vector<std::string>{"ops", "ops/cpu", "ops/cuda"});
  }
}

TEST_CASE("schedules and texts of kernels need no CUDA", "[layering]") {
  const std::set<std::string> compilers = {"ops/jit/compiler.h", "ops/jit/cuda_compiler.cpp"};
  for (const Source& source : sources()) {
    if (!source.path.starts_with("ops/jit/") || compilers.contains(source.path)) continue;
    for (const std::string& line : source.lines) {
      const std::string target = included_by(line);
      INFO(source.path << ": " << line);
      CHECK_FALSE((target == "cuda.h" || target == "brrr/ops/jit/compiler.h" ||
                   target.starts_with("brrr/ops/cuda/") ||
                   target.starts_with("brrr/tensor/cuda_")));
    }
  }
}

TEST_CASE("the op table includes nothing", "[layering]") {
  for (const Source& source : sources()) {
    if (source.path != "dispatch/ops.def" && source.path != "ops/jit/scalar.inl") continue;
    for (const std::string& line : source.lines) CHECK(included_by(line).empty());
  }
}

TEST_CASE("no file is a bucket or too long", "[layering]") {
  const std::set<std::string> buckets = {"util", "utils", "common", "helper", "helpers", "misc"};
  for (const Source& source : sources()) {
    INFO(source.path << " has " << source.lines.size() << " lines");
    const std::string stem = fs::path(source.path).stem().string();
    CHECK(buckets.count(stem) == 0);
    const bool data = source.path.starts_with("tests/golden/");
    CHECK((data || source.lines.size() <= 600));
  }
}

// A function from its signature to its last brace. The formatter begins both at one indentation:
// none, or that of a member of a class at file scope.
struct FunctionLines {
  std::size_t first, last;
};

std::vector<FunctionLines> functions_of(const std::vector<std::string>& lines) {
  static const std::regex type(R"(^(template <.*> )?(struct|class|union)\b.*\{$)");
  static const std::regex other(
      R"(^ *($|//|#|\}|\{|namespace\b|struct\b|class\b|enum\b|union\b|extern "C" \{|public:|private:|.*\\$))");
  std::vector<FunctionLines> functions;
  std::string indent;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (std::regex_search(lines[i], type)) indent = "  ";
    if (lines[i].starts_with('}')) indent.clear();
    if (!lines[i].starts_with(indent) || lines[i].starts_with(indent + ' ') ||
        std::regex_search(lines[i], other))
      continue;
    // To the end of the statement, or to where the body begins.
    std::size_t last = i;
    while (last + 1 < lines.size() && lines[last].find_last_of(";{}") + 1 != lines[last].size())
      ++last;
    if (!lines[last].ends_with('{') || lines[last].ends_with("= {")) continue;
    while (last + 1 < lines.size() && !lines[last].starts_with(indent + '}')) ++last;
    if (lines[last] == indent + '}') functions.push_back({i, last});
    i = last;
  }
  return functions;
}

TEST_CASE("a function has at most 60 lines", "[layering]") {
  const std::vector<FunctionLines> found = functions_of(
      {"struct A {", "  int f() const {", "    return g({", "        1});", "  }", "  int b = 1;",
       "};", "const int c[] = {", "    1,", "};", "int h(int b,", "      int c) {", "}"});
  REQUIRE(found.size() == 2);
  CHECK((found[0].first == 1 && found[0].last == 4));
  CHECK((found[1].first == 10 && found[1].last == 12));
  std::size_t functions = 0;
  for (const Source& source : sources()) {
    for (const FunctionLines& each : functions_of(source.lines)) {
      INFO(source.path << ":" << each.first + 1 << ": " << source.lines[each.first]);
      CHECK(each.last - each.first < 60);
      ++functions;
    }
  }
  CHECK(functions > 5000);
}
