#include "brrr/dispatch/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <utility>

#include "brrr/dispatch/functions.def"
#include "brrr/tensor/fail.h"

namespace brrr {
namespace {

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
    constexpr std::array kPairs = {"<=", ">=", "==", "!=", "&&", "||", "<<", ">>"};
    for (const char* pair : kPairs) {
      if (text.starts_with(pair)) n = 2;
    }
  }
  return n;
}

// Whether the text after K is a number in parentheses, and not a term.
bool is_constant(std::string_view rest) {
  const std::size_t at = rest.find_first_not_of("(- ");
  return at != std::string_view::npos && (is_digit(rest[at]) || rest[at] == '.');
}

// The types that a function computes in.
enum class Kinds { any, floating, integer };

struct FunctionSignature {
  std::string_view name;
  int operands;
  Kinds kinds = Kinds::any;
  bool gives_flag = false;
};

#define BRRR_FUNCTION(name, ...) {#name, 1, Kinds::floating},
#define BRRR_FUNCTION2(name, vector, kinds) {#name, 2, Kinds::kinds},
#define BRRR_EXACT_FUNCTION2(name) {#name, 2, Kinds::floating},
constexpr FunctionSignature kFunctions[] = {
    BRRR_INEXACT_FUNCTIONS(BRRR_FUNCTION) BRRR_INEXACT_FUNCTIONS2(BRRR_FUNCTION2)
        BRRR_EXACT_FUNCTIONS2(BRRR_EXACT_FUNCTION2){"sqrt", 1, Kinds::floating},
    {"floor", 1},
    {"ceil", 1},
    {"trunc", 1},
    {"abs", 1},
    {"sign", 1},
    {"round_even", 1},
    {"where", 3},
    {"remainder", 2},
    {"maximum", 2},
    {"minimum", 2},
    {"is_finite", 1, Kinds::any, true},
    {"is_infinite", 1, Kinds::any, true},
    {"bit_not", 1, Kinds::integer}};
#undef BRRR_FUNCTION
#undef BRRR_FUNCTION2
#undef BRRR_EXACT_FUNCTION2

// Operators by how tightly they bind, the loosest first.
constexpr std::array<std::array<std::string_view, 4>, 10> kLevels = {{{"||"},
                                                                      {"&&"},
                                                                      {"|"},
                                                                      {"^"},
                                                                      {"&"},
                                                                      {"==", "!="},
                                                                      {"<=", ">=", "<", ">"},
                                                                      {"<<", ">>"},
                                                                      {"+", "-"},
                                                                      {"*", "/", "%"}}};
constexpr std::size_t kComparisons = 5, kEndOfComparisons = 7;

// The precedence level of an operator; kLevels.size() for any other token.
std::size_t level_of(std::string_view token) {
  if (token.empty()) return kLevels.size();
  const auto* const found = std::ranges::find_if(kLevels, [&](const auto& symbols) {
    return std::ranges::find(symbols, token) != symbols.end();
  });
  return static_cast<std::size_t>(found - kLevels.begin());
}

class Parser {
 public:
  Parser(std::string_view text, int arity, DTypeSet types, DTypeRule rule)
      : text_(text),
        arity_(arity),
        integers_((types & ~dtype_sets::floats) != 0),
        floats_((types & dtype_sets::floats) != 0),
        narrow_(contains(types, i32)),
        flags_(contains(types, boolean)),
        selects_(rule == DTypeRule::select) {
    advance();
  }

  std::string whole() {
    if (at_ == text_.size()) reject("an expression");
    const Term term = conditional();
    if (token_ == ")") reject("balanced parentheses");
    if (at_ < text_.size()) reject(fmt::format("an operator instead of \"{}\"", token_));
    return term.text;
  }

 private:
  // Text that computes a truth value (`flag`) or a number of the type computed in. The parser
  // tracks which, since C++ would promote either to int.
  struct Term {
    std::string text;
    bool flag = false;
  };
  // Bounds the recursion, since a text may nest more deeply than the stack allows. A pair of
  // parentheses counts twice.
  static constexpr int kDeepest = 256;

  [[noreturn]] void reject_at(std::size_t at, const std::string& what) const {
    fail("[register_op] expected {} at character {} of \"{}\"", what, at + 1, text_);
  }
  [[noreturn]] void reject(const std::string& what) const { reject_at(at_, what); }

  // To the next token; at the end it is empty.
  void advance() {
    at_ += token_.size();
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    const std::string_view rest = text_.substr(at_);
    token_ = rest.empty() ? rest : rest.substr(0, token_length(rest, kind_));
  }
  bool take(std::string_view symbol) {
    if (token_ != symbol) return false;
    advance();
    return true;
  }
  void expect(std::string_view symbol, const std::string& what) {
    if (!take(symbol)) reject(what);
  }
  void close() { expect(")", "balanced parentheses"); }

