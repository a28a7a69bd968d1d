// The compiled steps that some work calls: a step of a program is one callable, whatever it
// replays.
#pragma once

#include <functional>
#include <vector>

#include <brrr/graph/replay_listener.h>
#include <brrr/tensor/device.h>

namespace brrr::measure {

// Listens from construction to destruction, beside others.
class ListeningToReplays {
 public:
  explicit ListeningToReplays(core::ReplayListener& listener);
  ~ListeningToReplays();
  ListeningToReplays(const ListeningToReplays&) = delete;
  ListeningToReplays& operator=(const ListeningToReplays&) = delete;

 private:
  core::ReplayListener& listener_;
};

// A listener that is the only one is not told of the next calls of a step, as long as it is the
// only one; how many are left is in the lower half of `step.unseen`. False: there are others.
// Called by the listener while it is told of a call.
bool hide_calls(core::CompiledStep& step, std::uint32_t calls);

// An entry of a compiled step. The step must live.
struct ReplayedEntry {
  core::CompiledStep* step = nullptr;
  int entry = 0;

  CompiledEntry report() const {
    return step->report().entries.at(static_cast<std::size_t>(entry));
  }
  std::vector<core::LaunchCost> launches() const { return step->launches(entry); }
};

// Runs the work; returns the device of its calls: CUDA, if one of them runs there.
Device device_of(const std::function<void()>& work);

// Runs the work; returns what it replays, in order.
std::vector<ReplayedEntry> replays_in(const std::function<void()>& work);

}  // namespace brrr::measure
