#include "brrr/measure/flame_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>

#include "brrr/measure/bench.h"
#include "brrr/measure/markup.h"
#include "brrr/measure/text.h"

namespace brrr::measure {
namespace {

constexpr double kWidth = 1200, kRow = 19, kLetter = 6.7, kHead = 62;
constexpr double kNarrowestFrame = 0.6;  // narrower frames are not drawn

// Whether a function only forwards a call: std::function, std::apply and the like.
bool passes_on(const Frame& frame) {
  return frame.function.starts_with("std::_Function_handler") ||
         frame.function.starts_with("std::function::") ||
         frame.function.starts_with("std::__invoke") || frame.function.starts_with("std::invoke");
}

// Whether a frame at the bottom of a stack belongs to the sampler or the timing loop around the
// step.
bool runs_the_step(const Frame& frame) {
  return passes_on(frame) || frame.function.starts_with("brrr::measure::HostSampler") ||
         frame.function.starts_with("brrr::measure::synchronized_batch") ||
         frame.function.starts_with("brrr::measure::host_batch") ||
         frame.function.starts_with("brrr::measure::host_ledger");
}

FlameNode& callee(FlameNode& node, const std::string& name) {
  const auto known = std::ranges::find(node.callees, name, &FlameNode::name);
  if (known != node.callees.end()) return *known;
  return node.callees.emplace_back(FlameNode{.name = name, .callees = {}});
}

void sort_by_time(FlameNode& node) {
  std::ranges::sort(node.callees, [](const FlameNode& a, const FlameNode& b) {
    return a.ns != b.ns ? a.ns > b.ns : a.name < b.name;
  });
  for (FlameNode& each : node.callees) sort_by_time(each);
}

int depth_of(const FlameNode& node) {
  int depth = 0;
  for (const FlameNode& each : node.callees) depth = std::max(depth, depth_of(each));
  return depth + 1;
}

// Shortens a name to the width of a frame: drops outer namespaces first, then the end of the name.
std::string label_of(const std::string& name, double width) {
  const auto letters = static_cast<std::size_t>(std::max(0.0, (width - 6) / kLetter));
  if (letters < 3) return {};
  std::string_view shown = name;
  if (shown.starts_with("brrr::")) shown.remove_prefix(6);
  for (std::size_t colons; shown.size() > letters && (colons = shown.find("::")) != shown.npos;)
    shown.remove_prefix(colons + 2);
  if (shown.size() <= letters) return std::string(shown);
  return std::string(shown.substr(0, letters - 2)) + "..";
}

// Colors by class, in a light and a dark scheme; text is readable on each.
struct Colors {
  const char *light, *dark;
};
constexpr std::array<Colors, kHostClasses> kColors = {{{"#9fd8a4", "#1f6b2c"},
                                                       {"#ffc59e", "#8a4513"},
                                                       {"#f6e08a", "#6f5c00"},
                                                       {"#9ecbf5", "#1c5586"},
                                                       {"#d3b8f2", "#5d3a8c"},
                                                       {"#f5a9b8", "#8c2f45"},
                                                       {"#b8c0cc", "#47505d"},
                                                       {"#a5e0dc", "#11635e"},
                                                       {"#e4d6c4", "#5c4a34"},
                                                       {"#dedede", "#4a4a4a"}}};

std::string style() {
  std::string light, dark;
  for (std::size_t i = 0; i < kHostClasses; ++i) {
    light += fmt::format(".brrr-flame .c{} rect{{fill:{}}}", i, kColors[i].light);
    dark += fmt::format(".brrr-flame .c{} rect{{fill:{}}}", i, kColors[i].dark);
  }
  return fmt::format(
      "<style>.brrr-flame{{background:#fff}}.brrr-flame text{{font:11px ui-monospace,Menlo,"
      "Consolas,monospace;fill:#111}}.brrr-flame .head{{font:600 16px system-ui,sans-serif}}"
      ".brrr-flame .note{{font:12px system-ui,sans-serif}}.brrr-flame rect{{stroke:#fff;"
      "stroke-width:.5}}{}@media (prefers-color-scheme:dark){{.brrr-flame{{background:#16181c}}"
      ".brrr-flame text{{fill:#f2f2f2}}.brrr-flame rect{{stroke:#16181c}}{}}}</style>\n",
      light, dark);
}

class Drawing {
 public:
  Drawing(const FlameNode& root, const FlameGraph& graph)
      : graph_(graph), all_(root.ns), height_(kHead + kRow * depth_of(root) + 6) {}

  double height() const { return height_; }

  // A frame, and above it its callees from left to right.
  void draw(const FlameNode& node, double x, int depth) {
    const double width = kWidth * share(node);
    if (width < kNarrowestFrame) return;
    const double y = height_ - 6 - kRow * (depth + 1);
    const std::string label = label_of(node.name, width);
    text_ += fmt::format("<g class=\"c{}\"><title>{}: {}</title><rect x=\"{:.2f}\" y=\"{:.1f}\" ",
                         static_cast<int>(node.of), escaped(node.name), amount(node), x, y);
    text_ += fmt::format("width=\"{:.2f}\" height=\"{:.0f}\" rx=\"1\"/>", width, kRow - 1);
    if (!label.empty())
      text_ +=
          fmt::format("<text x=\"{:.2f}\" y=\"{:.1f}\">{}</text>", x + 3, y + 13, escaped(label));
    text_ += "</g>\n";
    for (const FlameNode& each : node.callees) {
      draw(each, x, depth + 1);
      x += kWidth * share(each);
    }
  }
  const std::string& text() const { return text_; }

