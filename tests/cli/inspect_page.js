// What is wrong with a page as it is laid out: boxes that overlap or are cut off, text and shapes that are hard to see.
// report.cmake runs it on frames as wide as a phone and as a desktop; the findings become an attribute of the body.
function problemsOf(frame) {
  const page = frame.contentDocument, view = frame.contentWindow, problems = [];
  const width = page.documentElement.clientWidth;
  const text = (e) => e.textContent.trim().replace(/\s+/g, " ").slice(0, 40);
  const say = (what) => { if (problems.length < 8) problems.push(`${width} px: ${what}`); };

  if (page.documentElement.scrollWidth > width)
    say(`the page is ${page.documentElement.scrollWidth - width} px too wide`);

  if (width > 1000)
    for (const e of page.querySelectorAll(".table .scroll"))
      if (e.scrollWidth > e.clientWidth) say(`a table is ${e.scrollWidth - e.clientWidth} px too wide: '${text(e)}'`);

  // Boxes a little smaller than they are: lines of text touch.
  const box = (e) => {
    const r = e.getBoundingClientRect();
    return { left: r.left + 1, right: r.right - 1, top: r.top + r.height / 5, bottom: r.bottom - r.height / 5 };
  };
  const overlap = (elements, what) => {
    const boxes = elements.map(box);
    for (let i = 0; i < boxes.length; ++i)
      for (let k = i + 1; k < boxes.length; ++k) {
        const a = boxes[i], b = boxes[k];
        if (a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom &&
            !elements[i].contains(elements[k]))
          say(`${what} overlap: '${text(elements[i])}' and '${text(elements[k])}'`);
      }
  };
  overlap([...page.querySelectorAll("h1, h2, p, dl, nav, figure, table, button")]
    .filter((e) => !e.parentElement.closest("figure, nav")), "blocks");
  for (const plot of page.querySelectorAll("svg.plot")) {
    const texts = [...plot.querySelectorAll("text")];
    overlap(texts, "texts of a plot");
    const all = plot.getBoundingClientRect();
    for (const each of texts) {
      const r = each.getBoundingClientRect();
      if (r.left < all.left - 1 || r.right > all.right + 1 || r.bottom > all.bottom + 1)
        say(`'${text(each)}' is cut off`);
      if (r.height < 9) say(`'${text(each)}' is ${r.height.toFixed(1)} px high`);
    }
  }

  // Contrast as WCAG has it: 4.5 of text, 3 of shapes.
  const channels = (color) => (color.match(/[\d.]+/g) || []).map(Number);
  const luminance = (color) => {
    const [r, g, b] = channels(color).map((c) => c / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const isClear = (color) => color === "none" || channels(color)[3] === 0;
  const backgroundOf = (e) => {
    for (; e; e = e.parentElement) {
      const color = view.getComputedStyle(e).backgroundColor;
      if (!isClear(color)) return color;
    }
    return "rgb(255, 255, 255)";
  };
  const contrast = (a, b) => {
    const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const check = (e, color, least) => {
    const found = contrast(color, backgroundOf(e));
    if (found < least) say(`contrast ${found.toFixed(1)} of ${e.className.baseVal || e.tagName} '${text(e)}'`);
  };
  for (const e of page.querySelectorAll("h1, h2, p, dt, dd, a, th, td, figcaption, button, .badge"))
    check(e, view.getComputedStyle(e).color, 4.5);
  for (const e of page.querySelectorAll("svg.plot text")) check(e, view.getComputedStyle(e).fill, 4.5);
  for (const e of page.querySelectorAll("svg.plot .bar, svg.plot .line, svg.plot .span, svg.plot .point")) {
    const style = view.getComputedStyle(e);
    check(e, isClear(style.stroke) ? style.fill : style.stroke, 3);
  }
  return problems;
}

addEventListener("load", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const problems = [...document.querySelectorAll("iframe")].flatMap(problemsOf);
  document.body.setAttribute("data-problems", problems.join("; "));
  document.body.setAttribute("data-scheme", dark ? "dark" : "light");
});
