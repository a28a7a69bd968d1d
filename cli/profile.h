// brrr profile: where the host's time of a training step goes.
#pragma once

#include <string>

#include "cli/train.h"
#include <brrr/measure/ledger.h>

namespace brrr::cli {

struct Profile {
  TrainOptions options;
  measure::Ledger ledger;
};

// Trains for o.steps steps, then samples further ones for o.time_seconds.
Profile profile(const TrainOptions& o);

// A table with bars.
std::string to_text(const Profile& profile);
// Writes the flame graph of the samples.
void write_flame_graph(const Profile& profile, const std::string& file);

}  // namespace brrr::cli