 private:
  double share(const FlameNode& node) const {
    return static_cast<double>(node.ns) / static_cast<double>(std::max<std::int64_t>(all_, 1));
  }
  std::string amount(const FlameNode& node) const {
    std::string text =
        fmt::format("{:.1f} %, {} samples, {}", share(node) * 100, node.samples, name_of(node.of));
    if (graph_.step_ns > 0)
      text += fmt::format(", {} a step", time_text(share(node) * graph_.step_ns * 1e-9));
    return text;
  }

  const FlameGraph& graph_;
  std::int64_t all_;
  double height_;
  std::string text_;
};

struct ClassShare {
  HostClass of;
  double share;
};
std::vector<ClassShare> class_shares(const HostProfile& profile) {
  std::array<double, kHostClasses> ns{};
  for (const HostProfile::Stack& stack : profile.stacks)
    ns[static_cast<std::size_t>(profile.class_of(stack))] += static_cast<double>(stack.ns);
  std::vector<ClassShare> shares;
  const double all = static_cast<double>(std::max<std::int64_t>(profile.ns(), 1));
  for (std::size_t i = 0; i < kHostClasses; ++i) {
    if (ns[i] > 0) shares.push_back({static_cast<HostClass>(i), ns[i] / all});
  }
  std::ranges::sort(shares, std::greater(), &ClassShare::share);
  return shares;
}

// The colors with the classes' shares.
std::string legend(const std::vector<ClassShare>& shares) {
  std::string text;
  double x = 8;
  for (const ClassShare& each : shares) {
    const std::string words = fmt::format("{} {:.1f} %", name_of(each.of), each.share * 100);
    text += fmt::format(
        "<g class=\"c{}\"><title>{}</title><rect x=\"{:.0f}\" y=\"36\" width=\"11\" "
        "height=\"11\"/><text class=\"note\" x=\"{:.0f}\" y=\"46\">{}</text></g>\n",
        static_cast<int>(each.of), description_of(each.of), x, x + 16, words);
    x += 30 + 6.6 * static_cast<double>(words.size());
  }
  return text;
}

}  // namespace

FlameNode flame_tree(const HostProfile& profile) {
  FlameNode root{.name = "all", .of = HostClass::user, .callees = {}};
  for (const HostProfile::Stack& stack : profile.stacks) {
    FlameNode* node = &root;
    node->ns += stack.ns;
    node->samples += stack.samples;
    HostClass of = stack.complete ? HostClass::user : HostClass::other;
    bool in_step = !stack.complete;
    if (!stack.complete) {
      node = &callee(*node, "(stack not followed further)");
      node->ns += stack.ns;
      node->samples += stack.samples;
    }
    for (std::size_t i = stack.frames.size(); i-- > 0;) {
      const Frame& frame = profile.frames[stack.frames[i]];
      in_step |= !runs_the_step(frame);
      if (!in_step || passes_on(frame)) continue;
      of = class_of(frame).value_or(of);
      if (node->name == frame.function) continue;
      node = &callee(*node, frame.function);
      node->of = of;
      node->ns += stack.ns;
      node->samples += stack.samples;
    }
  }
  sort_by_time(root);
  return root;
}

std::string flame_svg(const HostProfile& profile, const FlameGraph& graph) {
  const FlameNode root = flame_tree(profile);
  const std::vector<ClassShare> shares = class_shares(profile);
  Drawing drawing(root, graph);
  drawing.draw(root, 0, 0);
  std::string note = fmt::format("{} samples of the host thread", root.samples);
  if (graph.step_ns > 0) note += fmt::format(", {} a step", time_text(graph.step_ns * 1e-9));
  std::string described = note + ". ";
  for (const ClassShare& each : shares)
    described += fmt::format("{}: {:.1f} %. ", description_of(each.of), each.share * 100);
  described += "Each bar is a function; its width is its share of the time, callers are below.";
  const std::string title = escaped(graph.title);
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"brrr-flame\" role=\"img\" "
             "aria-labelledby=\"flame-title flame-desc\" viewBox=\"0 0 {:.0f} {:.0f}\">\n<title "
             "id=\"flame-title\">{}</title>\n<desc id=\"flame-desc\">{}</desc>\n",
             kWidth, drawing.height(), title, escaped(described)) +
         style() +
         fmt::format(
             "<text class=\"head\" x=\"8\" y=\"22\">{}</text>\n<text class=\"note\" "
             "x=\"{:.0f}\" y=\"22\" text-anchor=\"end\">{}</text>\n",
             title, kWidth - 8, escaped(note)) +
         legend(shares) + drawing.text() + "</svg>\n";
}

}  // namespace brrr::measure
