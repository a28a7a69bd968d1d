#include "brrr/dispatch/op_info.h"

#include <fmt/format.h>

#include <atomic>
#include <deque>
#include <mutex>

#include "brrr/tensor/error.h"

namespace brrr {
namespace detail {

const OpInfo* op_table[kMaxOps];
void fill_builtin_ops(OpInfo* table);  // ops/table.cpp

namespace {

std::mutex registry_mutex;
std::atomic<int> count{0};

// Runs before all static initializers, whose order is nobody's in a static library, since they may
// call ops. The table is constant from then on but for run-time ops, which only append.
[[gnu::constructor(101)]] void fill() {
  static OpInfo builtin[kBuiltinOps];
  fill_builtin_ops(builtin);
  for (int i = 0; i < kBuiltinOps; ++i) op_table[i] = &builtin[i];
  count = kBuiltinOps;
}

}  // namespace
}  // namespace detail

int op_count() { return detail::count.load(); }

Op add_op(OpInfo info, std::string name) {
  struct Registered {
    std::string name;
    OpInfo info;
  };
  static std::deque<Registered>* registered = new std::deque<Registered>;
  std::lock_guard lock(detail::registry_mutex);
  const int number = detail::count.load();
  for (int i = 0; i < number; ++i) {
    if (name == detail::op_table[i]->name)
      fail(fmt::format("[register_op] expected a new name, got \"{}\", which exists", name));
  }
  if (number == detail::kMaxOps)
    fail(fmt::format("[register_op] expected fewer than {} ops, got {} as one more",
                     detail::kMaxOps, name));
  Registered& entry = registered->emplace_back(Registered{std::move(name), std::move(info)});
  entry.info.name = entry.name.c_str();
  detail::op_table[number] = &entry.info;
  detail::count.store(number + 1);
  return static_cast<Op>(number);
}

}  // namespace brrr
