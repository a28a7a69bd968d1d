// Reports: sections of text, tables and plots, as one HTML file that needs nothing else. It follows
// the reader's light or dark setting, fits a phone, and works without scripts; a small one adds
// buttons that copy tables.
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <brrr/measure/svg_plot.h>

namespace brrr::measure {

// A paragraph.
struct Text {
  enum class Tone { plain, warning };
  std::string text;
  Tone tone = Tone::plain;
};

struct Table {
  std::string caption;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  // as many cells as columns; the first names the row
};

// A plot and what it shows, in a sentence.
struct Figure {
  std::variant<LinePlot, BarPlot, RooflinePlot, LanePlot> plot;
  std::string caption;
};

// A picture that is SVG already, such as a flame graph. On a narrow page it scrolls sideways.
struct Picture {
  std::string svg;
  std::string caption = {};
};

using ReportItem = std::variant<Text, Table, Figure, Picture>;

struct Section {
  enum class Tone { plain, good, bad };
  std::string title;
  std::string badge = {};  // beside the title, in a word: "confirmed"
  Tone tone = Tone::plain;
  std::vector<ReportItem> blocks = {};
};

struct Report {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts = {};  // "machine", "date", "command", …
  std::vector<Section> sections = {};
};

// `data`: the name of the file with the report's numbers, which the page mentions; empty: none.
// Columns of tables whose cells are all empty are left out.
std::string to_html(const Report& report, const std::string& data);

}  // namespace brrr::measure