  static std::string as_number(const Term& term) {
    return term.flag ? fmt::format("where({}, K(1), K(0))", term.text) : term.text;
  }

  Term number_of(std::string text) const {
    return {flags_ ? fmt::format("K({})", text) : std::move(text)};
  }

  Term conditional() {
    if (++depth_ > kDeepest) reject("an expression that is nested less deeply");
    Term term = operation();
    if (take("?")) {
      const Term yes = conditional();
      expect(":", "\":\"");
      const Term no = conditional();
      term = {fmt::format("where({}, {}, {})", term.text, as_number(yes), as_number(no))};
    }
    --depth_;
    return term;
  }

  // A chain of operators that bind at least as tightly as those of `loosest`.
  Term operation(std::size_t loosest = 0) {
    Term left = unary();
    for (;;) {
      const std::size_t level = level_of(token_), at = at_;
      if (level == kLevels.size() || level < loosest) return left;
      const std::string symbol(token_);
      advance();
      left = joined(left, symbol, at, operation(level + 1), level);
    }
  }

  Term joined(const Term& left, const std::string& symbol, std::size_t at, const Term& right,
              std::size_t level) const {
    const auto call = [&](const char* name) {
      return number_of(fmt::format("{}({}, {})", name, as_number(left), as_number(right)));
    };
    const auto of_integers = [&](const char* instead) {
      if (floats_)
        reject_at(at, fmt::format("{} instead of \"{}\", as the op computes in floating types",
                                  instead, symbol));
    };
    if (symbol == "/" && integers_) return call("quotient");
    if (symbol == "%") {
      of_integers("remainder(a, b) or fmod(a, b)");
      return call("modulo");
    }
    if (symbol == "<<" || symbol == ">>") {
      of_integers("a product");
      return call(symbol == "<<" ? "shifted_left" : "shifted_right");
    }
    const bool bits = symbol == "&" || symbol == "|" || symbol == "^";
    const bool flags = left.flag && right.flag;
    if (bits && !flags) of_integers("comparisons on both sides");
    const bool gives_flag =
        symbol == "&&" || symbol == "||" || (level >= kComparisons && level < kEndOfComparisons);
    // Precedence is that of C++: no parentheses are added.
    const auto written = [&](const std::string& a, const std::string& b) {
      return fmt::format("{} {} {}", a, symbol, b);
    };
    if (gives_flag || (bits && flags)) return {written(left.text, right.text), true};
    return number_of(written(as_number(left), as_number(right)));
  }

  Term unary() {
    if (++depth_ > kDeepest) reject("an expression that is nested less deeply");
    Term term;
    if (take("+")) {
      term = unary();
    } else if (take("-")) {
      if (integers_ && !token_.empty() && kind_ == Token::number) {
        term = {fmt::format("K({})", number(true))};  // 2^63 is not an integer of any type
      } else {
        const std::string of = as_number(unary());
        term = number_of(of.starts_with('-') ? fmt::format("-({})", of) : fmt::format("-{}", of));
      }
    } else if (take("!")) {
      term = {fmt::format("!{}", unary().text), true};
    } else if (token_ == "~") {
      if (floats_) reject("\"!\" instead of \"~\", as the op computes in floating types");
      advance();
      term = number_of(fmt::format("bit_not({})", as_number(unary())));
    } else {
      term = primary();
    }
    --depth_;
    return term;
  }

  Term primary() {
    if (take("(")) {
      const Term inside = conditional();
      close();
      return {fmt::format("({})", inside.text), inside.flag};
    }
    if (!token_.empty() && kind_ == Token::number) return {fmt::format("K({})", number())};
    if (!token_.empty() && kind_ == Token::name) return name();
    if (token_.empty()) reject(depth_ > 2 ? "balanced parentheses" : "an operand");
    reject(fmt::format("an operand instead of \"{}\"", token_));
  }

  // The digits of a number, in a form that both compilers read alike for every type.
  std::string number(bool negative = false) {
    const std::string digits(token_);
    const std::size_t end = at_ + digits.size();
    const bool stands_alone = end == text_.size() || !is_name(text_[end]);
    double value = 0;
    const auto [stop, problem] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (!stands_alone || stop != digits.data() + digits.size()) reject("a number");
    if (problem != std::errc()) reject("a number that f64 holds");
    const bool whole = std::ranges::all_of(digits, is_digit);
    if (integers_) {
      if (!whole)
        reject(fmt::format("an integer instead of \"{}\", as the op computes in them", digits));
      const double bound = narrow_ ? 0x1p31 : 0x1p63;
      if (negative ? value > bound : value >= bound) {
        reject(fmt::format("an integer that {} holds instead of \"{}\"", narrow_ ? "i32" : "i64",
                           digits));
      }
    }
    advance();
    const char* sign = negative ? "-" : "";
    if (!whole) return sign + digits;
    // Refuses octal numbers, and integers that no C++ type can hold.
    const std::string rest =
        digits.substr(std::min(digits.find_first_not_of('0'), digits.size() - 1));
    if (integers_ && value == 0x1p63) return "-9223372036854775807 - 1";
    return fmt::format("{}{}{}", sign, rest, value < 0x1p63 ? "" : ".0");
  }

