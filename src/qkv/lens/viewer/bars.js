// Vectors as bars: blue above 0, orange below, and their numbers where somebody points.

import { draw, make } from "./dom.js";
import { say } from "./language.js";
import { fixed, largest, padded } from "./quantities.js";

const GAPS = 128; // a vector with more numbers has no gaps between its bars
const SHORT = 16; // letters of a name that stays on one line
const FIRST = 3; // numbers beside a vector

/** The outline of bars of one sign, each a number wide, in a box that is 2 high with 0 in the middle. */
export function outline(values, scale, sign) {
  const gap = values.length > GAPS ? 0 : 0.12;
  return values
    .map((value, n) => {
      const height = Math.min(1, (sign * value) / scale);
      if (height <= 0) return "";
      return `M${(n + gap).toFixed(2)} 1V${(1 - sign * height).toFixed(4)}H${(n + 1 - gap).toFixed(2)}V1z`;
    })
    .join("");
}

/** A vector as bars, as high as `scale` at most. */
export function bars(values, scale, name) {
  const told = { name, count: values.length, least: fixed(Math.min(...values), 2), most: fixed(Math.max(...values), 2) };
  return draw(
    "svg",
    {
      class: "lab-bars",
      viewBox: `0 0 ${values.length} 2`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": say("{name}: {count} numbers from {least} to {most}", told),
    },
    draw("path", { class: "above", d: outline(values, scale, 1) }),
    draw("path", { class: "below", d: outline(values, scale, -1) }),
    draw("path", { class: "zero", d: `M0 1H${values.length}`, "vector-effect": "non-scaling-stroke" }),
  );
}

const first = (values) => values.slice(0, FIRST).map((value) => padded(value)).join("  ") + (values.length > FIRST ? " …" : "");

/** A row of a table: a name, perhaps a number, a vector as bars, and its first numbers or the one that is pointed at. */
export function vectorRow({ name, values, scale = largest(values), number = null, own = false, label = name }) {
  const picture = bars(values, scale, label);
  const numbers = make("td", { class: "lab-first" }, first(values));
  const point = (event) => {
    const { left, width } = picture.getBoundingClientRect();
    const n = Math.max(0, Math.min(values.length - 1, Math.floor(((event.clientX - left) / width) * values.length)));
    numbers.replaceChildren(make("span", { class: "lab-index" }, `${n + 1}: `), fixed(values[n], 4));
  };
  picture.addEventListener("pointermove", point);
  picture.addEventListener("pointerdown", point);
  picture.addEventListener("pointerleave", () => numbers.replaceChildren(first(values)));
  const count = number === null ? null : make("td", { class: "lab-number" }, number);
  return make("tr", { class: own ? "lab-own" : null }, make("th", { scope: "row", dir: "auto" }, ...tokenText(name)), count, make("td", { class: "lab-strip" }, picture), numbers);
}

/** A table of vectors; `full` is what a bar of the full height says. */
export function vectorTable(label, rows, full = null) {
  const note = full === null ? null : make("p", { class: "lab-note" }, say("A full bar is {value}.", { value: fixed(full, 2) }));
  return make("div", {}, make("table", { class: "lab-table lab-vectors", "aria-label": label }, make("tbody", {}, ...rows)), note);
}

/** A number as a bar from 0, to the right or to the left, where `low` to `high` takes all the width. */
export function numberBar(value, low, high) {
  const bar = make("span", { class: `lab-share${value < 0 ? " below" : ""}`, "aria-hidden": "true" });
  bar.style.setProperty("--from", ((Math.min(value, 0) - low) / (high - low)).toFixed(4));
  bar.style.setProperty("--share", (Math.abs(value) / (high - low)).toFixed(4));
  return bar;
}

/** A token in which a line may end, so that a long one fits a phone. */
export function tokenText(text) {
  if (text.length <= SHORT) return [text.replaceAll(" ", "\u00a0")];
  const parts = text.match(/\S{1,12}\s*|\s+/gu) || [""];
  return parts.flatMap((part, n) => (n ? [make("wbr"), part] : [part]));
}
