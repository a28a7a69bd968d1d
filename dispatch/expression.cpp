#include "brrr/dispatch/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "brrr/dispatch/functions.def"
#include "brrr/dispatch/op_info.h"
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
    const bool hexadecimal = text.starts_with("0x");
    const char exponent = hexadecimal ? 'p' : 'e';
    const auto is_exponent = [&](char c) { return c == exponent || c == exponent - 'a' + 'A'; };
    while (n < text.size() && (is_digit(text[n]) || text[n] == '.' || is_exponent(text[n]) ||
                               (hexadecimal && is_name(text[n])) ||
                               ((text[n] == '+' || text[n] == '-') && is_exponent(text[n - 1])))) {
      ++n;
    }
  } else {
    kind = Token::symbol;
    for (const char* pair : {"<=", ">=", "==", "!=", "&&", "||", "<<", ">>"}) {
      if (text.starts_with(pair)) n = 2;
    }
  }
  return n;
}

using Types = ScalarFunction::Types;
using Guard = ScalarFunction::Guard;

constexpr ScalarFunction inexact(std::string_view name, int operands, Types types) {
  return {.name = name,
          .operands = static_cast<std::int8_t>(operands),
          .types = types,
          .inexact = true,
          .in_lanes = true,
          .guard = name == "sin" || name == "cos" ? Guard::possible : Guard::none};
}

#define BRRR_FUNCTION(name, ...) inexact(#name, 1, Types::floating),
#define BRRR_FUNCTION2(name, vector, types) inexact(#name, 2, Types::types),
#define BRRR_EXACT_FUNCTION2(exact) {.name = #exact, .operands = 2, .types = Types::floating},
constexpr ScalarFunction kFunctions[] = {
    {.name = "sqrt", .types = Types::floating, .in_lanes = true},
    {.name = "floor", .in_lanes = true},
    {.name = "ceil", .in_lanes = true},
    {.name = "trunc", .in_lanes = true},
    {.name = "abs", .in_lanes = true},
    {.name = "sign"},
    {.name = "round_even"},
    {.name = "where", .operands = 3, .op = ScalarOp::select, .in_lanes = true},
    {.name = "remainder", .operands = 2},
    {.name = "maximum", .operands = 2, .op = ScalarOp::maximum, .in_lanes = true},
    {.name = "minimum", .operands = 2, .op = ScalarOp::minimum, .in_lanes = true},
    {.name = "is_finite", .gives_flag = true},
    {.name = "is_infinite", .gives_flag = true},
    {.name = "bit_not", .types = Types::integer},
    {.name = "logistic", .for_users = false, .inexact = true, .in_lanes = true},
    {.name = "over", .operands = 2, .for_users = false, .in_lanes = true},
    {.name = "gated_slope", .operands = 2, .for_users = false, .in_lanes = true},
    {.name = "quotient", .operands = 2, .for_users = false},
    {.name = "modulo", .operands = 2, .for_users = false},
    {.name = "shifted_left", .operands = 2, .for_users = false},
    {.name = "shifted_right", .operands = 2, .for_users = false},
    {.name = "inverse_towards_zero", .for_users = false},
    {.name = "rest_of_inverse", .operands = 3, .for_users = false},
    {.name = "divided", .operands = 5, .for_users = false, .guard = Guard::required},
    {.name = "divided_for_bf16", .operands = 3, .for_users = false, .guard = Guard::required},
    BRRR_INEXACT_FUNCTIONS(BRRR_FUNCTION) BRRR_INEXACT_FUNCTIONS2(BRRR_FUNCTION2)
        BRRR_EXACT_FUNCTIONS2(BRRR_EXACT_FUNCTION2)};
#undef BRRR_FUNCTION
#undef BRRR_FUNCTION2
#undef BRRR_EXACT_FUNCTION2

