// ---- one chart ----

const at = (x, y) => `${x.toFixed(1)},${clamp(y, -1e6, 1e6).toFixed(1)}`;
const trace = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${at(x, y)}`).join("");
const SINGLE = 30; // places of a line whose seeds are shown one by one
const DOT = "m-1.8,0a1.8,1.8 0 1,0 3.6,0a1.8,1.8 0 1,0 -3.6,0z";
const cut = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

class Chart {
  constructor(node, panel, exhibit) {
    Object.assign(this, { node, panel, exhibit, width: 0, zoomed: null, read: null, start: null });
    const values = panel.lines.flatMap((line) => line.x);
    const spread = stretch(extent(values, panel.logX), panel.logX, 1.04);
    this.full = panel.ticks.length ? [-0.5, panel.ticks.length - 0.5] : spread;
    this.svg = node.querySelector("svg");
    this.tip = node.querySelector(".tip");
    this.undo = node.closest("figure").querySelector(".reset");
    this.listen();
    // A chart is drawn when it gets a width, so that views nobody looks at cost nothing.
    new ResizeObserver(() => this.resize(node.clientWidth)).observe(node);
  }

  get lines() {
    return this.panel.lines.filter((line) => !this.exhibit.hidden.has(line.label));
  }

  // The band of a line: from the lowest seed to the highest, or the interval of the mean.
  band(line) {
    const interval = this.exhibit.interval && line.from.length;
    return interval ? [line.from, line.to] : [line.low, line.high];
  }

  resize(width) {
    if (!width || width === this.width) return;
    this.width = width;
    this.draw();
  }

  draw() {
    if (!this.width) return;
    const { panel, width } = this;
    const lengths = panel.ticks.map((tick) => Math.min(tick.length, NAME));
    const longest = LETTER * Math.max(0, ...lengths);
    this.slanted = longest > (width - EDGE.left - EDGE.right) / panel.ticks.length - 6;
    const below = EDGE.bottom + (this.slanted ? longest * 0.5 : 0);
    const large = this.node.closest("dialog");
    const high = large ? Math.max(innerHeight * 0.55, 240) : clamp(width * 0.62, 225, 290);
    const height = Math.round(high + below - EDGE.bottom);
    const bottom = height - below;
    this.box = { left: EDGE.left, right: width - EDGE.right, top: EDGE.top, bottom };
    this.across = this.zoomed?.x ?? this.full;
    this.up = this.zoomed?.y ?? this.heights(...this.across);
    this.x = scale(this.across, this.box.left, this.box.right, panel.logX);
    this.y = scale(this.up, bottom, EDGE.top, panel.logY);
    this.cross = shape("g", { class: "cross" });
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren(...this.axes(height), this.plot(), this.cross);
    this.undo.disabled = !this.zoomed;
    this.show(null);
  }

  // The heights of what is seen, with the neighbors to which its lines lead.
  heights(from, to) {
    const log = this.panel.logY;
    const values = this.lines.flatMap((line) => {
      const { x, mean, points } = line;
      const [low, high] = this.band(line);
      const single = (i) => (this.exhibit.points && points[i]) || [];
      const seen = (i) => (x[i - 1] ?? x[i]) <= to && (x[i + 1] ?? x[i]) >= from;
      return x.flatMap((_, i) => (seen(i) ? [mean[i], low[i], high[i], ...single(i)] : []));
    });
    const [low, high] = extent(values, log);
    const [below, above] = stretch([low, high], log, 1.1);
    return [!log && low >= 0 && low < high * 0.3 ? 0 : below, above];
  }

  axes(height) {
    const { panel, box, width } = this;
    const named = panel.ticks.length > 0;
    const inside = (_, index) => index >= this.across[0] && index <= this.across[1];
    const ticks = (domain, log, room) =>
      (log ? logTicks : evenTicks)(domain, Math.max(2, Math.floor(room)));
    const ys = ticks(this.up, panel.logY, (box.bottom - box.top) / 34);
    const apart = panel.logX ? 58 : 76; // pixels
    const even = () => ticks(this.across, panel.logX, (box.right - box.left) / apart);
    const xs = named ? [...panel.ticks.keys()].filter(inside) : even();
    const names = named ? panel.ticks.filter(inside) : tickNames(xs, panel.logX);
    const text = (x, y, kind, words) => shape("text", { x, y, class: kind }, words);
    const level = (y, kind) =>
      shape("line", { x1: box.left, x2: box.right, y1: y, y2: y, class: kind });
    const name = (words) => cut(words, Math.floor((width - 16) / LETTER));
    const heights = tickNames(ys, panel.logY).map((words, i) => {
      const y = this.y(ys[i]);
      return shape("g", { class: "tick y" }, level(y, ""), text(box.left - 8, y + 4, "end", words));
    });
    return [
      ...heights,
      level(box.bottom, "base"),
      ...names.map((words, i) => this.below(this.x(xs[i]), words)),
      text((box.left + box.right) / 2, height - 6, "name middle", name(panel.xLabel)),
      text(4, 12, "name", name(panel.yLabel)),
    ];
  }

  below(x, words) {
    const y = this.box.bottom;
    const slope = { class: "end", transform: `translate(${x + 4},${y + 15}) rotate(-38)` };
    const place = this.slanted ? slope : { class: "middle", x, y: y + 18 };
    const text = shape("text", place, cut(words, NAME));
    if (words.length > NAME) text.append(shape("title", {}, words));
    return shape("g", { class: "tick x" }, shape("line", { x1: x, x2: x, y1: y, y2: y + 5 }), text);
  }

  // The lines, in an svg of their own because that cuts off what is outside.
  plot() {
    const { left, right, top, bottom } = this.box;
    const spill = this.zoomed ? 0 : SPILL;
    const [x, y] = [left - spill, top - spill];
    const [width, height] = [right - left + 2 * spill, bottom - top + 2 * spill];
    const plot = shape("svg", { x, y, width, height, viewBox: `${x} ${y} ${width} ${height}` });
    const drawn = this.lines.map((line) => this.paths(line));
    plot.append(...drawn.map(([band]) => band), ...drawn.flatMap(([, ...paths]) => paths));
    return plot;
  }

  // Stretches of points without a gap; what is missing, or not on a logarithmic axis, is a gap.
  pieces(line) {
    const { x, mean } = line;
    const [low, high] = this.band(line);
    const { logX, logY } = this.panel;
    const pieces = [[]];
    const deep = (value) => logY && Number.isFinite(value) && value <= 0; // below any power of ten
    const known = (value, i) => (usable(value, logY) ? value : mean[i]);
    const height = (value, i) => (deep(value) ? this.box.bottom : this.y(known(value, i)));
    x.forEach((place, i) => {
      const there = usable(place, logX) && usable(mean[i], logY);
      const heights = () => [mean, low, high].map((values) => height(values[i], i));
      if (there) pieces.at(-1).push([this.x(place), ...heights()]);
      else pieces.push([]);
    });
    return pieces.filter((piece) => piece.length);
  }

  // The band, the line and its marks.
  paths(line) {
    const pieces = this.pieces(line);
    const band = pieces.map((piece) => {
      const lows = piece.map(([x, , low]) => [x, low]);
      return `${trace([...lows.reverse(), ...piece.map(([x, , , high]) => [x, high])])}z`;
    });
    const marked = pieces.flatMap((piece) => {
      if (line.dash && piece.length > 1) return [];
      let last = -Infinity; // marks keep a distance, or they would be a thick line
      return piece.filter(([x]) => x - last >= 26 && ((last = x), true));
    });
    const path = (kind, parts, more) => {
      const look = { class: `${kind} c${line.color}`, "data-label": line.label, ...more };
      return shape("path", { ...look, d: parts.join("") });
    };
    const marks = marked.map(([x, y]) => `M${at(x, y)}${line.mark}`);
    const dash = { "stroke-dasharray": line.dash || "none" };
    const dots = path("dot", this.exhibit.points ? this.dots(line) : []);
    return [path("band", band), path("line", pieces.map(trace), dash), path("mark", marks), dots];
  }

  // Single seeds, where places are far enough apart to tell them from the line.
  dots({ x, points }) {
    const { logX, logY } = this.panel;
    if (x.length > SINGLE) return [];
    const there = (i) => points[i] && usable(x[i], logX);
    const heights = (i) => points[i].filter((value) => usable(value, logY));
    return x.flatMap((place, i) =>
      there(i) ? heights(i).map((value) => `M${at(this.x(place), this.y(value))}${DOT}`) : [],
    );
  }

  // ---- reading values ----

  places() {
    const inside = (x) => usable(x, this.panel.logX) && x >= this.across[0] && x <= this.across[1];
    return sorted(new Set(this.lines.flatMap((line) => line.x).filter(inside)));
  }

  nearest(places, pixel) {
    const far = (x) => (usable(x, this.panel.logX) ? Math.abs(this.x(x) - pixel) : Infinity);
    return places.reduce((best, x, i) => (far(x) < far(places[best]) ? i : best), 0);
  }

  // The crosshair at x, and what all lines are there; null takes it away.
  show(x) {
    this.read = x;
    this.tip.hidden = x === null;
    this.cross.replaceChildren();
    if (x === null) return;
    const { box, panel, tip, width } = this;
    const place = this.x(x);
    const words = (value) => panel.ticks[value] ?? short(value);
    this.cross.append(shape("line", { x1: place, x2: place, y1: box.top, y2: box.bottom }));
    const rows = this.lines.filter((line) => line.x.length).map((line) => {
      const i = this.nearest(line.x, place);
      const [mean, low, high] = [line.mean[i], ...this.band(line).map((ends) => ends[i])];
      const spread = Number.isFinite(mean) && low !== high;
      const range = spread ? `(${short(low)} – ${short(high)})` : "";
      const apart = line.x[i] === x ? "" : ` at ${words(line.x[i])}`;
      const cells = [this.exhibit.swatch(line.label), line.label + apart, short(mean), range];
      return make("tr", ...cells.map((cell) => make("td", cell)));
    });
    const title = panel.ticks.length ? words(x) : `${panel.xLabel}: ${words(x)}`;
    tip.replaceChildren(make("strong", title), make("table", ...rows));
    const left = place > width / 2 ? place - tip.offsetWidth - 12 : place + 12;
    tip.style.left = `${clamp(left, 0, Math.max(0, width - tip.offsetWidth))}px`;
    const room = this.svg.getBoundingClientRect().top + EDGE.top; // it hides no line if it is above
    tip.classList.toggle("under", room < tip.offsetHeight);
  }

  point(event) {
    const places = this.places();
    this.tip.setAttribute("aria-live", "off");
    this.show(places[this.nearest(places, this.spot(event)[0])] ?? null);
  }

  key(event) {
    const places = this.places();
    const now = places.indexOf(this.read);
    const step = (to) => this.show(places[clamp(to, 0, places.length - 1)] ?? null);
    const acts = {
      ArrowRight: () => step(now + 1),
      ArrowLeft: () => step(now < 0 ? places.length : now - 1),
      Home: () => step(0),
      End: () => step(places.length),
      "+": () => this.magnify(IN),
      "-": () => this.magnify(OUT),
      0: () => this.zoom(null),
    };
    if (!acts[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.tip.setAttribute("aria-live", "polite"); // a screen reader says what the keys reach
    acts[event.key]();
  }

  // ---- zooming ----

  listen() {
    const on = (name, act) => this.node.addEventListener(name, act, { passive: false });
    this.undo.parentElement.addEventListener("click", ({ target }) => {
      if (target.closest(".in")) this.magnify(IN);
      if (target.closest(".out")) this.magnify(OUT);
      if (target.closest(".reset")) this.zoom(null);
    });
    on("keydown", (event) => this.key(event));
    on("blur", () => this.show(null));
    on("dblclick", () => this.zoom(null));
    on("pointermove", (event) => (this.start ? this.drag(event) : this.point(event)));
    on("pointerleave", (event) => event.pointerType === "touch" || this.start || this.show(null));
    on("pointerup", (event) => this.drop(event));
    on("pointercancel", () => (this.start = null));
    on("pointerdown", (event) => {
      if (event.pointerType === "touch") this.point(event); // a finger reads, and scrolls
      else if (!event.button) this.start = this.spot(event);
      if (this.start) this.node.setPointerCapture(event.pointerId);
    });
    on("wheel", (event) => {
      if (!event.ctrlKey) return; // the wheel alone scrolls the page
      event.preventDefault();
      const factor = Math.exp(clamp(event.deltaY, -100, 100) / 250); // small steps of a touch pad
      this.magnify(factor, this.x.back(this.spot(event)[0]));
    });
  }

  spot({ clientX, clientY }) {
    const { box } = this;
    const { left, top } = this.svg.getBoundingClientRect();
    return [clamp(clientX - left, box.left, box.right), clamp(clientY - top, box.top, box.bottom)];
  }

  // The rectangle from where the drag began; a flat one takes the whole height.
  brush(event) {
    const end = this.spot(event);
    const [xs, ys] = [0, 1].map((axis) => sorted([this.start[axis], end[axis]]));
    const flat = ys[1] - ys[0] < 16;
    return { xs, ys: flat ? [this.box.top, this.box.bottom] : ys, flat };
  }

  drag(event) {
    const { xs, ys } = this.brush(event);
    const size = { x: xs[0], y: ys[0], width: xs[1] - xs[0], height: ys[1] - ys[0] };
    this.show(null);
    this.cross.append(shape("rect", size));
  }

  drop(event) {
    if (!this.start) return;
    const { xs, ys, flat } = this.brush(event);
    this.start = null;
    this.cross.replaceChildren();
    if (xs[1] - xs[0] < 8) return; // a click
    this.zoom({ x: xs.map(this.x.back), y: flat ? this.zoomed?.y : ys.reverse().map(this.y.back) });
  }

  magnify(factor, around) {
    const [from, to] = stretch(this.across, this.panel.logX, factor, around);
    const x = [Math.max(from, this.full[0]), Math.min(to, this.full[1])];
    const whole = x.every((end, i) => end === this.full[i]);
    const y = this.zoomed?.y && stretch(this.zoomed.y, this.panel.logY, factor);
    this.zoom(whole ? null : { x, y });
  }

  zoom(zoomed) {
    const span = (domain) => inner(domain[1], this.panel.logX) - inner(domain[0], this.panel.logX);
    if (zoomed && span(zoomed.x) < span(this.full) * 1e-6) return; // numbers run out of digits
    this.zoomed = zoomed;
    this.draw();
  }
}
