// The command profile: where the host's time of a training step goes.
#pragma once

#include <string>

#include <brrr/measure/ledger.h>
#include <brrr/measure/model_run.h>

namespace brrr::measure {

struct Profile {
  ModelRun run;
  Ledger ledger;
  int signal = 0;  // that ended the sampling early
};

// Trains, then samples further steps for run.seconds, or until Ctrl-C.
Profile profile(ModelRun run);

// A table with bars.
std::string to_text(const Profile& profile);
std::string to_json(const Profile& profile);  // commands_json.cpp
// Writes the flame graph of the samples.
void write_flame_graph(const Profile& profile, const std::string& file);

}  // namespace brrr::measure
