// Prints tensors like NumPy: in columns of one width; of long tensors only the head and tail.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <ostream>

#include "brrr/dispatch/dispatch.h"
#include "brrr/dispatch/tracing.h"
#include "brrr/ops/functions.h"
#include "brrr/tensor/host_copy.h"

namespace brrr {
namespace {

constexpr std::int64_t kMostValues = 1000;  // of longer tensors the edges are printed
constexpr std::int64_t kEdge = 3;
constexpr std::int64_t kLineWidth = 80;

// The first and last of each long dimension from `dim` on. Narrows before it copies, so that only
// what is printed is copied, whatever the size of the rest.
Tensor edges_of(const Tensor& x, int dim = 0) {
  if (dim == x.rank()) return x;
  const std::int64_t size = x.shape()[dim];
  if (size <= 2 * kEdge) return edges_of(x, dim + 1);
  return cat({edges_of(narrow(x, dim, 0, kEdge), dim + 1),
              edges_of(narrow(x, dim, size - kEdge, kEdge), dim + 1)},
             dim);
}

// Without the sign of a NaN, which depends on the machine.
std::string text_of(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{:.6g}", value);
}
std::string text_of(std::int64_t value) { return fmt::format("{}", value); }
std::string text_of(bool value) { return value ? "true" : "false"; }

template <class T>
std::vector<std::string> texts_of(const Tensor& x) {
  const Tensor values = contiguous(to(cast(x, dtype_of<T>), cpu));
  const auto host = std::make_unique<T[]>(static_cast<std::size_t>(x.numel()));
  copy_to_host(host.get(), values);
  std::vector<std::string> texts;
  for (std::int64_t i = 0; i < x.numel(); ++i) texts.push_back(text_of(host[i]));
  return texts;
}

std::vector<std::string> texts_of(const Tensor& x) {
  switch (category_of(x.dtype())) {
    case Category::boolean: return texts_of<bool>(x);
    case Category::integer: return texts_of<std::int64_t>(x);
    default: return texts_of<double>(x);
  }
}

class Printer {
 public:
  Printer(std::span<const std::string> texts, bool edges_only)
      : next_(texts.begin()), edges_only_(edges_only) {
    for (const std::string& text : texts) width_ = std::max(width_, text.size());
  }

  // Appends the elements of `shape`, whose first bracket is in column `indent`.
  void print(std::string& text, std::span<const std::int64_t> shape, std::int64_t indent) {
    if (shape.empty()) {
      text += fmt::format("{:>{}}", *next_++, width_);
      return;
    }
    const bool cut = edges_only_ && shape[0] > 2 * kEdge;
    const std::int64_t shown = cut ? 2 * kEdge : shape[0];
    const std::string next_line = ",\n" + std::string(static_cast<std::size_t>(indent) + 1, ' ');
    const std::int64_t in_a_line =
        shape.size() > 1
            ? 1
            : std::max<std::int64_t>(
                  (kLineWidth - indent - 1) / (static_cast<std::int64_t>(width_) + 2), 1);
    text += '[';
    for (std::int64_t i = 0; i < shown; ++i) {
      if (i > 0) text += i % in_a_line == 0 ? next_line : ", ";
      if (cut && i == kEdge) text += shape.size() > 1 ? "..." + next_line : "..., ";
      print(text, shape.subspan(1), indent + 1);
    }
    text += ']';
  }

 private:
  std::span<const std::string>::iterator next_;
  bool edges_only_;
  std::size_t width_ = 0;
};

}  // namespace

std::string to_string(const Tensor& x) {
  if (!x.defined() || x.is_meta() || tracing()) return x.describe();
  std::string text = x.describe() + "\n";
  if (x.numel() == 0) return text + "[]";
  const ExcludeKeys constant(bit(Key::autograd));
  const bool edges_only = x.numel() > kMostValues;
  const std::vector<std::string> texts = texts_of(edges_only ? edges_of(x) : x);
  Printer(texts, edges_only).print(text, x.shape(), 0);
  return text;
}

std::ostream& operator<<(std::ostream& out, const Tensor& x) { return out << to_string(x); }

}  // namespace brrr
