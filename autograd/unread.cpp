#include "brrr/autograd/unread.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <span>

#include "brrr/autograd/tape_node.h"
#include "brrr/tensor/tensor_impl.h"

namespace brrr::autograd {
namespace {

std::mutex& mutex() {
  static auto* one = new std::mutex;
  return *one;
}
std::vector<UnreadLeaf>& leaves() {
  static auto* all = new std::vector<UnreadLeaf>;
  return *all;
}
std::atomic<std::size_t> count{0};

auto find(const History& history) {
  return std::ranges::find(leaves(), &history, &UnreadLeaf::history);
}

}  // namespace

bool has_unread() { return count.load(std::memory_order_relaxed) > 0; }

std::vector<UnreadLeaf> unread_leaves() {
  const std::lock_guard lock(mutex());
  return leaves();
}

void mark_seen(const UnreadLeaf& leaf, const void* by) {
  const std::lock_guard lock(mutex());
  const auto found = find(*leaf.history);
  if (found == leaves().end()) return;
  found->seen_by = by;
  found->seen_backwards = leaf.backwards;
}

void mark_read(const History& history) {
  if (history.reading.exchange(Reading::read, std::memory_order_relaxed) != Reading::unread) return;
  const std::lock_guard lock(mutex());
  if (const auto found = find(history); found != leaves().end()) leaves().erase(found);
  count.store(leaves().size(), std::memory_order_relaxed);
}

void forget(const UnreadLeaf& leaf) {
  const std::lock_guard lock(mutex());
  const auto found = std::ranges::find(leaves(), leaf.history, &UnreadLeaf::history);
  if (found == leaves().end()) return;
  found->history->reading.store(Reading::read, std::memory_order_relaxed);
  leaves().erase(found);
  count.store(leaves().size(), std::memory_order_relaxed);
}

void mark_read(const Tensor& leaf) {
  if (const History* const history = history_of(leaf)) mark_read(*history);
}

void note_backward(History& history, const TensorImpl& leaf) {
  const Reading before = history.reading.load(std::memory_order_relaxed);
  if (before == Reading::read) return;
  const std::lock_guard lock(mutex());
  auto found = find(history);
  if (found == leaves().end()) {
    const auto rank = static_cast<std::size_t>(leaf.word.rank());
    leaves().push_back({&history, &leaf, leaf.word.dtype(), Dims(std::span(leaf.dims, rank))});
    found = leaves().end() - 1;
    count.store(leaves().size(), std::memory_order_relaxed);
    history.reading.store(Reading::unread, std::memory_order_relaxed);
  }
  constexpr int kMostBackwards = 1 << 20;
  found->backwards = std::min(found->backwards + 1, kMostBackwards);
}

}  // namespace brrr::autograd
