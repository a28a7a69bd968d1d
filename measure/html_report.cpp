#include "brrr/measure/html_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "brrr/measure/markup.h"
#include "brrr/tensor/fail.h"

namespace brrr::measure {
namespace {

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --page: #f4f6f8; --paper: #ffffff; --ink: #1b1f24;
  --faint: #57606a; --edge: #d5dae0; --good: #00714f; --bad: #b04600; --link: #005a96; }
@media (prefers-color-scheme: dark) {
  :root { --page: #0d1013; --paper: #14181d; --ink: #e6e9ed; --faint: #a3adb8; --edge: #2b323a;
    --good: #2fc39a; --bad: #f0a13a; --link: #56b4e9; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); line-height: 1.5;
  font-family: system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 76rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; margin: 0.5rem 0; }
h2 { font-size: 1.2rem; margin: 0 0 0.5rem; }
p { max-width: 46rem; margin: 0.5rem 0; overflow-wrap: anywhere; }
a { color: var(--link); }
code { font-family: ui-monospace, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.15rem 1rem; margin: 0.5rem 0; }
dt { color: var(--faint); }
dd { margin: 0; overflow-wrap: anywhere; }
nav ol { columns: 18rem; padding-left: 1.5rem; margin: 0.5rem 0; }
section { background: var(--paper); border: 1px solid var(--edge); border-radius: 8px;
  padding: 1rem; margin: 1rem 0; }
.badge { font-size: 0.8rem; font-weight: 600; border: 1px solid currentColor; border-radius: 1rem;
  padding: 0.1rem 0.6rem; margin-left: 0.4rem; white-space: nowrap; color: var(--faint); }
.badge.good { color: var(--good); }
.badge.bad, .warning { color: var(--bad); }
.figures { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
figure { margin: 0.5rem 0; }
figcaption { color: var(--faint); font-size: 0.92rem; max-width: 32rem; margin-top: 0.3rem; overflow-wrap: anywhere; }
.table { margin: 0.75rem 0; }
.scroll { overflow-x: auto; }
.picture svg { min-width: 56rem; display: block; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.92rem; }
.caption { color: var(--faint); font-size: 0.92rem; margin-bottom: 0.2rem; }
th, td { padding: 0.25rem 0.5rem; border-bottom: 1px solid var(--edge); text-align: right;
  vertical-align: top; }
td { white-space: nowrap; }
td.long { white-space: normal; overflow-wrap: anywhere; min-width: 11rem; }
th:first-child { text-align: left; padding-left: 0; font-weight: 400; min-width: 9.5rem; }
thead th, thead th:first-child { font-weight: 600; vertical-align: bottom; }
button { font: inherit; font-size: 0.8rem; color: inherit; background: none; cursor: pointer;
  border: 1px solid var(--edge); border-radius: 4px; padding: 0.15rem 0.6rem; margin-top: 0.4rem; }
footer { color: var(--faint); }
@media (max-width: 30rem) {
  main { padding: 0.4rem; }
  section { padding: 0.6rem; }
  dl { grid-template-columns: 1fr; }
  dd { margin-bottom: 0.3rem; }
  h1 { font-size: 1.3rem; }
}
@media print { button { display: none; } section { break-inside: avoid; } }
)";

// A button below each table, which copies it with tabs between cells.
constexpr const char* kScript = R"(
for (const table of document.querySelectorAll("table")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy table";
  button.addEventListener("click", () => {
    const text = Array.from(table.rows, (row) =>
      Array.from(row.cells, (cell) => cell.textContent).join("\t")).join("\n");
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    button.textContent = document.execCommand("copy") ? "Copied" : "Not copied: select the text";
    area.remove();
  });
  table.closest(".table").append(button);
}
)";

// Longer cells are wrapped.
constexpr std::size_t kLong = 24;

// A column without cells has nothing to say: no kernel has a module.
bool has_cells(const Table& table, std::size_t column) {
  if (column == 0 || table.rows.empty()) return true;
  return std::ranges::any_of(
      table.rows, [&](const auto& row) { return column >= row.size() || !row[column].empty(); });
}

class Page {
 public:
  std::string take() { return std::move(html_); }
  void add(std::string_view html) { html_ += html; }

  void operator()(const Text& text) {
    html_ +=
        fmt::format("<p{}>{}</p>\n", text.tone == Text::Tone::warning ? " class=\"warning\"" : "",
                    escaped(text.text));
  }

