// Reads formula rows: assignments over named variables become values in single assignment.
#include <algorithm>
#include <cctype>
#include <numeric>

#include "brrr/dispatch/op_info.h"

namespace brrr {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Splits at commas outside of parentheses, and trims spaces.
std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  for (std::size_t start = 0, i = 0; i <= text.size(); ++i) {
    if (i < text.size()) depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
    if (i < text.size() && (text[i] != ',' || depth != 0)) continue;
    std::string_view part = text.substr(start, i - start);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    if (!part.empty()) parts.push_back(part);
    start = i + 1;
  }
  return parts;
}

// `current` is the value of each operand's name so far.
Formula::Assignment value_of(std::string_view text, const std::vector<std::string>& names,
                             const std::vector<int>& current) {
  Formula::Assignment value;
  std::string expression;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i + 1;
    while (is_word(text[i]) && end < text.size() && (is_word(text[end]) || text[end] == '.')) ++end;
    const std::string_view word = text.substr(i, end - i);
    const auto name = std::ranges::find(names, word);
    if (name == names.end()) {
      expression += word;
    } else {
      const int number = current[name - names.begin()];
      const auto place = std::ranges::find(value.operands, number) - value.operands.begin();
      if (place == static_cast<std::ptrdiff_t>(value.operands.size()))
        value.operands.push_back(number);
      expression += static_cast<char>('a' + place);
    }
    i = end;
  }
  value.expression = expression;
  return value;
}

}  // namespace

Formula parse_formula(std::string_view written, std::string_view read, std::string_view numbers,
                      std::string_view assignments) {
  Formula formula;
  const auto add = [&formula](std::string_view list) {
    for (const std::string_view name : parts_of(list.substr(1, list.size() - 2)))
      formula.operands.emplace_back(name);
    return static_cast<int>(formula.operands.size());
  };
  formula.written = add(written);
  formula.elements = add(read);
  std::vector<int> current(static_cast<std::size_t>(add(numbers)));
  std::iota(current.begin(), current.end(), 0);
  for (const std::string_view assignment : parts_of(assignments)) {
    const std::size_t sign = assignment.find('=');
    const std::string_view target = parts_of(assignment.substr(0, sign)).front();
    formula.values.push_back(
        value_of(parts_of(assignment.substr(sign + 1)).front(), formula.operands, current));
    const auto variable = std::ranges::find(formula.operands, target) - formula.operands.begin();
    current[variable] = static_cast<int>(formula.operands.size() + formula.values.size()) - 1;
  }
  formula.results.assign(current.begin(), current.begin() + formula.written);
  return formula;
}

}  // namespace brrr
