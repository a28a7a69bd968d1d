#include "brrr/graph/signature.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <set>

#include "brrr/autograd/autograd.h"
#include "brrr/autograd/run.h"
#include "brrr/graph/compile.h"
#include "brrr/graph/ir.h"
#include "brrr/ops/functions.h"
#include "brrr/ops/matmul.h"

namespace brrr::graph {
namespace {

// The settings of a thread and of the process that any function may depend on, a bit or a byte
// each.
enum : std::int64_t {
  kRecords = 1,
  kPrecision = 0xe,
  kChoice = 0x70,
  kLooksForAnomalies = 0x80,
  kDefaultDevice = 0xff00,
};

std::int64_t settings_word() {
  const Device device = default_device();
  return grad_enabled() | static_cast<int>(matmul_precision()) << 1 |
         static_cast<int>(matmul_choice()) << 4 | thread_context.detect_anomaly << 7 |
         static_cast<int>(device.type) << 8 | device.index << 12;
}

std::string difference_of_settings(std::int64_t now, std::int64_t before) {
  const std::int64_t changed = now ^ before;
  if (changed & kRecords)
    return now & kRecords ? "gradients are recorded" : "no gradients are recorded";
  if (changed & kPrecision) return "the precision of matrix products changed";
  if (changed & kChoice) return "the choice of matrix products changed";
  if (changed & kLooksForAnomalies) return "DetectAnomaly was switched";
  if (changed & kDefaultDevice) return "the default device changed";
  return "";
}

void add_words(const Tensor& x, std::vector<std::int64_t>& words) {
  constexpr std::uint32_t kType = 0x1fffff;  // dtype, device, rank, layout
  words.push_back(TensorImpl::of(x)->word.bits & kType);
  const auto shape = x.shape(), strides = x.strides();
  words.insert(words.end(), shape.begin(), shape.end());
  words.insert(words.end(), strides.begin(), strides.end());
  words.push_back(static_cast<std::int64_t>(misalignment_of(x)));
}

// A number among the arguments of a step.
struct Number {
  int argument = 0;
  std::int64_t kind = 0;
  std::int64_t value = 0;
};

std::vector<Number> numbers_in(std::span<const std::int64_t> statics) {
  std::vector<Number> numbers;
  int argument = 0;
  for (std::size_t i = 0; i < statics.size(); ++i, ++argument) {
    const std::int64_t kind = statics[i];
    if (core::is_number(kind)) numbers.push_back({argument, kind, statics[i + 1]});
    i += core::has_static(kind);
  }
  return numbers;
}

std::string text_of(const Number& number) {
  if (core::is_floating_number(number.kind))
    return fmt::format("{}", std::bit_cast<double>(number.value));
  return fmt::format("{}", number.value);
}

double value_of(const Number& number) {
  return core::is_floating_number(number.kind) ? std::bit_cast<double>(number.value)
                                               : static_cast<double>(number.value);
}

std::string difference_of_numbers(const Signature& now, const Signature& before) {
  const std::vector<Number> numbers = numbers_in(now.statics), others = numbers_in(before.statics);
  for (std::size_t i = 0; i < std::min(numbers.size(), others.size()); ++i) {
    if (numbers[i].value != others[i].value) {
      return fmt::format("argument {} is {}, and was {}", numbers[i].argument, text_of(numbers[i]),
                         text_of(others[i]));
    }
  }
  return "the arguments are of other kinds";
}

}  // namespace

std::vector<double> numbers_of(std::span<const std::int64_t> statics) {
  std::vector<double> values;
  for (const Number& number : numbers_in(statics)) values.push_back(value_of(number));
  return values;
}

void fill_words(const StepArguments& arguments, std::vector<std::int64_t>& words) {
  words.clear();
  words.push_back(settings_word());
  for (const Tensor& x : arguments.tensors) add_words(x, words);
  for (const Tensor& x : arguments.fixed) {
    add_words(x, words);
    words.push_back(reinterpret_cast<std::int64_t>(TensorImpl::of(x)->storage));
    words.push_back(x.storage_offset());
    // Which leaf it is matters, whatever memory it has.
    words.push_back(requires_grad(x) ? reinterpret_cast<std::int64_t>(TensorImpl::of(x)) : 0);
  }
  words.insert(words.end(), arguments.statics.begin(), arguments.statics.end());
}

Signature signature_of(const StepArguments& arguments, std::vector<std::int64_t> words) {
  Signature signature;
  signature.words = std::move(words);
  signature.text = describe(arguments);
  for (const Tensor& x : arguments.tensors) {
    signature.shapes.push_back(
        make_view(make_meta_tensor(x.dtype(), x.shape(), x.device()), x.shape(), x.strides()));
    signature.misalignments.push_back(misalignment_of(x));
  }
  for (const Tensor& x : arguments.fixed) signature.fixed.push_back(x.data());
  signature.statics.assign(arguments.statics.begin(), arguments.statics.end());
  return signature;
}

std::string describe(const StepArguments& arguments) {
  std::string text;
  for (const Tensor& x : arguments.tensors) text += (text.empty() ? "" : ", ") + x.describe();
  for (const Tensor& x : arguments.fixed)
    text += (text.empty() ? "fixed " : ", fixed ") + x.describe();
  return "(" + text + ")";
}

std::string difference(const Signature& now, const Signature& before) {
  if (now.shapes.size() != before.shapes.size()) {
    return fmt::format("there are {} tensors, and were {}", now.shapes.size(),
                       before.shapes.size());
  }
  for (std::size_t i = 0; i < now.shapes.size(); ++i) {
    const Tensor &x = now.shapes[i], &y = before.shapes[i];
    if (x.describe() != y.describe())
      return fmt::format("argument {} is {}, and was {}", i, x.describe(), y.describe());
    if (!std::ranges::equal(x.strides(), y.strides())) {
      return fmt::format("argument {} has strides {}, and had {}", i, to_string(Dims(x.strides())),
                         to_string(Dims(y.strides())));
    }
    if (now.misalignments[i] != before.misalignments[i]) {
      return fmt::format("argument {} starts {} bytes past a multiple of 16, and started {}", i,
                         now.misalignments[i], before.misalignments[i]);
    }
  }
  if (now.fixed != before.fixed) return "a fixed argument is another tensor";
  if (now.statics != before.statics) return difference_of_numbers(now, before);
  return difference_of_settings(now.words[0], before.words[0]);
}

std::string advice_on_numbers(std::span<const Signature* const> signatures) {
  if (signatures.empty()) return "";
  const std::vector<Number> numbers = numbers_in(signatures[0]->statics);
  std::string advice;
  std::size_t most = 2;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    std::set<std::int64_t> values;
    for (const Signature* signature : signatures) {
      const std::vector<Number> others = numbers_in(signature->statics);
      if (i < others.size()) values.insert(others[i].value);
    }
    if (values.size() <= most) continue;
    most = values.size();
    advice = fmt::format(
        "argument {} is a number that had {} values: pass it as a tensor, scalar_tensor(value), "
        "which replays read",
        numbers[i].argument, values.size());
  }
  return advice;
}

}  // namespace brrr::graph
