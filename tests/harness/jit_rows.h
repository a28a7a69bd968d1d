// Helpers of the tests of generated kernels: rows of the op table without kernels, a private disk
// cache.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <brrr/ops/jit/render.h>
#include <brrr/tensor/error.h>

namespace brrr::testing {

using namespace brrr::jit;

inline OpInfo row(const char* name, OpKind kind, int arity, DTypeSet types, DTypeRule rule,
                  const char* expression) {
  OpInfo info;
  info.name = name;
  info.kind = kind;
  info.arity = static_cast<std::int8_t>(arity);
  info.types = types;
  info.rule = rule;
  info.expression = expression;
  return info;
}

// The rows as the table has them, without their kernels.
inline std::vector<OpInfo> all_rows() {
  std::vector<OpInfo> rows;
#define POINTWISE(name, arity, types, rule, expression) \
  rows.push_back(                                       \
      row(#name, OpKind::pointwise, arity, dtype_sets::types, DTypeRule::rule, #expression));
#define BRRR_UNARY(name, types, rule, low, high, expression, ...) \
  POINTWISE(name, 1, types, rule, expression)
#define BRRR_BINARY(name, types, rule, low, high, expression, ...) \
  POINTWISE(name, 2, types, rule, expression)
#define BRRR_TERNARY(name, types, rule, low, high, expression, ...) \
  POINTWISE(name, 3, types, rule, expression)
#define BRRR_REDUCTION(name, types, rule, map, identity_, combine_, finish_, ...)             \
  rows.push_back(row(#name, OpKind::reduction, 1, dtype_sets::types, DTypeRule::rule, #map)); \
  rows.back().identity = #identity_;                                                          \
  rows.back().combine = #combine_;                                                            \
  rows.back().finish = #finish_;
#define BRRR_ARG_REDUCTION(name, before) \
  rows.push_back(row(#name, OpKind::arg_reduction, 1, dtype_sets::all, DTypeRule::same, #before));
#include <brrr/dispatch/ops.def>
#undef POINTWISE
  return rows;
}

inline const OpInfo& row_named(std::string_view name) {
  static const std::vector<OpInfo> rows = all_rows();
  for (const OpInfo& info : rows) {
    if (info.name == name) return info;
  }
  throw Error("no row " + std::string(name));
}

inline DType result_of(const OpInfo& info, DType dtype) {
  if (info.rule == DTypeRule::predicate) return boolean;
  if (info.rule == DTypeRule::widened && !is_floating(dtype)) return i64;
  return dtype;
}

// A row of the table as a body whose operands are all tensors, but for `scalars`.
inline Body body_of(const OpInfo& info, DType dtype, std::uint8_t scalars = 0) {
  std::vector<DType> inputs;
  for (int i = 0; i < info.arity; ++i) {
    if (!(scalars >> i & 1))
      inputs.push_back(i == 0 && info.rule == DTypeRule::select ? boolean : dtype);
  }
  return pointwise_body(info, dtype, scalars, inputs, result_of(info, dtype));
}

inline Schedule flat(int width, int unroll = 1) {
  Schedule schedule;
  schedule.width = width;
  schedule.unroll = unroll;
  return schedule;
}

// A directory for one test's cache; the environment is as before when it goes.
class CacheDirectory {
 public:
  CacheDirectory()
      : path_(std::filesystem::temp_directory_path() /
              ("brrr-test-" + std::to_string(::getpid()))) {
    if (const char* before = std::getenv("BRRR_CACHE_DIR")) before_ = before;
    std::filesystem::remove_all(path_);
    ::setenv("BRRR_CACHE_DIR", path_.c_str(), 1);
  }
  ~CacheDirectory() {
    if (before_.empty()) {
      ::unsetenv("BRRR_CACHE_DIR");
    } else {
      ::setenv("BRRR_CACHE_DIR", before_.c_str(), 1);
    }
    std::error_code ignored;
    std::filesystem::permissions(path_, std::filesystem::perms::owner_all, ignored);
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> list;
    if (!std::filesystem::exists(path_)) return list;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      list.push_back(entry.path());
    return list;
  }

 private:
  std::filesystem::path path_;
  std::string before_;
};

}  // namespace brrr::testing
