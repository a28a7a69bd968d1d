// brrr_json_tests: what --json prints where a measurement failed or was disturbed. Results of such
// runs are made by hand, since no machine of the tests has them all, and their documents are
// checked by the schemas of docs/schemas.
#define CATCH_CONFIG_RUNNER
#include <cmath>
#include <limits>

#include "brrr/measure/compare_text.h"
#include "brrr/measure/trace.h"
#include "brrr/measure/verdict_text.h"
#include "cli/json_output.h"
#include "tests/harness/catch.h"
#include "tests/harness/json_schema.h"
#include "tests/harness/source_tree.h"

using namespace brrr;
using namespace brrr::cli;
using brrr::testing::JsonSchemas;
using Catch::Contains;
using Json = JsonSchemas::Json;

namespace {

// The document, which must be valid.
Json checked(const std::string& text, const char* schema) {
  static const JsonSchemas schemas(testing::source_path("docs/schemas"));
  const Json document = Json::parse(text);
  CHECK(schemas.violation(document, schema).value_or("") == "");
  return document;
}

measure::Timing timing(double us, double spread = 0.01) {
  return {.median = us * 1e-6,
          .least = us * 0.9e-6,
          .most = us * 1.2e-6,
          .spread = spread,
          .samples = 21};
}

measure::GpuState undisturbed() { return {.unavailable = {}, .processes = 1, .clock_mhz = 1980}; }

// A step on CUDA with all evidence for a verdict.
measure::Evidence evidence() {
  measure::Evidence e{.device = cuda(0), .step = timing(100), .queued = timing(40)};
  e.host = timing(90);
  e.cost.flops = e.cost.bytes = 1'000'000;
  e.cost.kernels = 10;
  e.cost.predicted = e.cost.predicted_at_timed_speed = {60'000'000, 10'000'000, 20'000'000};
  e.cost.on_device = {10'000'000, 10'000'000, 20'000'000};
  e.cost.roofline.moving_ps = 10'000'000;
  e.cost.roofline.computing_ps = 20'000'000;
  e.cost.calibrated = true;
  e.gpu = undisturbed();
  return e;
}

measure::Comparison comparison_of(const measure::Evidence& e,
                                  std::optional<measure::Timeline> timeline = {}) {
  measure::Comparison result;
  result.name = "mlp";
  result.device = e.device;
  result.facts = {{"batch", std::int64_t{8}}, {"tf32", false}, {"dtype", std::string("f32")}};
  measure::Side side;
  side.name = "eager";
  side.losses = {1, 0.5};
  side.step = e.step;
  side.cost = e.cost;
  side.host = e.host;
  side.device = e.queued;
  side.diagnosis = measure::judge(e);
  side.timeline = std::move(timeline);
  result.sides = {side};
  return result;
}

// The only row, without a verdict and with this among its problems.
Json refused(const measure::Comparison& comparison, const std::string& problem) {
  const Json document = checked(to_json(comparison, {}), "compare.json");
  const Json& row = document["rows"][0];
  CHECK(document["verdict"].is_null());
  CHECK(row["regime"].is_null());
  CHECK(row["shares"].is_null());
  CHECK(row["advice"].is_null());
  CHECK_THAT(row["problems"].dump(), Contains(problem));
  CHECK_THAT(verdict_text(comparison), Contains("no verdict") && Contains(problem));
  return row;
}

// The only row, with a verdict and with this among its doubts.
Json doubted(const measure::Comparison& comparison, const std::string& doubt) {
  const Json document = checked(to_json(comparison, {}), "compare.json");
  const Json& row = document["rows"][0];
  CHECK(document["verdict"].is_string());
  CHECK(row["regime"].is_string());
  CHECK(row["problems"].empty());
  CHECK_THAT(row["doubts"].dump(), Contains(doubt));
  CHECK_THAT(details_text(comparison), Contains("in doubt") && Contains(doubt));
  CHECK_THAT(to_text(comparison), Contains("in doubt"));
  return row;
}

measure::Timeline timeline_of(const std::string& source, std::vector<std::string> missing) {
  measure::Timeline t;
  t.device = cuda(0);
  t.source = source;
  t.missing = std::move(missing);
  t.untraced = timing(100);
  t.traced = timing(104);
  t.steps = {{.name = "step", .work = measure::HostWork::step, .start_ns = 0, .end_ns = 104'000}};
  t.host = {{.name = "add", .work = measure::HostWork::op, .start_ns = 0, .end_ns = 90'000}};
  t.spans = {{.name = "k", .start_ns = 10'000, .end_ns = 50'000, .cause = 0, .ops = "add"}};
  return t;
}

Json trace_of(const measure::Timeline& timeline) {
  measure::TraceResult result;
  result.out = "step.json";
  result.run.name = "mlp";
  result.run.facts = {{"batch", std::int64_t{8}},
                      {"width", std::int64_t{16}},
                      {"layers", std::int64_t{3}},
                      {"activation", std::string("relu")},
                      {"residual", false},
                      {"dtype", std::string("f32")},
                      {"optimizer", std::string("sgd")},
                      {"lr", 1e-3},
                      {"warmup", std::int64_t{0}},
                      {"clip", 0.0},
                      {"tf32", false},
                      {"seed", std::uint64_t{0}}};
  result.run.device = cuda(0);
  result.timeline = timeline;
  CHECK_FALSE(to_text(result).empty());
  return checked(to_json(result), "trace.json");
}

}  // namespace

TEST_CASE("complete evidence has a verdict") {
  const Json row = checked(to_json(comparison_of(evidence()), {}), "compare.json")["rows"][0];
  CHECK(row["regime"] == "overhead");
  CHECK(row["problems"].empty());
}

TEST_CASE("another process, a slowed clock and default ceilings are doubts of a verdict") {
  measure::Evidence e = evidence();
  e.gpu->processes = 2;
  doubted(comparison_of(e), "2 processes");
  e = evidence();
  e.gpu->slowed_by = {"hardware thermal slowdown"};
  doubted(comparison_of(e), "hardware thermal slowdown");
  e = evidence();
  e.step.spread = 0.5;
  doubted(comparison_of(e), "spread by 50 %");
  e = evidence();
  e.queued.reset();
  CHECK(refused(comparison_of(e), "its stream cannot queue")["busy"].is_null());
  e = evidence();
  e.cost.calibrated = false;
  e.cost.why_defaults = "/cache/c.json is damaged";
  doubted(comparison_of(e), "default ceilings (/cache/c.json is damaged)");
  e = evidence();
  e.drift = {"ceilings measured at 1980 MHz, now 1200"};
  doubted(comparison_of(e), "now 1200");
}

TEST_CASE("what NVML does not tell is listed beside the verdict") {
  measure::Evidence e = evidence();
  e.gpu = measure::GpuState{.unavailable = {"other processes on the card: no NVML \xff"}};
  const Json row = checked(to_json(comparison_of(e), {}), "compare.json")["rows"][0];
  CHECK_THAT(row["not_checked"].dump(), Contains("no NVML"));
  CHECK(row["regime"] == "overhead");
}

TEST_CASE("a timeline with lost records is not used") {
  measure::Evidence e = evidence();
  const measure::Timeline lost = timeline_of("CUPTI 13.0", {"CUPTI dropped 12 records"});
  measure::add_timeline(lost, e);
  const Json row = doubted(comparison_of(e, lost), "CUPTI dropped 12 records");
  CHECK(row["idle_by_cause"].is_null());
  CHECK(row["idle_sources"].empty());
  CHECK(row["timeline"]["complete"] == false);
}

TEST_CASE("without CUPTI the verdict is by timings, and says so") {
  for (const char* why : {"libcupti.so.13 not found", "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"}) {
    measure::Evidence e = evidence();
    e.without_kernels = true;
    e.without_timeline = why;
    const measure::Timeline events = timeline_of("events", {why});
    const Json row = checked(to_json(comparison_of(e, events), {}), "compare.json")["rows"][0];
    CHECK(row["basis"] == "timings");
    CHECK(row["caveats"][0] == "basis: timings only");
    CHECK(row["idle_unattributed"] == why);
    const Json traced = trace_of(events);
    CHECK(traced["complete"] == false);
    CHECK(traced["missing"][0] == why);
    CHECK(traced["idle_by_cause"].is_null());
  }
}

TEST_CASE("idle time of a step that recording slowed is by timings") {
  measure::Evidence e = evidence();
  measure::Timeline slowed = timeline_of("CUPTI 13.0", {});
  slowed.traced = timing(160);
  measure::add_timeline(slowed, e);
  const measure::Comparison comparison = comparison_of(e, slowed);
  const Json row = checked(to_json(comparison, {}), "compare.json")["rows"][0];
  CHECK(row["idle_by_cause"].is_null());
  double sum = 0;
  for (const Json& part : row["idle_estimate"]) sum += part["share"].get<double>();
  CHECK(sum == Approx(0.6));  // of 100 us the device works 40
  CHECK_THAT(verdict_text(comparison), Contains("host 60 % by untraced timings") &&
                                           Contains("recording made the step 60 % slower"));
}

TEST_CASE("a trace of a disturbed card, and one without steps, are valid") {
  measure::Timeline t = timeline_of("CUPTI 13.0", {});
  t.gpu = undisturbed();
  t.gpu->processes = 3;
  t.gpu->slowed_by = {"hardware power brake"};
  const Json traced = trace_of(t);
  CHECK(traced["disturbances"].size() == 2);
  CHECK(traced["idle_by_cause"]["host"].get<double>() > 0);
  trace_of({});
}

TEST_CASE("losses and readings that are not finite are null") {
  measure::Comparison diverged = comparison_of(evidence());
  diverged.sides[0].losses = {1, std::nan(""), std::numeric_limits<double>::infinity()};
  diverged.divergence = 1;
  const Json document = checked(to_json(diverged, {}), "compare.json");
  CHECK(document["finite"] == false);
  CHECK(document["rows"][0]["losses"][1].is_null());
}

TEST_CASE("a finding by disturbed or incomplete measurements is undecided") {
  const measure::Experiment& experiment = measure::experiments().front();
  ExperimentRun run{
      &experiment,
      {.readings = {{.name = "r", .value = 1, .claim = measure::Interval{0, 2}}}, .why = "w"}};
  run.finding.incomplete = {"CUPTI dropped 12 records"};
  run.finding.gpu = undisturbed();
  run.finding.gpu->processes = 2;
  const Json finding = checked(to_json(std::span(&run, 1), measure::LabOptions(), {}, nullptr),
                               "lab.json")["findings"][0];
  CHECK(finding["outcome"] == "undecided");
  CHECK(finding["confirmed"] == false);
  CHECK(finding["doubts"].size() == 2);
}

TEST_CASE("a disturbed calibration is not kept, and says why") {
  measure::Calibration calibration;
  calibration.device = cuda(0);
  calibration.ceilings = graph::default_ceilings(cpu);
  measure::Result copy;
  copy.name = "copy";
  copy.unit = "GB/s";
  copy.value = 1;
  copy.spread = 0.4;
  calibration.readings = {copy};
  calibration.first_rate = 1e12;
  calibration.last_rate = 5e11;
  calibration.gpu = undisturbed();
  calibration.gpu->processes = 2;
  calibration.gpu->slowed_by = {"hardware thermal slowdown"};
  const Json document = checked(to_json(calibration, "", {}), "calibrate.json");
  CHECK(document["kept"] == false);
  CHECK(document["file"].is_null());
  CHECK(document["disturbances"].size() >= 3);
}

int main(int argc, char** argv) { return Catch::Session().run(argc, argv); }  // for Catch2 2 and 3
