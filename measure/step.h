// A step that is measured: any callable without arguments, such as a compiled step or a lambda that
// trains once. What it returns, if anything, is its loss.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <brrr/graph/compile.h>
#include <brrr/tensor/tensor.h>

namespace brrr::measure {

const char* name_of(Mode mode);          // "fused"
const char* name_of(Rounding rounding);  // "fast"
std::string name_of(Remat remat);        // "min_cut", "budget=0.50"

class Step {
 public:
  Step() = default;
  // Owns the callable, which need not be copyable. Results are a tensor of one element, or none.
  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, Step> && std::invocable<std::decay_t<F>&>)
      Step(F&& callable)
      : call_([owned = std::make_shared<std::decay_t<F>>(std::forward<F>(callable))]() -> Tensor {
          using R = std::remove_cvref_t<std::invoke_result_t<std::decay_t<F>&>>;
          if constexpr (std::convertible_to<R, Tensor>) {
            return (*owned)();
          } else {
            static_assert(std::is_void_v<R>, "a step returns its loss, a tensor, or nothing");
            (*owned)();
            return {};
          }
        }) {}

  Tensor operator()() const { return call_(); }
  explicit operator bool() const { return call_ != nullptr; }

 private:
  std::function<Tensor()> call_;
};

// Losses as numbers. They are read from the device in batches: the host rarely waits, and a long
// run holds few tensors.
class Losses {
 public:
  void add(Tensor loss);
  // All losses; reads those that are still on the device.
  std::vector<double>& values();

 private:
  std::vector<Tensor> unread_;
  std::vector<double> values_;
};

}  // namespace brrr::measure
