// One traced form of a compiled step, with what its calls are checked against.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <brrr/graph/choose.h>
#include <brrr/graph/guards.h>
#include <brrr/graph/program.h>
#include <brrr/graph/rematerialize.h>
#include <brrr/graph/replay_check.h>
#include <brrr/graph/signature.h>

namespace brrr::graph {

struct Entry {
  Signature signature;
  std::string reason;
  std::unique_ptr<Program> program;
  std::optional<Guards> guards;
  std::vector<HostConstant> host_constants;
  std::optional<RematReport> remat;    // under a policy
  std::optional<FusionChoice> choice;  // where times decided
  std::int64_t calls = 0;
  int traced_again = 0, renewed = 0, replaced = 0;
  double trace_ms = 0, plan_ms = 0, first_run_ms = 0;
  std::shared_ptr<const TracedCalls> traced;  // until `verified` reaches the options' number
  int verified = 0;
};

// What explain() says of it.
std::string to_string(const Entry& entry, const CompiledEntry& report);

// Why it was made, and how often it was traced again or got new memory.
std::string reason_of(const Entry& entry);

}  // namespace brrr::graph
