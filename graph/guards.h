// The conditions of a compiled entry beside its signature: settings that the function branched on,
// and memory that the library may replace (packing of parameters, a module moved to another
// device). If nothing has changed since the last call, checking them is one load.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <brrr/graph/ir.h>

namespace brrr::graph {

class Guards {
 public:
  // The graph's captured tensors must outlive the guards.
  explicit Guards(const Graph& graph);

  enum class Verdict : std::uint8_t {
    hold,
    other_setting,  // the guards may pass again
    replaced,       // they will never pass again
  };
  Verdict check();
  // Guards the memory that captured buffers of the graph have now.
  void follow(const Graph& graph);
  // Describes the first tensor of the graph whose memory was replaced.
  std::string replacement(const Graph& graph) const;
  // Describes the first setting that differs: "mlp.dropout.training() is 0, and was 1"; "" if none.
  std::string difference() const;
  const std::vector<SettingRead>& settings() const { return settings_; }

 private:
  struct GuardedStorage {
    const Storage* storage = nullptr;
    std::uint32_t replaced = 0;
  };
  std::vector<SettingRead> settings_;
  std::vector<GuardedStorage> storages_;
  // The count of changes when the guards last passed.
  std::uint64_t checked_at_ = ~std::uint64_t{0};
};

}  // namespace brrr::graph
