#include "brrr/measure/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

namespace brrr::measure {
namespace {

// What may follow the words so far, which are the case's pattern: "compare mlp".
void add_cases(const CLI::App& command, const std::string& path, std::string& cases) {
  std::vector<std::string> words;
  for (const CLI::App* each : command.get_subcommands(nullptr)) {
    words.push_back(each->get_name());
    add_cases(*each, path + (path.empty() ? "" : " ") + each->get_name(), cases);
  }
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (name.starts_with("--")) words.push_back(name);
    if (const std::string type = option->get_type_name(); type.find('|') != std::string::npos) {
      std::string values = type.substr(type.find(':') + 1);
      for (char& c : values) c = c == '|' ? ' ' : c;
      const std::string before = name.starts_with("--") ? " " + name : "";
      cases += fmt::format("    '{}{}') words='{}' ;;\n", path, before, values);
    }
  }
  cases += fmt::format("    '{}') words='{}' ;;\n", path, fmt::join(words, " "));
}

}  // namespace

// The command is the words up to the first option. After an option that takes names these are
// offered, else commands and options; where there are none, files.
std::string completion_script(const CLI::App& app, const std::string& shell) {
  const std::string program = app.get_name();
  std::string cases;
  add_cases(app, "", cases);
  const std::string zsh = shell == "zsh" ? "autoload -U +X bashcompinit && bashcompinit\n" : "";
  return fmt::format(R"({0}_{1}_completion() {{
  local path='' words='' word previous=${{COMP_WORDS[COMP_CWORD-1]}}
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case $word in
      -*) break ;;
      *) path="${{path:+$path }}$word" ;;
    esac
  done
  [[ $previous == --* ]] && case "$path $previous" in
{2}    *) ;;
  esac
  [[ $words ]] || case $path in
{2}    *) ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _{1}_completion {1}
)",
                     zsh, program, cases);
}

}  // namespace brrr::measure
