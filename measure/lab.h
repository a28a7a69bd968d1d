// The lab: the experiments of "Making Deep Learning Go Brrrr From First Principles" (Horace He,
// 2022) and of notes on it, run on this machine. A finding has the article's numbers beside those
// measured here, and says whether the claim holds.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <brrr/measure/bench.h>
#include <brrr/measure/gpu_state.h>
#include <brrr/measure/svg_plot.h>

namespace brrr::measure {

struct LabOptions : BenchOptions {
  // Assumed bandwidth between devices, in bytes a second: by default that of a pod of eight H100.
  double link = 400e9;
};

struct Interval {
  double least = 0, most = 0;

  static Interval at_least(double value) {
    return {value, std::numeric_limits<double>::infinity()};
  }
};
std::string to_string(const Interval& claim);  // "1.60 to 2.60", "at least 100", "2.00"

struct Reading {
  std::string name;
  double value = 0;
  std::string unit = {};               // empty: a ratio or a count
  std::optional<double> article = {};  // the article's value
  std::optional<Interval> claim = {};  // the values for which the claim holds
  double spread = 0;                   // of its samples, as Timing::spread
  // The numbers that explain a value outside of the claim, in a clause.
  std::string miss = {};

  bool holds() const { return !claim || (value >= claim->least && value <= claim->most); }
  bool disturbed() const { return spread > 0.10; }
};

// Both axes are logarithmic.
struct Plot {
  std::string x;  // what the horizontal axis is
  std::vector<Series> series;
  std::string y = {};  // what the vertical axis is; empty: names of series have their units
};

enum class Outcome : std::uint8_t {
  confirmed,  // every reading with a claim holds
  differs,
  undecided,  // a reading with a claim is disturbed or incomplete
};
inline constexpr std::array<const char*, 3> kOutcomes = {"confirmed", "differs", "undecided"};
inline const char* name_of(Outcome outcome) { return kOutcomes[static_cast<std::size_t>(outcome)]; }

struct Finding {
  std::vector<Reading> readings;
  std::string why;  // numbers that explain the readings, in a sentence
  std::optional<Plot> plot = {};
  std::vector<LanePlot> timelines = {};  // of recorded steps
  std::string svg = {};  // a picture other than a plot (Experiment::picture); empty: none

  std::vector<std::string> incomplete = {};  // gaps in its measurements
  std::optional<GpuState> gpu = {};          // on CUDA, before and after

  Outcome outcome() const;
  // Why the outcome is undecided, a line each; empty: it is not.
  std::vector<std::string> doubts() const;
  double spread() const;  // the largest of a reading
  bool disturbed() const { return std::ranges::any_of(readings, &Reading::disturbed); }
  // "differs: eager over fused is 1.12 (claimed: 1.60 to 2.60)", "undecided: samples of ..."
  std::string verdict() const;
};

struct Experiment {
  const char* name;  // "cos-of-cos"
  const char* title;
  const char* claim;  // what the article found
  Finding (*run)(const LabOptions& options);
  const char* picture = nullptr;  // what Finding::svg shows; null: it is empty
};

// In the order of the article.
std::span<const Experiment> experiments();

// Repeats a disturbed experiment up to three times, and returns the run with the least spread; a
// quick experiment is run once. `why` then ends with what explains each reading that does not hold.
Finding run_experiment(const Experiment& experiment, const LabOptions& options);

}  // namespace brrr::measure
