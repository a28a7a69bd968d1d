#include "brrr/graph/guards.h"

#include <fmt/format.h>

#include <algorithm>

namespace brrr::graph {
namespace {

int now(const SettingRead& read) { return read.state->value.load(std::memory_order_relaxed); }
bool differs(const SettingRead& read) { return now(read) != read.value; }

}  // namespace

Guards::Guards(const Graph& graph) : settings_(graph.settings) { follow(graph); }

void Guards::follow(const Graph& graph) {
  storages_.clear();
  for (const Buffer& buffer : graph.buffers) {
    if (buffer.kind == Buffer::Kind::captured)
      storages_.push_back({TensorImpl::of(buffer.captured)->storage, buffer.replaced});
  }
}

Guards::Verdict Guards::check() {
  const std::uint64_t changes = setting_changes.load(std::memory_order_acquire);
  if (changes == checked_at_) [[likely]]
    return Verdict::hold;
  for (const GuardedStorage& each : storages_) {
    if (each.storage->replaced.load(std::memory_order_relaxed) != each.replaced)
      return Verdict::replaced;
  }
  if (std::ranges::any_of(settings_, differs)) return Verdict::other_setting;
  checked_at_ = changes;
  return Verdict::hold;
}

std::string Guards::replacement(const Graph& graph) const {
  for (const Buffer& buffer : graph.buffers) {
    if (buffer.kind == Buffer::Kind::captured &&
        TensorImpl::of(buffer.captured)->storage->replaced.load(std::memory_order_relaxed) !=
            buffer.replaced)
      return fmt::format("{} was packed, or moved to other memory",
                         describe(graph, buffer.captured));
  }
  return "";
}

std::string Guards::difference() const {
  const auto found = std::ranges::find_if(settings_, differs);
  if (found == settings_.end()) return "";
  return fmt::format("{} is {}, and was {}", found->name, now(*found), found->value);
}

}  // namespace brrr::graph
