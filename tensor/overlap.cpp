#include "brrr/tensor/overlap.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <utility>

#include "brrr/tensor/strided_space.h"

namespace brrr {
namespace {

bool has_elements(const Region& region) {
  return std::ranges::find(region.shape, 0) == region.shape.end();
}

// Decides whether bounded multiples of some steps add up to a distance: z_0 * step_0 + z_1 * step_1
// + ... with 0 <= z_i <= most_i. Searches depth first, the largest step first. The sum that the
// smaller steps can reach bounds z_i from both sides, and their greatest common divisor excludes
// all values but one residue class. If each step exceeds the reach of the smaller ones, as in
// slices of one tensor, at most two values remain at each level and the search is linear.
class StepSums {
 public:
  void add(std::int64_t step, std::int64_t most) {
    if (step == 0 || most == 0) return;
    for (int i = 0; i < n_; ++i) {
      if (terms_[i].step == step) {
        terms_[i].most += most;
        return;
      }
    }
    terms_[n_++] = {step, most};
  }

  // Also returns true if kMostTries multiples did not decide the question.
  bool may_reach(std::int64_t distance) {
    std::ranges::sort(terms_, terms_ + n_, std::greater{}, &Term::step);
    reach_[n_] = common_[n_] = 0;
    for (int i = n_ - 1; i >= 0; --i) {
      reach_[i] = reach_[i + 1] + terms_[i].step * terms_[i].most;
      common_[i] = std::gcd(common_[i + 1], terms_[i].step);
    }
    return search(0, distance);
  }

 private:
  struct Term {
    std::int64_t step, most;
  };
  static constexpr int kMostTerms = 2 * kMaxDims + 1;
  static constexpr int kMostTries = 10'000;  // below a millisecond

  // Whether the terms from `first` on can add up to `distance`.
  bool search(int first, std::int64_t distance) {
    if (distance < 0 || distance > reach_[first]) return false;
    if (distance == 0) return true;
    if (distance % common_[first] != 0) return false;
    if (first == n_ - 1) return true;
    const auto [step, most] = terms_[first];
    const std::int64_t high = std::min(most, distance / step),
                       beyond = distance - reach_[first + 1];
    const std::int64_t low = beyond <= 0 ? 0 : (beyond + step - 1) / step;
    if (low > high) return false;
    // The remainder must be divisible by the common divisor of the smaller steps.
    const std::int64_t period = common_[first + 1] / common_[first];
    std::int64_t start = low;
    if (period > 1) {
      const std::int64_t wanted = times(distance / common_[first] % period,
                                        inverse(step / common_[first] % period, period), period);
      start += (wanted - low % period + period) % period;
    }
    for (std::int64_t z = start; z <= high; z += period) {
      if (++tries_ > kMostTries || search(first + 1, distance - z * step)) return true;
    }
    return false;
  }

  static std::int64_t times(std::int64_t a, std::int64_t b, std::int64_t modulus) {
    __extension__ using Wide = __int128;
    return static_cast<std::int64_t>(static_cast<Wide>(a) * b % modulus);
  }
  // The inverse of a number that is coprime to the modulus.
  static std::int64_t inverse(std::int64_t a, std::int64_t modulus) {
    std::int64_t r = modulus, next_r = a, t = 0, next_t = 1;
    while (next_r != 0) {
      const std::int64_t q = r / next_r;
      r = std::exchange(next_r, r - q * next_r);
      t = std::exchange(next_t, t - q * next_t);
    }
    return t < 0 ? t + modulus : t;
  }

  Term terms_[kMostTerms];
  int n_ = 0, tries_ = 0;
  std::int64_t reach_[kMostTerms + 1], common_[kMostTerms + 1];
};

}  // namespace

Region region_of(const Tensor& tensor) {
  return {tensor.shape(), tensor.strides(), tensor.storage_offset(),
          static_cast<std::int64_t>(size_of(tensor.dtype()))};
}

Extent extent_of(const Region& region) {
  if (!has_elements(region)) return {};
  Extent extent{region.offset * region.element, region.offset * region.element};
  for (std::size_t d = 0; d < region.shape.size(); ++d) {
    const std::int64_t reach = (region.shape[d] - 1) * region.strides[d] * region.element;
    (reach < 0 ? extent.low : extent.high) += reach;
  }
  extent.high += region.element;
  return extent;
}

bool may_overlap(const Region& a, const Region& b) {
  if (!has_elements(a) || !has_elements(b)) return false;
  const Extent x = extent_of(a), y = extent_of(b);
  if (x.high <= y.low || y.high <= x.low) return false;
  if (x.low == y.low || x.high == y.high) return true;  // they share their first or last byte
  // Every distance between elements of the two is this one and a multiple of `common`.
  std::int64_t distance = y.high - b.element - x.low, common = 0;
  for (const Region* region : {&a, &b}) {
    for (std::size_t d = 0; d < region->shape.size(); ++d) {
      if (region->shape[d] != 1) common = std::gcd(common, region->strides[d] * region->element);
    }
  }
  if (common != 0) {
    const std::int64_t rest = (distance % common + common) % common;
    if (rest >= a.element && common - rest >= b.element) return false;
  }
  // Steps up from the lowest element of a and down from the highest of b meet where an element of
  // each starts, give or take the bytes of an element.
  StepSums sums;
  for (const Region* region : {&a, &b}) {
    for (std::size_t d = 0; d < region->shape.size(); ++d)
      sums.add(std::abs(region->strides[d]) * region->element, region->shape[d] - 1);
  }
  // Whole elements coincide or are distinct.
  const bool aligned =
      a.element == b.element && common % a.element == 0 && distance % a.element == 0;
  if (!aligned) {
    sums.add(1, a.element - 1 + b.element - 1);
    distance += b.element - 1;
  }
  return sums.may_reach(distance);
}

bool may_overlap_itself(const Region& region) {
  if (!has_elements(region)) return false;
  StridedSpace space = space_of(region.shape);
  add_operand(space, region.shape, region.strides);
  sort_dims(space);
  coalesce(space);
  const auto stride = [&space](int d) { return std::abs(space.stride[0][d]); };
  std::int64_t reach = 0;
  bool nested = true;  // each stride steps over all that the smaller ones reach
  for (int d = space.rank - 1; d >= 0; --d) {
    nested &= stride(d) > reach;
    reach += stride(d) * (space.size[d] - 1);
  }
  if (nested) return false;
  // Two elements share a place when differences of their indices add up to 0. Of each pair of
  // elements, `first` is the first dimension in which they differ, where the difference is
  // positive.
  std::int64_t below = 0;  // what the dimensions after it reach
  for (int first = space.rank - 1; first >= 0; --first) {
    if (stride(first) == 0) return true;
    StepSums sums;
    for (int d = first + 1; d < space.rank; ++d) sums.add(stride(d), 2 * (space.size[d] - 1));
    sums.add(stride(first), space.size[first] - 2);
    if (below >= stride(first) && sums.may_reach(below - stride(first))) return true;
    below += stride(first) * (space.size[first] - 1);
  }
  return false;
}

}  // namespace brrr