const ScalarFunction* function_named(std::string_view name) {
  const auto* const found = std::ranges::find(kFunctions, name, &ScalarFunction::name);
  return found == std::end(kFunctions) ? nullptr : found;
}

// How tightly an operator binds; prefixes and calls bind tighter.
struct Infix {
  std::string_view symbol;
  ScalarOp op;
  int level;
};
constexpr int kPrefix = 10, kPrimary = 11;
constexpr Infix kInfix[] = {{"||", ScalarOp::logical_or, 0},    {"&&", ScalarOp::logical_and, 1},
                            {"|", ScalarOp::bit_or, 2},         {"^", ScalarOp::bit_xor, 3},
                            {"&", ScalarOp::bit_and, 4},        {"==", ScalarOp::equal, 5},
                            {"!=", ScalarOp::not_equal, 5},     {"<=", ScalarOp::less_equal, 6},
                            {">=", ScalarOp::greater_equal, 6}, {"<", ScalarOp::less, 6},
                            {">", ScalarOp::greater, 6},        {"<<", ScalarOp::call, 7},
                            {">>", ScalarOp::call, 7},          {"+", ScalarOp::add, 8},
                            {"-", ScalarOp::subtract, 8},       {"*", ScalarOp::multiply, 9},
                            {"/", ScalarOp::divide, 9},         {"%", ScalarOp::modulo, 9}};
constexpr bool is_bitwise(ScalarOp op) { return op >= ScalarOp::bit_or && op <= ScalarOp::bit_and; }

class Parser {
 public:
  // Of a row's text, which needs no checks.
  explicit Parser(std::string_view text)
      : text_(text), arity_(26), integers_(false), floats_(false), narrow_(false), flags_(false) {
    advance();
  }
  Parser(std::string_view text, int arity, DTypeSet types, DTypeRule rule)
      : text_(text),
        arity_(arity),
        integers_((types & ~dtype_sets::floats) != 0),
        floats_((types & dtype_sets::floats) != 0),
        narrow_(contains(types, i32)),
        flags_(contains(types, boolean)),
        selects_(rule == DTypeRule::select),
        trusted_(false) {
    advance();
  }

  std::vector<ScalarValue> whole() {
    if (at_ == text_.size()) reject("an expression");
    conditional();
    if (token_ == ")") reject("balanced parentheses");
    if (at_ < text_.size()) reject(fmt::format("an operator instead of \"{}\"", token_));
    return std::move(values_);
  }

 private:
  // A value that is a truth value (`flag`) or a number of the type computed in. The parser tracks
  // which, since C++ would promote either to int.
  struct Term {
    int value = 0;
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

  int add(ScalarValue value) {
    values_.push_back(std::move(value));
    return static_cast<int>(values_.size()) - 1;
  }
  int add(ScalarOp op, std::vector<int> operands) {
    return add({.op = op, .operands = std::move(operands)});
  }
  int add_constant(std::string digits) {
    return add({.op = ScalarOp::constant, .digits = std::move(digits)});
  }
  int add_call(std::string_view name, std::vector<int> operands) {
    const ScalarFunction* const function = function_named(name);
    return add({.op = function->op,
                .guarded = function->guard == Guard::required,
                .function = function,
                .operands = std::move(operands)});
  }
  int as_number(Term term) {
    if (!term.flag || trusted_) return term.value;
    const int one = add_constant("1"), zero = add_constant("0");
    return add_call("where", {term.value, one, zero});
  }
  Term number_of(int value) { return {flags_ ? add(ScalarOp::cast, {value}) : value}; }

  Term conditional() {
    if (++depth_ > kDeepest) reject("an expression that is nested less deeply");
    Term term = operation();
    if (take("?")) {
      const int yes = as_number(conditional());
      expect(":", "\":\"");
      const int no = as_number(conditional());
      term = {add_call("where", {term.value, yes, no})};
    }
    --depth_;
    return term;
  }

