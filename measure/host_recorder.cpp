#include "brrr/measure/host_recorder.h"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "brrr/dispatch/cost.h"
#include "brrr/dispatch/op_info.h"
#include "brrr/measure/nvtx.h"
#include "brrr/measure/watch.h"
#include "brrr/tensor/allocator.h"
#include "brrr/tensor/fail.h"
#include "brrr/tensor/measure_library.h"

namespace brrr::measure {
namespace {

// A ticket: the number of the recording, bits for what `leave` must undo, and a span's index plus
// one.
constexpr std::uint64_t kRange = std::uint64_t{1} << 32, kReplay = kRange << 1,
                        kModule = kRange << 2, kSpan = kRange - 1;
constexpr int kRecordingShift = 35;

// Ranges are named by op and module.
bool has_range(HostActivity what) {
  return what != HostActivity::allocation && what != HostActivity::wait;
}

HostWork work_of(HostActivity what) {
  switch (what) {
    case HostActivity::backward: return HostWork::backward;
    case HostActivity::allocation: return HostWork::allocation;
    case HostActivity::replay: return HostWork::replay;
    case HostActivity::wait: return HostWork::wait;
    case HostActivity::trace:
    case HostActivity::module: break;
  }
  return HostWork::trace;
}

Device device_of(const Call& call) {
  return call.n_inputs > 0 ? call.input(0).device() : call.device;
}

// With BRRR_NVTX=1 ranges are pushed from the start of the process.
const bool kRangesFromStart = [] {
  measure_library_is_open = true;
  watch_from_environment();  // a program that links a static library has both, or neither
  if (!wants_nvtx()) return false;
  if (!has_nvtx())
    std::fputs("brrr: BRRR_NVTX=1 has no effect: built without nvtx3/nvToolsExt.h\n", stderr);
  if (has_nvtx()) HostRecorder::instance().always_push_ranges();
  return has_nvtx();
}();

}  // namespace

std::uint32_t native_thread() {
  const pthread_t self = pthread_self();
  std::uint32_t low = 0;
  std::memcpy(&low, &self, sizeof low);
  return low;
}

HostRecorder& HostRecorder::instance() {
  static HostRecorder* const recorder = new HostRecorder;
  return *recorder;
}

// Called without the lock: destroying an observer waits for calls inside it, which may need the
// lock.
void HostRecorder::attach() {
  if (!observing_) observing_.emplace(*this);
  host_listener.store(this, std::memory_order_release);
}

void HostRecorder::detach() {
  if (ranges_) return;
  host_listener.store(nullptr, std::memory_order_release);
  observing_.reset();
}

void HostRecorder::always_push_ranges() {
  ranges_ = true;
  attach();
}

void HostRecorder::start(Device device, DeviceRecorder* recorder) {
  {
    const std::lock_guard lock(lock_);
    if (recording_) fail("[record_timeline] expected one recording at a time, got a second one");
    recording_ = true;
    ++recordings_;
    device_ = device;
    recorder_ = recorder;
    threads_.clear();
    last_ = nullptr;
    native_threads_.clear();
    spans_.clear();
    spans_.reserve(1 << 14);
    memory_.clear();
    memory_.reserve(1 << 12);
    replays_.clear();
    this_thread();  // the first
  }
  attach();
}

HostRecord HostRecorder::stop() {
  detach();
  const std::lock_guard lock(lock_);
  close_op(this_thread(), host_nanoseconds());  // of an op that threw
  recording_ = false;
  recorder_ = nullptr;
  const std::int64_t now = host_nanoseconds();
  HostRecord record;
  for (Raw& raw : spans_) {
    if (raw.end_ns == 0) raw.end_ns = now;  // another thread is still inside the span
    record.spans.push_back({.name = raw.name,
                            .work = raw.work,
                            .thread = raw.thread,
                            .start_ns = raw.start_ns,
                            .end_ns = raw.end_ns,
                            .where = raw.where ? raw.where : ""});
  }
  record.native_threads = native_threads_;
  record.memory = std::move(memory_);
  record.replays = std::move(replays_);
  return record;
}

HostRecorder::Thread& HostRecorder::this_thread() {
  const std::thread::id id = std::this_thread::get_id();
  if (last_ && last_->id == id) return *last_;
  const auto found = std::ranges::find(threads_, id, [](const auto& each) { return each->id; });
  if (found != threads_.end()) return *(last_ = found->get());
  auto added = std::make_unique<Thread>();
  added->id = id;
  added->index = static_cast<int>(threads_.size());
  native_threads_.push_back(native_thread());
  threads_.push_back(std::move(added));
  return *(last_ = threads_.back().get());
}

const char* HostRecorder::interned(std::string_view name) {
  const auto found = names_.find(name);
  return (found != names_.end() ? found : names_.emplace(name).first)->c_str();
}

std::size_t HostRecorder::open(Thread& thread, const char* name, HostWork work) {
  const char* const where = thread.modules.empty() ? nullptr : thread.modules.back();
  spans_.push_back({name, work, thread.index, 0, 0, where});
  spans_.back().start_ns = host_nanoseconds();
  return spans_.size() - 1;
}

void HostRecorder::close_op(Thread& thread, std::int64_t end_ns) {
  if (!std::exchange(thread.in_op, false)) return;
  if (ranges_) pop_nvtx_range();
  if (!thread.op) return;
  if (DeviceRecorder* const told = std::exchange(thread.told, nullptr)) told->end(*thread.op);
  spans_[*thread.op].end_ns = end_ns;
  thread.op.reset();
}

// Ignores the calls of a CUDA replay, which observers see after the launch: they are no host work.
void HostRecorder::before(const Call& call) {
  const Device device = device_of(call);
  const std::lock_guard lock(lock_);
  Thread& thread = this_thread();
  if (thread.in_op) close_op(thread, host_nanoseconds());  // of an op that threw
  const char* const fused = std::exchange(thread.next_op, nullptr);
  if (thread.in_replays > 0 && device.is_cuda()) return;
  const char* const name = fused ? fused : op_info(call.op).name;
  thread.in_op = true;
  if (ranges_) push_nvtx_range(name);
  if (!recording_) return;
  thread.op = open(thread, name, HostWork::op);
  if (!recorder_ || device != device_ || !does_work(call)) return;
  thread.told = recorder_;
  recorder_->begin(*thread.op);
}

void HostRecorder::after(const Call&, std::span<const Tensor>) {
  const std::int64_t end = host_nanoseconds();
  const std::lock_guard lock(lock_);
  Thread& thread = this_thread();
  if (!thread.in_op) return;
  close_op(thread, end);
  if (recording_) memory_.push_back({end, memory_stats(device_).live});
}

std::uint64_t HostRecorder::enter(HostActivity what, const char* name) {
  const std::lock_guard lock(lock_);
  Thread& thread = this_thread();
  const char* const known = has_range(what) && what != HostActivity::replay ? interned(name) : name;
  std::uint64_t ticket = recordings_ << kRecordingShift;
  if (ranges_ && has_range(what)) {
    push_nvtx_range(known);
    ticket |= kRange;
  }
  if (what == HostActivity::module) {
    thread.modules.push_back(known);
    return ticket | kModule;
  }
  const bool replay = what == HostActivity::replay;
  if (replay) {
    ++thread.in_replays;
    ticket |= kReplay;
  }
  if (!recording_) return ticket;
  const std::size_t span = open(thread, known, work_of(what));
  if (replay) {
    thread.replays.push_back(span);
    if (recorder_) recorder_->begin(span);
  }
  return ticket | (span + 1);
}

std::uint64_t HostRecorder::begin_step() {
  const std::lock_guard lock(lock_);
  return recordings_ << kRecordingShift | (open(this_thread(), "step", HostWork::step) + 1);
}

void HostRecorder::leave(std::uint64_t ticket) {
  const std::int64_t end = host_nanoseconds();
  const std::lock_guard lock(lock_);
  Thread& thread = this_thread();
  const bool current = ticket >> kRecordingShift == recordings_;
  const std::uint64_t of_span = ticket & kSpan;
  if (current && recording_ && of_span > 0) {
    if (thread.op && *thread.op > of_span - 1) close_op(thread, end);  // of an op that threw
    spans_[of_span - 1].end_ns = end;
    if (ticket & kReplay && !thread.replays.empty()) {
      thread.replays.pop_back();
      if (recorder_) recorder_->end(of_span - 1);
    }
  }
  if (ticket & kRange) pop_nvtx_range();
  if (!current) return;  // the start of a recording has already reset the following
  if (ticket & kModule && !thread.modules.empty()) thread.modules.pop_back();
  if (ticket & kReplay && thread.in_replays > 0) --thread.in_replays;
}

void HostRecorder::next_op(const std::string& ops) {
  const std::lock_guard lock(lock_);
  this_thread().next_op = interned(ops);
}

void HostRecorder::replays(std::shared_ptr<const ReplayedKernels> kernels) {
  const std::lock_guard lock(lock_);
  Thread& thread = this_thread();
  if (recording_ && !thread.replays.empty())
    replays_.push_back({thread.replays.back(), std::move(kernels)});
}

}  // namespace brrr::measure
