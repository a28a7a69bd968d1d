// Command lines in documents are ones that `brrr` and `./dev` accept, and docs/cli.md lists the
// program's commands, options and environment variables: all of them, and no others.
#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "tests/docs/markdown.h"
#include "tests/harness/catch.h"
#include "tests/harness/source_tree.h"

using namespace brrr::docs;

namespace {

using Words = std::vector<std::string>;

Words words_of(const std::string& line) {
  Words words;
  std::istringstream in(line);
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

Ran brrr(const std::string& arguments) { return run(BRRR_DOCS_PROGRAM " " + arguments); }

// The names that a --help lists under a heading: subcommands, or options such as "--json".
std::set<std::string> names_under(const std::string& help, const std::string& heading) {
  static const std::regex entry(R"(^  (-h,)?([a-z-][A-Za-z0-9-]*).*)");
  std::set<std::string> names;
  bool inside = false;
  for (const std::string& line : lines_of(help)) {
    if (!line.starts_with(" ")) inside = line == heading;
    std::smatch match;
    if (inside && std::regex_match(line, match, entry)) names.insert(match[2]);
  }
  return names;
}

// Every option of a command and its subcommands.
void collect_options(const std::string& command, std::set<std::string>& options) {
  const Ran help = brrr(command + " --help");
  REQUIRE(help.status == 0);
  options.merge(names_under(help.output, "Options:"));
  for (const std::string& name : names_under(help.output, "Subcommands:"))
    collect_options(command + " " + name, options);
}

// What stands for something in a command line, and an example of it.
std::string example_of(const std::string& word) {
  static const std::map<std::string, std::string> examples = {
      {"MODEL", "mlp"}, {"WHAT", "overhead"}, {"NAME", "growth"}, {"MODE", "graph"},
      {"FILE", "file"}, {"DIR", "folder"},    {"...", ""}};
  if (const auto found = examples.find(word); found != examples.end()) return found->second;
  static const std::regex place("[A-Z]+"), place_at_end("(.*=)[A-Z]+"), file("[A-Z]+(\\.[a-z]+)");
  std::smatch match;
  if (std::regex_match(word, place)) return "1";
  if (std::regex_match(word, match, place_at_end)) return match[1].str() + "0.5";
  if (std::regex_match(word, match, file)) return "file" + match[1].str();
  return word;
}

// `train mlp|transformer --steps N` as the command lines that it stands for, and that can be
// parsed.
std::vector<std::string> expanded(const Words& words) {
  std::vector<std::string> lines = {""};
  for (const std::string& word : words) {
    std::vector<std::string> longer;
    std::istringstream alternatives(word);
    for (std::string one; std::getline(alternatives, one, '|');) {
      for (const std::string& line : lines) longer.push_back(line + " " + example_of(one));
    }
    lines = std::move(longer);
  }
  return lines;
}

// Why brrr does not accept arguments; empty: it does. Nothing runs: the first call ends with an
// argument that does not exist, which must be the first one that is refused, and the second one
// asks for help, which comes after the values of options were checked.
std::string refusal_of(const std::string& arguments) {
  const Ran unknown = brrr(arguments + " --no-such-option");
  if (unknown.status == 0) return "";  // asks for help or the version
  if (unknown.status != 2 || unknown.output.find(": --no-such-option") == std::string::npos)
    return unknown.output;
  const Ran help = brrr(arguments + " --help");
  return help.status == 0 ? "" : help.output;
}

struct CommandLine {
  std::string program;  // "brrr" or "./dev"
  Words arguments;
};

// The calls of brrr and ./dev in a line of a shell: after `$ ` and variables, one after each &&. A
// pipe ends a call, but in `brrr info | calibrate`, which lists alternatives.
std::vector<CommandLine> calls_in(const std::string& line, const std::set<std::string>& commands) {
  static const std::regex variable("[A-Z_]+=.*");
  std::vector<CommandLine> calls;
  CommandLine call;
  const auto finish = [&] {
    if (!call.program.empty()) calls.push_back(call);
    call = {};
  };
  bool in_call = true;
  for (const std::string& word : words_of(line)) {
    if (word == "#" || word == ">") break;
    if (word == "|") {
      const std::string program = call.program;
      finish();
      call.program = program;
      in_call = false;
    } else if (word == "&&") {
      finish();
      in_call = true;
    } else if (!in_call) {
      if (commands.count(word) == 0) return calls;
      call.arguments.push_back(word);
      in_call = true;
    } else if (!call.program.empty()) {
      call.arguments.push_back(word);
    } else if (word == "brrr" || word == "./dev") {
      call.program = word;
    } else if (word != "$" && !std::regex_match(word, variable)) {
      return calls;
    }
  }
  finish();
  return calls;
}

// Commands of ./dev, by its help.
std::set<std::string> dev_commands() {
  static const std::regex command("(?:^|\n)\\./dev ([a-z]+)");
  const Ran help = run("'" + brrr::testing::source_path("dev") + "' help");
  std::set<std::string> names = {"help"};
  for (std::sregex_iterator it(help.output.begin(), help.output.end(), command), end; it != end;
       ++it)
    names.insert((*it)[1]);
  return names;
}

struct Place {
  std::string at, line;
};

// Lines of code blocks, and `code` in text.
std::vector<Place> lines_of_code() {
  std::vector<Place> places;
  for (const Document& document : documents()) {
    if (document.path == "CHANGELOG.md") continue;
    for (const Span& span : document.spans) places.push_back({document.at(span.line), span.text});
    for (const CodeBlock& block : document.blocks) {
      int line = block.line;
      for (const std::string& text : lines_of(block.text))
        places.push_back({document.at(line++), text});
    }
  }
  return places;
}

const std::set<std::string>& commands() {
  static const std::set<std::string> names = names_under(brrr("--help").output, "Subcommands:");
  return names;
}

}  // namespace

TEST_CASE("command lines in documents are accepted", "[docs]") {
  const std::set<std::string> of_dev = dev_commands();
  REQUIRE(of_dev.size() > 5);
  int count = 0;
  for (const Place& place : lines_of_code()) {
    for (const CommandLine& call : calls_in(place.line, commands())) {
      if (call.arguments.empty()) continue;
      INFO(place.at << ": " << place.line);
      ++count;
      if (call.program == "./dev") {
        CHECK(of_dev.count(call.arguments[0]) == 1);
        continue;
      }
      for (const std::string& line : expanded(call.arguments)) CHECK(refusal_of(line) == "");
    }
  }
  CHECK(count >= 20);
}

TEST_CASE("docs/cli.md has each command and option, and no others", "[docs]") {
  const Document document = parse("docs/cli.md", text_of("docs/cli.md"));
  REQUIRE(commands().size() >= 7);
  for (const std::string& name : commands()) {
    INFO("## " << name);
    CHECK(std::count(document.anchors.begin(), document.anchors.end(), name) == 1);
  }
  std::set<std::string> options;
  collect_options("", options);
  static const std::regex option("--[a-z][a-z0-9-]*");
  std::set<std::string> named;
  for (const Span& span : document.spans) {
    for (std::sregex_iterator it(span.text.begin(), span.text.end(), option), end; it != end; ++it)
      named.insert((*it)[0]);
  }
  for (const std::string& name : options) {
    INFO(name << " is an option of the program");
    CHECK(named.count(name) == 1);
  }
  for (const std::string& name : named) {
    INFO(name << " is named in docs/cli.md");
    CHECK(options.count(name) == 1);
  }
}

TEST_CASE("docs/cli.md has each environment variable, and no others", "[docs]") {
  static const std::regex read("\"(BRRR_[A-Z_]+)\""), named_variable("BRRR_[A-Z_]+");
  std::set<std::string> variables, named;
  const std::string root = brrr::testing::source_path("");
  for (const char* folder :
       {"tensor", "dispatch", "ops", "autograd", "graph", "io", "nn", "measure", "cli"}) {
    for (const auto& each : std::filesystem::recursive_directory_iterator(root + folder)) {
      if (each.path().extension() != ".cpp") continue;
      const std::string text = text_of(each.path().lexically_relative(root));
      if (text.find("getenv") == std::string::npos && text.find("setting") == std::string::npos)
        continue;
      for (std::sregex_iterator it(text.begin(), text.end(), read), end; it != end; ++it)
        variables.insert((*it)[1]);
    }
  }
  for (const Span& span : parse("docs/cli.md", text_of("docs/cli.md")).spans) {
    for (std::sregex_iterator it(span.text.begin(), span.text.end(), named_variable), end;
         it != end; ++it)
      named.insert((*it)[0]);
  }
  CHECK(named == variables);
}

TEST_CASE("the checks of commands see what is wrong", "[docs]") {
  CHECK(refusal_of("train mlp --batch 4") == "");
  CHECK_THAT(refusal_of("train mlp --bach 4"), Catch::Contains("--bach"));
  CHECK_THAT(refusal_of("train mlp --mode grap"), Catch::Contains("grap"));
  CHECK_THAT(refusal_of("trian mlp"), Catch::Contains("trian"));
  CHECK(calls_in("$ BRRR_THREADS=2 brrr calibrate && brrr info | less", commands()).size() == 2);
  CHECK(calls_in("brrr info | calibrate | lab NAME", commands()).size() == 3);
  CHECK(calls_in("git clone brrr", commands()).empty());
  CHECK(expanded({"train", "mlp|transformer", "--steps", "N", "--remat", "budget=F"}) ==
        Words{" train mlp --steps 1 --remat budget=0.5",
              " train transformer --steps 1 --remat budget=0.5"});
}