  // A chain of operators that bind at least as tightly as those of level `loosest`.
  Term operation(int loosest = 0) {
    Term left = unary();
    for (;;) {
      const auto* const infix = std::ranges::find(kInfix, token_, &Infix::symbol);
      const std::size_t at = at_;
      if (infix == std::end(kInfix) || infix->level < loosest) return left;
      advance();
      left = joined(left, *infix, at, operation(infix->level + 1));
    }
  }

  Term joined(Term left, const Infix& infix, std::size_t at, Term right) {
    const auto numbers = [&] {
      const int a = as_number(left);
      return std::vector<int>{a, as_number(right)};
    };
    const auto of_integers = [&](const char* instead) {
      if (floats_)
        reject_at(at, fmt::format("{} instead of \"{}\", as the op computes in floating types",
                                  instead, infix.symbol));
    };
    if (infix.op == ScalarOp::divide && integers_)
      return number_of(add_call("quotient", numbers()));
    if (infix.op == ScalarOp::modulo && !trusted_) {
      of_integers("remainder(a, b) or fmod(a, b)");
      return number_of(add_call("modulo", numbers()));
    }
    if (infix.op == ScalarOp::call) {
      of_integers("a product");
      return number_of(
          add_call(infix.symbol == "<<" ? "shifted_left" : "shifted_right", numbers()));
    }
    const bool bits = is_bitwise(infix.op), flags = left.flag && right.flag;
    if (bits && !flags) of_integers("comparisons on both sides");
    const bool logical = infix.op == ScalarOp::logical_or || infix.op == ScalarOp::logical_and;
    if (logical || (bits && flags)) return {add(infix.op, {left.value, right.value}), true};
    if (is_comparison(infix.op)) return {add(infix.op, numbers()), true};
    return number_of(add(infix.op, numbers()));
  }

  Term unary() {
    if (++depth_ > kDeepest) reject("an expression that is nested less deeply");
    Term term;
    if (take("+")) {
      term = unary();
    } else if (take("-")) {
      if (integers_ && !token_.empty() && kind_ == Token::number) {
        term = {add_constant(number(true))};  // 2^63 is not an integer of any type
      } else {
        term = number_of(add(ScalarOp::negate, {as_number(unary())}));
      }
    } else if (take("!")) {
      term = {add(ScalarOp::logical_not, {unary().value}), true};
    } else if (token_ == "~") {
      if (floats_) reject("\"!\" instead of \"~\", as the op computes in floating types");
      advance();
      term = number_of(add_call("bit_not", {as_number(unary())}));
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
      return inside;
    }
    if (!token_.empty() && kind_ == Token::number) return {add_constant(number())};
    if (!token_.empty() && kind_ == Token::name) return name();
    if (token_.empty()) reject(depth_ > 2 ? "balanced parentheses" : "an operand");
    reject(fmt::format("an operand instead of \"{}\"", token_));
  }

  // The digits of a number, in a form that both compilers read alike for every type.
  std::string number(bool negative = false) {
    const std::string digits(token_);
    if (trusted_) {
      advance();
      return negative ? "-" + digits : digits;
    }
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
    const int last = trusted_ ? 'z' : 'c';
    if (word.size() == 1 && word[0] >= 'a' && word[0] <= last) {
      if (word[0] - 'a' >= arity_) reject(fmt::format("one of the {} operands", arity_));
      advance();
      return {add({.op = ScalarOp::operand, .number = word[0] - 'a'}), selects_ && word == "a"};
    }
    if (word == "K") return constant();
    if (trusted_ && (word == "lowest" || word == "highest")) return limit();
    const ScalarFunction* const function = function_named(word);
    if (!function || !(function->for_users || trusted_))
      reject(fmt::format("an operand or a known function instead of \"{}\"", word));
    if (function->types == Types::floating ? integers_
                                           : function->types == Types::integer && floats_) {
      reject(fmt::format("an op that computes in {} types alone for \"{}\"",
                         function->types == Types::floating ? "floating" : "integer", word));
    }
    advance();
    const std::string many = fmt::format("{} operand{} of {}", function->operands,
                                         function->operands == 1 ? "" : "s", word);
    expect("(", "\"(\"");
    std::vector<int> arguments;
    for (int i = 0; i < function->operands; ++i) {
      if (i > 0) {
        if (token_ != ",")
          reject_at(token_.empty() ? at_ : at, token_.empty() ? "balanced parentheses" : many);
        advance();
      }
      const Term argument = conditional();
      const bool is_condition = function->op == ScalarOp::select && i == 0;
      arguments.push_back(is_condition ? argument.value : as_number(argument));
    }
    if (token_ == ",") reject_at(at, many);
    close();
    const int call = add_call(word, std::move(arguments));
    return function->gives_flag ? Term{call, true} : number_of(call);
  }

