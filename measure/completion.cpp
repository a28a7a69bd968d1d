#include "brrr/measure/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

namespace brrr::measure {
namespace {

// The names that an option takes; empty: it takes numbers, files or nothing.
std::string names_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (type.find('|') == std::string::npos) return {};
  std::string names = type.substr(type.find(':') + 1);
  for (char& c : names) c = c == '|' ? ' ' : c;
  return names;
}

struct Cases {
  std::string values;    // "'compare mlp --remat') names='none min_cut' ;;"
  std::string commands;  // "'compare') names='mlp transformer' ;;"
};

// `path`: the words of the command, "compare mlp".
void add_cases(const CLI::App& command, const std::string& path, Cases& cases) {
  std::vector<std::string> names;
  for (const CLI::App* each : command.get_subcommands(nullptr)) {
    names.push_back(each->get_name());
    add_cases(*each, path + (path.empty() ? "" : " ") + each->get_name(), cases);
  }
  bool takes_files = false;
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name(), values = names_of(*option);
    if (name.starts_with("--")) {
      names.push_back(name);
      if (option->get_items_expected_max() > 0)
        cases.values += fmt::format("    '{} {}') names='{}' ;;\n", path, name, values);
    } else if (!values.empty()) {
      names.push_back(values);
    } else {
      takes_files = true;
    }
  }
  // Beside files, options are offered after a dash.
  cases.commands +=
      fmt::format("      '{}'{}names='{}' ;;\n", path,
                  takes_files ? "*) [[ $current == -* ]] && " : ") ", fmt::join(names, " "));
}

// How a shell names the words of the line, and how it is given those that may follow.
struct Shell {
  const char *current, *previous, *between, *offer;
};
constexpr Shell kBash = {
    "${COMP_WORDS[COMP_CWORD]}", "${COMP_WORDS[COMP_CWORD-1]}",
    "\"${COMP_WORDS[@]:1:COMP_CWORD-1}\"",
    "  COMPREPLY=($(compgen -W \"$names\" -- \"$current\"))\n}\ncomplete -o default -F"};
constexpr Shell kZsh = {
    "${words[CURRENT]}", "${words[CURRENT-1]}", "\"${(@)words[2,CURRENT-1]}\"",
    "  if [[ -n $names ]]; then compadd -- ${=names}; else _files; fi\n}\n"
    "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }\ncompdef"};

}  // namespace

// The command is the words up to the first option. After an option the names that it takes are
// offered, else commands and options; where there are none, files.
std::string completion_script(const CLI::App& app, const std::string& shell) {
  const std::string program = app.get_name();
  const Shell& in = shell == "zsh" ? kZsh : kBash;
  Cases cases;
  add_cases(app, "", cases);
  return fmt::format(R"(_{0}_completion() {{
  local command='' names='' word current={1} previous={2}
  for word in {3}; do
    case $word in
      -*) break ;;
      *) command="${{command:+$command }}$word" ;;
    esac
  done
  case "$command $previous" in
{4}    *) case $command in
{5}    esac ;;
  esac
{6} _{0}_completion {0}
)",
                     program, in.current, in.previous, in.between, cases.values, cases.commands,
                     in.offer);
}

}  // namespace brrr::measure