  void operator()(const Table& table) {
    html_ += fmt::format(
        "<div class=\"table\">\n<p class=\"caption\">{0}</p>\n<div class=\"scroll\" "
        "role=\"region\" "
        "tabindex=\"0\" aria-label=\"{0}\">\n<table aria-label=\"{0}\">\n<thead><tr>",
        escaped(table.caption));
    std::vector<bool> is_shown;
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      is_shown.push_back(has_cells(table, i));
      if (is_shown[i]) html_ += fmt::format("<th scope=\"col\">{}</th>", escaped(table.columns[i]));
    }
    html_ += "</tr></thead>\n<tbody>\n";
    for (const auto& row : table.rows) {
      if (row.size() != table.columns.size()) {
        fail("[report] expected {} cells in each row of the table \"{}\", got {}",
             table.columns.size(), table.caption, row.size());
      }
      html_ += fmt::format("<tr><th scope=\"row\">{}</th>", escaped(row[0]));
      for (std::size_t i = 1; i < row.size(); ++i)
        if (is_shown[i])
          html_ += fmt::format("<td{}>{}</td>", row[i].size() > kLong ? " class=\"long\"" : "",
                               escaped(row[i]));
      html_ += "</tr>\n";
    }
    html_ += "</tbody>\n</table>\n</div></div>\n";
  }

  void operator()(const Figure& figure) {
    const std::string id = fmt::format("plot-{}", ++plots_);
    html_ += "<figure>\n";
    html_ += std::visit([&](const auto& plot) { return to_svg(plot, id); }, figure.plot);
    if (!figure.caption.empty())
      html_ += fmt::format("<figcaption>{}</figcaption>\n", escaped(figure.caption));
    html_ += "</figure>\n";
  }

  void operator()(const Picture& picture) {
    html_ += fmt::format(
        "<figure>\n<div class=\"scroll picture\" role=\"region\" tabindex=\"0\" "
        "aria-label=\"picture\">\n{}</div>\n",
        picture.svg);
    if (!picture.caption.empty())
      html_ += fmt::format("<figcaption>{}</figcaption>\n", escaped(picture.caption));
    html_ += "</figure>\n";
  }

  void add(const Section& section, std::size_t index) {
    html_ += fmt::format("<section id=\"section-{}\">\n<h2>{}{}</h2>\n", index,
                         escaped(section.title), badge(section));
    bool in_figures = false;  // neighbouring plots are side by side where there is space
    for (const ReportItem& block : section.blocks) {
      const bool is_figure = std::holds_alternative<Figure>(block);
      if (is_figure != in_figures) html_ += is_figure ? "<div class=\"figures\">\n" : "</div>\n";
      in_figures = is_figure;
      std::visit(*this, block);
    }
    if (in_figures) html_ += "</div>\n";
    html_ += "</section>\n";
  }

  static std::string badge(const Section& section) {
    if (section.badge.empty()) return "";
    const char* tone = section.tone == Section::Tone::good  ? " good"
                       : section.tone == Section::Tone::bad ? " bad"
                                                            : "";
    return fmt::format(" <span class=\"badge{}\">{}</span>", tone, escaped(section.badge));
  }

 private:
  std::string html_;
  int plots_ = 0;
};

std::string contents(const Report& report) {
  if (report.sections.size() < 3) return "";
  std::string html = "<nav aria-label=\"Contents\"><ol>\n";
  for (std::size_t i = 0; i < report.sections.size(); ++i) {
    const Section& section = report.sections[i];
    html += fmt::format("<li><a href=\"#section-{}\">{}</a>{}</li>\n", i + 1,
                        escaped(section.title), Page::badge(section));
  }
  return html + "</ol></nav>\n";
}

}  // namespace

std::string to_html(const Report& report, const std::string& data) {
  Page page;
  page.add(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n");
  page.add(fmt::format("<title>{}</title>\n<style>{}{}</style>\n</head>\n<body>\n<main>\n",
                       escaped(report.title), kStyle, plot_style()));
  page.add(fmt::format("<header>\n<h1>{}</h1>\n", escaped(report.title)));
  if (!report.facts.empty()) {
    page.add("<dl>\n");
    for (const auto& [name, value] : report.facts)
      page.add(fmt::format("<dt>{}</dt><dd>{}</dd>\n", escaped(name), escaped(value)));
    page.add("</dl>\n");
  }
  page.add("</header>\n" + contents(report));
  for (std::size_t i = 0; i < report.sections.size(); ++i) page.add(report.sections[i], i + 1);
  if (!data.empty()) {
    page.add(fmt::format(
        "<footer><p>The numbers of all tables and plots are in <code>{}</code>, beside this "
        "file.</p></footer>\n",
        escaped(data)));
  }
  page.add(fmt::format("</main>\n<script>{}</script>\n</body>\n</html>\n", kScript));
  return page.take();
}

}  // namespace brrr::measure