  // K around a number, or in a row around any value.
  Term constant() {
    advance();
    expect("(", "\"(\" after K");
    const bool negative = take("-");
    Term term;
    if (!token_.empty() && kind_ == Token::number) {
      term = {add_constant(number(negative))};
    } else if (trusted_ && !negative) {
      term = {add(ScalarOp::cast, {conditional().value})};
    } else {
      reject("a number in K()");
    }
    close();
    return term;
  }

  // lowest<T>()
  Term limit() {
    const ScalarOp op = token_ == "lowest" ? ScalarOp::lowest : ScalarOp::highest;
    advance();
    for (const char* symbol : {"<", "T", ">", "(", ")"}) expect(symbol, symbol);
    return {add(op, {})};
  }

  std::string_view text_;
  int arity_;
  bool integers_, floats_, narrow_, flags_;  // which types the op computes in
  bool selects_ = false, trusted_ = true;
  std::vector<ScalarValue> values_;
  std::size_t at_ = 0;
  std::string_view token_;
  Token kind_ = Token::symbol;
  int depth_ = 0;
};

// A value as C++, and how tightly its outermost operator binds.
struct Written {
  std::string text;
  ScalarOp op = ScalarOp::operand;
  int level = kPrimary;
};

Written written(const ScalarValue& value, std::vector<Written>& of) {
  // Each value has one reader.
  const auto operand = [&](std::size_t k, int least) {
    Written& from = of[static_cast<std::size_t>(value.operands[k])];
    const bool is_clear =
        !is_comparison(from.op) || !(is_comparison(value.op) || is_bitwise(value.op));
    if (from.level >= least && is_clear) return std::move(from.text);
    return fmt::format("({})", from.text);
  };
  if (value.function) {
    std::string text(value.function->name);
    for (std::size_t k = 0; k < value.operands.size(); ++k)
      text += (k == 0 ? "(" : ", ") + operand(k, 0);
    return {text + (value.guarded ? ", guard)" : ")")};
  }
  switch (value.op) {
    case ScalarOp::operand: return {std::string(1, static_cast<char>('a' + value.number))};
    case ScalarOp::constant: return {fmt::format("K({})", value.digits)};
    case ScalarOp::lowest: return {"lowest<T>()"};
    case ScalarOp::highest: return {"highest<T>()"};
    case ScalarOp::cast: return {fmt::format("K({})", operand(0, 0))};
    case ScalarOp::negate: return {"-" + operand(0, kPrimary), value.op, kPrefix};
    case ScalarOp::logical_not: return {"!" + operand(0, kPrefix), value.op, kPrefix};
    default: break;
  }
  const Infix& infix = *std::ranges::find(kInfix, value.op, &Infix::op);
  std::string left = operand(0, infix.level);
  left += fmt::format(" {} {}", infix.symbol, operand(1, infix.level + 1));
  return {std::move(left), value.op, infix.level};
}

std::string text_of(const std::vector<ScalarValue>& values) {
  std::vector<Written> written_values;
  for (const ScalarValue& value : values) written_values.push_back(written(value, written_values));
  return std::move(written_values.back().text);
}

}  // namespace

