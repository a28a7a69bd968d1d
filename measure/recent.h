// The most recent samples of a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <brrr/measure/timing.h>

namespace brrr::measure {

class Recent {
 public:
  void add(double seconds) {
    sum_ += seconds;
    ++count_;
    constexpr std::size_t kMost = 4096;
    if (samples_.size() < kMost) {
      samples_.push_back(seconds);
    } else {
      samples_[next_++ % kMost] = seconds;
    }
  }
  std::size_t size() const { return samples_.size(); }
  double mean() const { return count_ > 0 ? sum_ / static_cast<double>(count_) : 0; }
  // Where the host runs ahead of a device, most intervals are short and few wait: their mean is
  // what a call takes.
  Timing timing(bool runs_ahead) const {
    if (samples_.empty()) return {};
    Timing timing = summarize(samples_);
    if (runs_ahead) {
      timing.median = timing.least = timing.most = sum_ / static_cast<double>(count_);
      timing.spread = 0;
    }
    return timing;
  }

 private:
  std::vector<double> samples_;
  std::size_t next_ = 0;
  double sum_ = 0;
  std::int64_t count_ = 0;
};

}  // namespace brrr::measure
