#include "tests/harness/samples.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "brrr/ops/functions.h"
#include "brrr/tensor/stream.h"
#include "brrr/tensor/tensor_impl.h"

namespace brrr::test {

std::uint64_t Random::next() {
  std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double Random::uniform(double low, double high) {
  return low + (high - low) * static_cast<double>(next() >> 11) * 0x1p-53;
}

std::uint64_t hash_text(const std::string& text) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (unsigned char c : text) h = (h ^ c) * 0x100000001b3u;
  return h;
}

const char* name_of(Layout layout) {
  switch (layout) {
    case Layout::contiguous: return "contiguous";
    case Layout::transposed: return "transposed";
    case Layout::strided: return "strided";
    case Layout::offset: return "offset";
    case Layout::expanded: return "expanded";
  }
  return "";
}

bool applies(Layout layout, const Dims& shape) {
  switch (layout) {
    case Layout::contiguous:
    case Layout::offset: return true;
    case Layout::transposed: return shape.size() >= 2;
    case Layout::strided: return shape.size() >= 1;
    case Layout::expanded: return shape.size() >= 1 && shape[0] > 1;
  }
  return false;
}

std::int64_t numel_of(std::span<const std::int64_t> shape) {
  std::int64_t n = 1;
  for (std::int64_t d : shape) n *= d;
  return n;
}

double round_to(DType dtype, double value) {
  switch (dtype) {
    case DType::f32: return static_cast<float>(value);
    case DType::f64: return value;
    case DType::f16: return static_cast<float>(Float16(static_cast<float>(value)));
    case DType::bf16: return static_cast<float>(BFloat16(static_cast<float>(value)));
    case DType::boolean: return value != 0;
    default: return static_cast<double>(static_cast<std::int64_t>(value));
  }
}

double draw(Random& random, DType dtype, double low, double high) {
  if (dtype == boolean) return std::ceil(low) >= 1 ? 1 : static_cast<double>(random.below(2));
  if (!is_floating(dtype)) {
    const auto first = static_cast<std::int64_t>(std::ceil(low));
    const auto last = static_cast<std::int64_t>(std::floor(high));
    return static_cast<double>(first + random.below(last - first + 1));
  }
  const double value = random.uniform(low, high);
  if (random.below(4) == 0) {
    const double half = std::round(value * 2) / 2;
    if (half >= low && half <= high) return half;
  }
  return round_to(dtype, value);
}

Values draw_many(Random& random, DType dtype, std::int64_t count, double low, double high) {
  Values values(static_cast<std::size_t>(count));
  for (double& v : values) v = draw(random, dtype, low, high);
  return values;
}

namespace {

void store(void* data, DType dtype, std::int64_t at, double value) {
  visit_dtype(dtype, [&](auto type) {
    using T = decltype(type);
    T element;
    if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
      element = T(static_cast<float>(value));
    } else {
      element = static_cast<T>(value);
    }
    std::memcpy(static_cast<char*>(data) + at * static_cast<std::int64_t>(sizeof(T)), &element,
                sizeof(T));
  });
}

double load(const void* data, DType dtype, std::int64_t at) {
  return visit_dtype(dtype, [&](auto type) -> double {
    using T = decltype(type);
    T element;
    std::memcpy(&element,
                static_cast<const char*>(data) + at * static_cast<std::int64_t>(sizeof(T)),
                sizeof(T));
    if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
      return static_cast<float>(element);
    } else {
      return static_cast<double>(element);
    }
  });
}

// Calls f(place) for the place of each element, row-major.
template <class F>
void each_place(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides, F&& f) {
  const std::int64_t count = numel_of(shape);
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i, place = 0;
    for (int d = static_cast<int>(shape.size()) - 1; d >= 0; --d) {
      const auto at = static_cast<std::size_t>(d);
      place += rest % shape[at] * strides[at];
      rest /= shape[at];
    }
    f(place);
  }
}

}  // namespace