  Term name() {
    const std::string word(token_);
    const std::size_t at = at_;
    if (word.size() == 1 && word[0] >= 'a' && word[0] <= 'c') {
      if (word[0] - 'a' >= arity_) reject(fmt::format("one of the {} operands", arity_));
      advance();
      return {word, selects_ && word == "a"};
    }
    if (word == "K") return constant();
    const auto* const function = std::ranges::find(kFunctions, word, &FunctionSignature::name);
    if (function == std::end(kFunctions)) {
      reject(fmt::format("an operand or a known function instead of \"{}\"", word));
    }
    if (function->kinds == Kinds::floating ? integers_
                                           : function->kinds == Kinds::integer && floats_) {
      reject(fmt::format("an op that computes in {} types alone for \"{}\"",
                         function->kinds == Kinds::floating ? "floating" : "integer", word));
    }
    advance();
    const std::string many = fmt::format("{} operand{} of {}", function->operands,
                                         function->operands == 1 ? "" : "s", word);
    expect("(", "\"(\"");
    std::string arguments;
    for (int i = 0; i < function->operands; ++i) {
      if (i > 0) {
        if (token_ != ",")
          reject_at(token_.empty() ? at_ : at, token_.empty() ? "balanced parentheses" : many);
        advance();
        arguments += ", ";
      }
      const Term argument = conditional();
      arguments += word == "where" && i == 0 ? argument.text : as_number(argument);
    }
    if (token_ == ",") reject_at(at, many);
    close();
    const std::string call = fmt::format("{}({})", word, arguments);
    return function->gives_flag ? Term{call, true} : number_of(call);
  }

  // K around a number.
  Term constant() {
    advance();
    expect("(", "\"(\" after K");
    const bool negative = take("-");
    if (token_.empty() || kind_ != Token::number) reject("a number in K()");
    const std::string digits = number(negative);
    close();
    return {fmt::format("K({})", digits)};
  }

  std::string_view text_;
  int arity_;
  bool integers_, floats_, narrow_, flags_;  // which types the op computes in
  bool selects_;
  std::size_t at_ = 0;
  std::string_view token_;
  Token kind_ = Token::symbol;
  int depth_ = 0;
};

}  // namespace

std::string checked_expression(std::string_view text, int arity, DTypeSet types, DTypeRule rule) {
  return Parser(text, arity, types, rule).whole();
}

Algebra algebra_of(std::string_view expression) {
  std::string text;
  for (const char c : expression) {
    if (!std::isspace(static_cast<unsigned char>(c))) text += c;
  }
  // Whether the parenthesis at `open` closes at the end of the text.
  const auto is_closed_at_end = [&text](std::size_t open) {
    int depth = 0;
    for (std::size_t i = open; i < text.size(); ++i) {
      depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
      if (depth == 0) return i + 1 == text.size();
    }
    return false;
  };
  // Users' expressions that compute in bool have a K() around them.
  while (text.starts_with('(') || text.starts_with("K(")) {
    const std::size_t open = text.find('(');
    if (!is_closed_at_end(open)) break;
    text = text.substr(open + 1, text.size() - open - 2);
  }
  constexpr std::pair<std::string_view, Algebra> kForms[] = {
      {"a", Algebra::identity},     {"-a", Algebra::negation}, {"a+b", Algebra::sum},
      {"a-b", Algebra::difference}, {"a*b", Algebra::product}, {"a/b", Algebra::quotient}};
  for (const auto& [form, algebra] : kForms) {
    if (text == form) return algebra;
  }
  for (const std::string_view name : {"where", "maximum", "minimum"}) {
    if (text.starts_with(name) && text.substr(name.size()).starts_with('(') &&
        is_closed_at_end(name.size()))
      return Algebra::selection;
  }
  return Algebra::other;
}

int functions_of(std::string_view expression) {
  constexpr std::string_view kFunctions[] = {"logistic",
#define X(name, ...) #name,
                                             BRRR_INEXACT_FUNCTIONS(X) BRRR_INEXACT_FUNCTIONS2(X)
#undef X
  };
  int count = 0;
  for (Token kind; !expression.empty();) {
    const std::size_t length = std::max<std::size_t>(token_length(expression, kind), 1);
    count += std::ranges::count(kFunctions, expression.substr(0, length));
    expression.remove_prefix(length);
  }
  return count;
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
      if (token == "K") in_constant = is_constant(expression.substr(at + length));
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