struct Expression::Parsed {
  std::vector<ScalarValue> values;
  std::string text;
  int flops = 0, functions = 0;

  // Without casts.
  const ScalarValue& result() const {
    const ScalarValue* value = &values.back();
    while (value->op == ScalarOp::cast)
      value = &values[static_cast<std::size_t>(value->operands[0])];
    return *value;
  }

  struct Table {
    std::mutex mutex;
    std::map<std::string, const Parsed*, std::less<>> by_text;
  };
  static Table& all() {
    static auto* const all = new Table;  // static destructors may still call ops
    return *all;
  }
};

Expression Expression::of(std::vector<ScalarValue> values) {
  auto parsed = std::make_unique<Parsed>();
  for (const ScalarValue& value : values) {
    parsed->flops += value.op >= ScalarOp::negate ? 1 : 0;
    parsed->functions += value.function && value.function->inexact ? 1 : 0;
  }
  parsed->text = text_of(values);
  parsed->values = std::move(values);
  Parsed::Table& all = Parsed::all();
  const std::lock_guard lock(all.mutex);
  const auto [place, is_new] = all.by_text.try_emplace(parsed->text, parsed.get());
  if (is_new) parsed.release();
  return Expression(place->second);
}

Expression Expression::of_row(std::string_view text) {
  if (text.empty()) return {};
  Parsed::Table& all = Parsed::all();
  {
    const std::lock_guard lock(all.mutex);
    if (const auto known = all.by_text.find(text); known != all.by_text.end())
      return Expression(known->second);
  }
  return of(Parser(text).whole());
}

Expression checked_expression(std::string_view text, int arity, DTypeSet types, DTypeRule rule) {
  return Expression::of(Parser(text, arity, types, rule).whole());
}

std::span<const ScalarValue> Expression::values() const {
  return parsed_ ? std::span(parsed_->values) : std::span<const ScalarValue>();
}
const std::string& Expression::text() const {
  static const auto* const none = new std::string;
  return parsed_ ? parsed_->text : *none;
}
int Expression::flops() const { return parsed_ ? parsed_->flops : 0; }
int Expression::functions() const { return parsed_ ? parsed_->functions : 0; }

bool Expression::is(ScalarOp op) const {
  if (!parsed_) return false;
  const ScalarValue& result = parsed_->result();
  if (result.op != op) return false;
  if (op == ScalarOp::operand) return result.number == 0;
  int number = 0;
  return std::ranges::all_of(result.operands, [&](int k) {
    const ScalarValue& operand = parsed_->values[static_cast<std::size_t>(k)];
    return operand.op == ScalarOp::operand && operand.number == number++;
  });
}

bool Expression::selects() const {
  const ScalarOp op = parsed_ ? parsed_->result().op : ScalarOp::operand;
  return op >= ScalarOp::select && op <= ScalarOp::minimum;
}

bool Expression::is_guarded() const { return std::ranges::any_of(values(), &ScalarValue::guarded); }

Expression Expression::with_guards() const {
  if (!parsed_) return {};
  std::vector<ScalarValue> values = parsed_->values;
  for (ScalarValue& value : values)
    value.guarded |= value.function && value.function->guard != Guard::none;
  return of(std::move(values));
}

Algebra algebra_of(Expression expression) {
  constexpr std::pair<ScalarOp, Algebra> kForms[] = {
      {ScalarOp::operand, Algebra::identity}, {ScalarOp::negate, Algebra::negation},
      {ScalarOp::add, Algebra::sum},          {ScalarOp::subtract, Algebra::difference},
      {ScalarOp::multiply, Algebra::product}, {ScalarOp::divide, Algebra::quotient}};
  for (const auto& [op, algebra] : kForms) {
    if (expression.is(op)) return algebra;
  }
  return expression.selects() ? Algebra::selection : Algebra::other;
}

}  // namespace brrr
