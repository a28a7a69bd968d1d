// Device spans without CUPTI: an event before and one after each op and replay.
#include <fmt/format.h>

#include <mutex>
#include <utility>
#include <vector>

#include "brrr/measure/cupti_recorder.h"
#include "brrr/measure/device_recorder.h"
#include "brrr/tensor/stream.h"

namespace brrr::measure {
namespace {

class EventRecorder final : public DeviceRecorder {
 public:
  EventRecorder(Device device, std::string why_no_cupti)
      : device_(device), why_(std::move(why_no_cupti)), base_(device, true) {
    synchronize(device);
    base_.record(Stream::current(device));
    base_.synchronize();
    base_ns_ = host_nanoseconds();
  }

  void begin(std::size_t span) override {
    const Stream stream = Stream::current(device_);
    Pair pair{span, stream.id(), Event(device_, true), Event(device_, true)};
    pair.start.record(stream);
    const std::lock_guard lock(mutex_);
    pairs_.push_back(std::move(pair));
  }

  void end(std::size_t span) override {
    const std::lock_guard lock(mutex_);
    for (auto pair = pairs_.rbegin(); pair != pairs_.rend(); ++pair) {
      if (pair->span != span) continue;
      pair->end.record(Stream::current(device_));
      pair->ended = true;
      return;
    }
  }

  std::string source() const override { return "events"; }

  DeviceRecords stop() override {
    synchronize(device_);
    DeviceRecords records;
    records.missing.push_back(fmt::format(
        "CUPTI cannot be used: {}; device spans are the times between events before and after each "
        "op and replay, so they include what the device waits for launches in them, and kernels, "
        "copies and calls of the driver are not distinguished",
        why_));
    for (const Pair& pair : pairs_) {
      if (!pair.ended) continue;  // an op that threw
      records.device.push_back({.stream = static_cast<std::uint64_t>(pair.stream),
                                .start_ns = at(pair.start),
                                .end_ns = at(pair.end),
                                .cause = pair.span});
    }
    return records;
  }

 private:
  struct Pair {
    std::size_t span;
    int stream;
    Event start, end;
    bool ended = false;
  };
  std::int64_t at(const Event& event) const {
    return base_ns_ + static_cast<std::int64_t>(event.milliseconds_since(base_) * 1e6);
  }

  Device device_;
  std::string why_;
  Event base_;
  std::int64_t base_ns_ = 0;
  std::mutex mutex_;
  std::vector<Pair> pairs_;
};

}  // namespace

std::unique_ptr<DeviceRecorder> record_cuda(Device device) {
  std::string why;
  if (auto recorder = record_by_cupti(why)) return recorder;
  return std::make_unique<EventRecorder>(device, std::move(why));
}

}  // namespace brrr::measure
