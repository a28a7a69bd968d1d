// Flame graphs: how stacks are merged, and what the SVG has.
#include "brrr/measure/flame_graph.h"

#include <regex>

#include "tests/harness/catch.h"

using namespace brrr;
using measure::FlameNode;
using measure::HostClass;
using measure::HostProfile;

namespace {

// The sampler's frames and std::function's at the bottom, an op, a kernel, the user's code.
HostProfile small_profile() {
  HostProfile profile;
  for (const char* const name :
       {"brrr::measure::HostSampler::run", "std::_Function_handler::_M_invoke", "my_step",
        "brrr::add", "brrr::on_cpu::pointwise", "brrr::operator<<a&b>"}) {
    profile.frames.push_back({.function = name, .module = "program", .named = true});
  }
  profile.frames[4].module = profile.frames[3].module = "libbrrr.so.0";
  const auto add = [&](std::int64_t ns, std::vector<std::uint32_t> frames, bool complete = true) {
    profile.stacks.push_back(
        {.frames = std::move(frames), .ns = ns, .samples = ns / 100, .complete = complete});
  };
  add(6000, {4, 3, 2, 1, 1, 0});
  add(2000, {3, 3, 2, 1, 1, 0});  // calls itself
  add(1500, {2, 1, 0});
  add(500, {5}, /*complete=*/false);
  return profile;
}

const FlameNode& callee(const FlameNode& node, std::string_view name) {
  for (const FlameNode& each : node.callees) {
    if (each.name == name) return each;
  }
  FAIL("no " << name << " below " << node.name);
  throw 0;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("stacks are merged from the step on", "[flame]") {
  const FlameNode root = measure::flame_tree(small_profile());
  CHECK(root.ns == 10000);
  CHECK(root.samples == 100);
  REQUIRE(root.callees.size() == 2);
  const FlameNode& step = callee(root, "my_step");
  CHECK(&step == root.callees.data());  // the longest first
  CHECK(step.ns == 9500);
  CHECK(step.of == HostClass::user);
  const FlameNode& add = callee(step, "brrr::add");
  CHECK(add.ns == 8000);
  CHECK(add.of == HostClass::dispatch);
  REQUIRE(add.callees.size() == 1);  // not itself
  CHECK(add.callees[0].name == "brrr::on_cpu::pointwise");
  CHECK(add.callees[0].of == HostClass::kernels);
  CHECK(callee(root, "(stack not followed further)").callees.size() == 1);
}

TEST_CASE("a flame graph is one SVG that needs nothing else", "[flame]") {
  const std::string svg =
      measure::flame_svg(small_profile(), {.title = "a < b & c", .step_ns = 900});
  CHECK(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK(svg.find("role=\"img\"") != svg.npos);
  CHECK(svg.find(">a &lt; b &amp; c</title>") != svg.npos);
  CHECK(svg.find(">100 samples of the host thread, 900 ns a step. ") != svg.npos);
  CHECK(svg.find("kernels on this thread: 60.0 %. ") != svg.npos);
  CHECK(svg.find("prefers-color-scheme:dark") != svg.npos);
  CHECK(svg.find("<script") == svg.npos);
  CHECK(svg.find("href") == svg.npos);
  CHECK(svg.find("url(") == svg.npos);
  CHECK(svg.find("<title>brrr::on_cpu::pointwise: 60.0 %, 60 samples, kernels, 540 ns a step"
                 "</title>") != svg.npos);
  CHECK(svg.find("brrr::operator&lt;&lt;a&amp;b&gt;") != svg.npos);
  CHECK(svg.find(">add</text>") != svg.npos);  // without the namespace
  CHECK(svg.find("sampler") == svg.npos);
  for (const char* const tag : {"g", "text", "title", "style", "svg", "desc"}) {
    INFO(tag);
    const std::string name = tag;
    CHECK(count(svg, "<" + name + ">") + count(svg, "<" + name + " ") ==
          count(svg, "</" + name + ">"));
  }
  // Each frame and each class of the legend.
  CHECK(count(svg, "<rect ") == 6 + 3);
}

TEST_CASE("frames too narrow to see are left out", "[flame]") {
  HostProfile profile = small_profile();
  profile.stacks[0].ns = 100'000'000;
  const std::string svg = measure::flame_svg(profile, {.title = "narrow"});
  CHECK(svg.find("(stack not followed further)") == svg.npos);
  CHECK(svg.find("on_cpu::pointwise</text>") != svg.npos);
  CHECK(svg.find("a step") == svg.npos);  // the step's time is not known
}

TEST_CASE("no samples make an empty flame graph", "[flame]") {
  const std::string svg = measure::flame_svg({}, {.title = "none"});
  CHECK(svg.find("0 samples of the host thread") != svg.npos);
  CHECK(count(svg, "<rect ") == 0);
}
