#include "dispatch/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "tensor/error.h"

namespace brrr {
namespace {

constexpr std::array kFunctions = {"exp",        "expm1",   "log",       "log1p",       "sqrt",
                                   "sin",        "cos",     "tan",       "tanh",        "erf",
                                   "floor",      "ceil",    "trunc",     "abs",         "sign",
                                   "round_even", "pow",     "where",     "fmod",        "remainder",
                                   "maximum",    "minimum", "is_finite", "is_infinite", "bit_not"};

bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)); }

enum class Token { name, number, symbol };

// The length of the token at the start of `text`, which is not empty and starts with no space.
std::size_t token_length(std::string_view text, Token& kind) {
  std::size_t n = 1;
  if (is_name_start(text[0])) {
    kind = Token::name;
    while (n < text.size() && is_name(text[n])) ++n;
  } else if (is_digit(text[0]) || (text[0] == '.' && text.size() > 1 && is_digit(text[1]))) {
    kind = Token::number;
    while (n < text.size() &&
           (is_digit(text[n]) || text[n] == '.' || text[n] == 'e' || text[n] == 'E' ||
            ((text[n] == '+' || text[n] == '-') && (text[n - 1] == 'e' || text[n - 1] == 'E')))) {
      ++n;
    }
  } else {
    kind = Token::symbol;
    constexpr std::array kPairs = {"<=", ">=", "==", "!=", "&&", "||"};
    for (const char* pair : kPairs) {
      if (text.starts_with(pair)) n = 2;
    }
  }
  return n;
}

[[noreturn]] void reject(std::string_view text, std::size_t at, const std::string& why) {
  fail(fmt::format("[register_op] expected {} at character {} of \"{}\"", why, at + 1, text));
}

}  // namespace

std::string checked_expression(std::string_view text, int arity) {
  std::string result;
  int depth = 0;
  bool any = false, in_constant = false;
  for (std::size_t at = 0; at < text.size();) {
    if (std::isspace(static_cast<unsigned char>(text[at]))) {
      result += ' ';
      ++at;
      continue;
    }
    Token kind;
    const std::size_t length = token_length(text.substr(at), kind);
    const std::string_view token = text.substr(at, length);
    any = true;
    if (kind == Token::number) {
      if (std::ranges::count(token, '.') > 1 ||
          is_name(text.substr(at + length, 1).empty() ? ' ' : text[at + length])) {
        reject(text, at, "a number");
      }
      result += in_constant ? std::string(token) : fmt::format("K({})", token);
    } else if (kind == Token::name) {
      const bool operand = token.size() == 1 && token[0] >= 'a' && token[0] <= 'c';
      if (operand && token[0] - 'a' >= arity)
        reject(text, at, fmt::format("one of the {} operands", arity));
      if (token == "K") {
        in_constant = true;
      } else if (!operand && std::ranges::find(kFunctions, token) == kFunctions.end()) {
        reject(text, at, fmt::format("an operand or a known function instead of \"{}\"", token));
      }
      result += token;
    } else {
      if (token == "(") ++depth;
      if (token == ")" && --depth < 0) reject(text, at, "balanced parentheses");
      if (token == ")") in_constant = false;
      if (std::string_view("()+-*/%<>!&|^~?:,").find(token[0]) == std::string_view::npos &&
          token != "==") {
        reject(text, at, fmt::format("an operator instead of \"{}\"", token));
      }
      result += token;
    }
    at += length;
  }
  if (depth != 0) reject(text, text.size(), "balanced parentheses");
  if (!any) reject(text, 0, "an expression");
  return result;
}

int flops_of(std::string_view expression) {
  int count = 0;
  bool in_constant = false;
  for (std::size_t at = 0; at < expression.size();) {
    if (std::isspace(static_cast<unsigned char>(expression[at]))) {
      ++at;
      continue;
    }
    Token kind;
    const std::size_t length = token_length(expression.substr(at), kind);
    const std::string_view token = expression.substr(at, length);
    if (kind == Token::name) {
      if (token == "K") in_constant = true;
      count += token.size() > 1 ? 1 : 0;
    } else if (kind == Token::symbol) {
      if (token == ")") {
        in_constant = false;
      } else if (token != "(" && token != "," && token != ":" && !in_constant) {
        ++count;
      }
    }
    at += length;
  }
  return count;
}

}  // namespace brrr
