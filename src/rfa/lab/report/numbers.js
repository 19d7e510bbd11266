"use strict";
// Draws the lines of the page's panels and makes them answer; all text is in the document already.
// Strings of the data become text nodes or attributes, never markup: a label can be anything.

const SVG = "http://www.w3.org/2000/svg";
const EDGE = { left: 58, right: 18, top: 26, bottom: 42 };
const SPILL = 6; // so that marks on the frame are drawn whole
const LETTER = 6.3; // the width of a letter in a chart, about
const NAME = 18; // the longest name at a tick, in letters
const IN = 0.6;
const OUT = 1 / IN;

const fill = (node, attributes, ...children) => {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
};
const make = (tag, ...rest) => fill(document.createElement(tag), {}, ...rest);
const shape = (tag, ...rest) => fill(document.createElementNS(SVG, tag), ...rest);

// ---- numbers ----

// What a chart can show: beyond 1e150 (diverged) differences and powers would overflow.
const usable = (value, log) =>
  Number.isFinite(value) && Math.abs(value) < 1e150 && (!log || value > 1e-150);
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
const sorted = (values) => [...values].sort((a, b) => a - b);
const raised = (power) =>
  [...String(power)].map((sign) => (sign === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[sign])).join("");

const scientific = (value, digits) => {
  const [factor, power] = value.toExponential(digits - 1).split("e");
  return (Number(factor) === 1 ? "" : `${Number(factor)}×`) + `10${raised(Number(power))}`;
};

const extreme = (value) => value !== 0 && (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-3);

const short = (value, digits = 4, powers = extreme(value)) => {
  if (!Number.isFinite(value)) return "–";
  const rounded = Number(value.toPrecision(digits));
  const plain = rounded.toLocaleString("en", { maximumFractionDigits: 9 });
  return (powers ? scientific(value, digits) : plain).replace("-", "−");
};

const extent = (values, log) => {
  const known = values.filter((value) => usable(value, log));
  if (!known.length) return log ? [1, 10] : [0, 1];
  const low = known.reduce((a, b) => Math.min(a, b));
  const high = known.reduce((a, b) => Math.max(a, b));
  if (low < high) return [low, high];
  const half = Math.abs(low) / 2 || 1;
  return log ? [low / 2, high * 2] : [low - half, high + half];
};

// Both axes think in `inner` numbers, where a logarithmic axis is even.
const inner = (value, log) => (log ? Math.log10(value) : value);
const outer = (value, log) => (log ? 10 ** value : value);

const stretch = (domain, log, factor, around) => {
  const [a, b] = domain.map((end) => inner(end, log));
  const fixed = around === undefined ? (a + b) / 2 : inner(around, log);
  return [a, b].map((end) => outer(fixed + (end - fixed) * factor, log));
};

const scale = (domain, from, to, log) => {
  const [a, b] = domain.map((end) => inner(end, log));
  const place = (value) => from + ((inner(value, log) - a) / (b - a)) * (to - from);
  place.back = (pixel) => outer(a + ((pixel - from) / (to - from)) * (b - a), log);
  return place;
};

const evenTicks = ([low, high], count) => {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.7);
  const first = Math.ceil(low / step - 1e-9);
  const length = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({ length }, (_, index) => (first + index) * step);
};

const logTicks = ([low, high], count) => {
  const first = Math.floor(Math.log10(low));
  const length = Math.ceil(Math.log10(high)) - first + 1;
  const powers = Array.from({ length }, (_, index) => 10 ** (first + index));
  const inside = (tick) => tick >= low * 0.999 && tick <= high * 1.001;
  const sets = [[1, 2, 5], [1, 3], [1]].map((factors) =>
    powers.flatMap((power) => factors.map((factor) => factor * power)).filter(inside),
  );
  if (sets[0].length < 3) return evenTicks([low, high], count);
  const ticks = sets.find((set) => set.length <= count) ?? sets[2];
  return ticks.filter((_, index) => index % Math.ceil(ticks.length / count) === 0);
};

const tickNames = (ticks, log) => {
  const largest = Math.max(...ticks.map(Math.abs));
  const digits = clamp(Math.ceil(Math.log10(largest / (ticks[1] - ticks[0]))) + 1, 3, 12) || 3;
  const powers = log ? ticks.some(extreme) : undefined; // one way of writing for all powers
  return ticks.map((tick) => short(tick, digits, powers));
};