Sample make_sample(Values values, const Dims& shape, DType dtype, Layout layout, Device device) {
  const int rank = shape.size();
  const std::int64_t count = numel_of(shape);
  if (!applies(layout, shape)) layout = Layout::contiguous;

  Dims strides = Dims::filled(rank, 0);
  std::int64_t offset = 0, step = 1;
  if (layout == Layout::offset) offset = 3;
  if (layout == Layout::strided) {
    offset = 1;
    step = 2;
  }
  if (layout == Layout::transposed) {
    for (int d = 0; d < rank; ++d) {
      strides[d] = step;
      step *= std::max<std::int64_t>(shape[d], 1);
    }
  } else {
    for (int d = rank - 1; d >= 0; --d) {
      strides[d] = step;
      step *= std::max<std::int64_t>(shape[d], 1);
    }
  }
  if (layout == Layout::expanded) {
    strides[0] = 0;
    const std::int64_t row = count / shape[0];
    for (std::int64_t i = row; i < count; ++i) {
      values[static_cast<std::size_t>(i)] = values[static_cast<std::size_t>(i % row)];
    }
  }

  Sample sample;
  std::int64_t last = 0;
  each_place(shape, strides, [&](std::int64_t place) {
    sample.places.push_back(offset + place);
    last = std::max(last, offset + place);
  });
  const std::int64_t size = last + 3;  // with a margin that nobody may write to
  sample.base_values.assign(static_cast<std::size_t>(size), round_to(dtype, 77));
  for (double& v : values) v = round_to(dtype, v);
  for (std::size_t i = 0; i < sample.places.size(); ++i) {
    sample.base_values[static_cast<std::size_t>(sample.places[i])] = values[i];
  }
  Tensor host = make_tensor(dtype, Dims{size}, cpu);
  for (std::int64_t i = 0; i < size; ++i) {
    store(host.data(), dtype, i, sample.base_values[static_cast<std::size_t>(i)]);
  }
  sample.base = device.is_cpu() ? host : to(host, device);
  sample.tensor = make_view(sample.base, shape, strides, offset);
  sample.values = std::move(values);
  return sample;
}

Values read(const Tensor& tensor) {
  const Tensor host = tensor.device().is_cpu() ? tensor : to(tensor, cpu);
  synchronize(tensor.device());
  Values values;
  values.reserve(static_cast<std::size_t>(host.numel()));
  each_place(host.shape(), host.strides(),
             [&](std::int64_t place) { values.push_back(load(host.data(), host.dtype(), place)); });
  return values;
}

Tolerance tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return {1.3e-6, 1e-5};
    case DType::f64: return {1e-7, 1e-7};
    case DType::f16: return {1e-3, 1e-5};
    case DType::bf16: return {1.6e-2, 1e-5};
    default: return {0, 0};
  }
}

bool matches(double got, double expected, DType dtype, const Match& match) {
  expected = round_to(dtype, expected);
  if (std::isnan(expected) || std::isnan(got)) return std::isnan(expected) && std::isnan(got);
  if (match.signs && std::signbit(expected) != std::signbit(got)) return false;
  if (std::isinf(expected) || std::isinf(got) || match.exact) return expected == got;
  const Tolerance tolerance = tolerance_of(dtype);
  const double allowed =
      is_floating(dtype)
          ? tolerance.absolute + tolerance.relative * std::abs(expected) + match.extra
          : 0;
  return std::abs(got - expected) <= allowed;
}

std::string difference(const Tensor& got, DType dtype, const Dims& shape, const Values& expected,
                       const Match& match) {
  if (!got.defined()) return "undefined result";
  if (got.dtype() != dtype) {
    return "dtype " + std::string(name_of(got.dtype())) + ", expected " +
           std::string(name_of(dtype));
  }
  if (Dims(got.shape()) != shape) {
    return "shape " + to_string(got.shape()) + ", expected " + to_string(shape);
  }
  const Values values = read(got);
  if (values.size() != expected.size()) return "the reference has another number of elements";
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (match.excused && (*match.excused)[i]) continue;
    if (!matches(values[i], expected[i], dtype, match)) {
      char line[160];
      std::snprintf(line, sizeof line, "element %zu is %.9g, expected %.9g", i, values[i],
                    round_to(dtype, expected[i]));
      return line;
    }
  }
  return "";
}

void Report::count(const std::string& cell, const std::string& problem) {
  ++cells;
  if (problem.empty()) return;
  ++failed;
  if (failures.size() < 25) failures.push_back(cell + ": " + problem);
}

std::string Report::text() const {
  std::string text = std::to_string(failed) + " of " + std::to_string(cells) + " cells failed";
  for (const std::string& failure : failures) text += "\n  " + failure;
  return text;
}

}  // namespace brrr::test
