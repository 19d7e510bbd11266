// ---- files to save ----

// A link that is clicked and gone; nothing leaves the page.
const save = (name, type, text) => {
  const link = make("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
};

const fileName = (words, end) =>
  `${words.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "")}.${end}`;

const quoted = (value) => {
  const text = String(value ?? "");
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};
const asCsv = (rows) => rows.map((row) => `${row.map(quoted).join(",")}\r\n`).join("");

// The numbers of a panel: means, bands and intervals, and a column for each seed.
const panelCsv = (panel) => {
  const seeds = Math.max(0, ...panel.lines.flatMap((line) => line.points.map((all) => all.length)));
  const names = ["mean", "lowest", "highest", "95 % from", "95 % to"];
  const numbered = Array.from({ length: seeds }, (_, i) => `seed ${i + 1}`);
  const head = ["panel", "line", panel.xLabel, ...names, ...numbered];
  const rows = panel.lines.flatMap((line) =>
    line.x.map((x, i) => {
      const heights = ["mean", "low", "high", "from", "to"].map((key) => line[key][i]);
      const place = panel.ticks[x] ?? x;
      return [panel.title, line.label, place, ...heights, ...(line.points[i] ?? [])];
    }),
  );
  return asCsv([head, ...rows]);
};

const tableCsv = (table) =>
  asCsv([...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent)));

// The picture as it is seen, with its look written into it, and the legend below.
const LOOK = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray"];
const WORDS = ["font-size", "font-family", "text-anchor"];

const withLook = (node) => {
  const copied = node.cloneNode(true);
  const [from, to] = [node, copied].map((root) => [root, ...root.querySelectorAll("*")]);
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    const names = element.tagName === "text" ? [...LOOK, ...WORDS] : LOOK;
    names.forEach((name) => to[i].setAttribute(name, style.getPropertyValue(name)));
  });
  return copied;
};

const pictureSvg = (chart) => {
  const { panel, width, exhibit } = chart;
  const picture = withLook(chart.svg);
  const height = chart.svg.viewBox.baseVal.height;
  const ink = getComputedStyle(document.body);
  const row = (words, y) => {
    const look = { "font-size": 11.5, "font-family": ink.fontFamily, fill: ink.color };
    return shape("text", { x: 40, y, ...look }, words);
  };
  const legend = chart.lines.flatMap((line, i) => {
    const mark = withLook(exhibit.swatch(line.label, true));
    fill(mark, { x: 8, y: height + 18 * i + 2, width: 26, height: 14 });
    return [mark, row(line.label, height + 18 * i + 13)];
  });
  const whole = height + 18 * chart.lines.length + 26;
  fill(picture, { xmlns: SVG, width, height: whole, viewBox: `0 -22 ${width} ${whole}` });
  const paper = { x: 0, y: -22, width, height: whole, fill: ink.backgroundColor };
  picture.prepend(shape("rect", paper));
  picture.append(fill(row(panel.title, -8), { x: 4, "font-weight": 650 }), ...legend);
  return new XMLSerializer().serializeToString(picture);
};
