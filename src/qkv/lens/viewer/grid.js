// Grids of numbers: a row for each layer, a column for each head, token or position; long ones continue below.

import { make, roving } from "./dom.js";
import { largest } from "./quantities.js";

const LEAST_CELL = 1.34; // em, of a cell that shows no text
const LETTER = 0.58; // em, roughly, of a letter
const UPRIGHT = 6; // em; a heading over texts that is wider stands upright

/**
 * A grid. `rows` are { name, values }, a value that is null has no cell; `columns` their headings. `text(row, column)` is written
 * into a cell if it is given, `says(row, column)` is what a cell is called, `scale` the number with the full colour, `chosen` is
 * [row, column], and `choose(row, column)` is called for a cell that is clicked, or has the focus.
 */
export function grid({ label, rows, columns, says, text = null, scale = null, chosen = null, choose = null, corner = "" }) {
  const most = scale || largest(rows.flatMap((row) => row.values.filter((value) => value !== null)));
  const box = make("div", { class: "lab-grids" });
  const wide = columns.map((_, c) => (text ? Math.max(2, ...rows.map((_, r) => 1 + widthOf(text(r, c) || ""))) : LEAST_CELL));
  const left = 1.5 + Math.max(...rows.map((row) => widthOf(row.name)), widthOf(corner));
  box.style.setProperty("--needed", (left + sum(wide) + 0.5).toFixed(1));
  const cells = new Map();
  let now = "";
  const fill = (room) => {
    const ends = evenBlocks(wide, room - left);
    if (ends.join() === now) return;
    now = ends.join();
    cells.clear();
    box.replaceChildren(...ends.map((end, n) => block(n ? ends[n - 1] : 0, end)));
  };

  function block(first, end) {
    const headings = columns.slice(first, end).map((one) => make("th", { scope: "col", dir: "auto" }, make("span", {}, one)));
    const found = [];
    const body = rows.map((row, r) => {
      const own = row.values.slice(first, end).map((value, n) => cell(row, value, r, first + n));
      found.push(...own.filter((one) => one.hasAttribute("data-at")));
      return make("tr", {}, make("th", { scope: "row" }, row.name), ...own);
    });
    const name = end - first < columns.length ? `${label}, ${first + 1}–${end}` : label;
    const upright = columns.slice(first, end).some((one, n) => widthOf(one) + 0.4 > wide[first + n] && (!text || widthOf(one) > UPRIGHT));
    const table = make("table", { class: `lab-grid${upright ? " upright" : ""}${text ? " texts" : ""}`, role: "grid", "aria-label": name });
    table.append(make("thead", {}, make("tr", {}, corner ? make("th", { scope: "col" }, corner) : make("td", { class: "empty" }), ...headings)), make("tbody", {}, ...body));
    roving(table, found, Math.min(end - first, Math.max(...rows.map((row) => row.values.length))));
    return table;
  }

  function cell(row, value, r, c) {
    if (value === null) return make("td", { class: "empty" });
    const shown = text ? text(r, c) : "";
    const named = shown ? `${shown}, ${says(r, c)}` : says(r, c);
    const is = chosen && chosen[0] === r && chosen[1] === c;
    const attributes = { "data-at": `${r} ${c}`, "aria-label": named, title: named, "aria-selected": choose ? String(Boolean(is)) : null };
    const pick = choose && (() => select(r, c));
    const one = make("td", { ...attributes, class: value < 0 ? "below" : null, ...(choose ? { onclick: pick, onfocus: pick } : {}) }, shown);
    one.style.setProperty("--share", Math.min(1, Math.abs(value) / most).toFixed(3));
    cells.set(`${r} ${c}`, one);
    return one;
  }

  function select(r, c) {
    cells.forEach((one) => one.getAttribute("aria-selected") === "true" && one.setAttribute("aria-selected", "false"));
    cells.get(`${r} ${c}`).setAttribute("aria-selected", "true");
    choose(r, c);
  }

  fill(60);
  new ResizeObserver(() => fill(box.clientWidth / parseFloat(getComputedStyle(box).fontSize))).observe(box);
  return box;
}

const sum = (values) => values.reduce((total, value) => total + value, 0);

/** The width of a text in em, roughly; Chinese characters are twice as wide. */
const widthOf = (text) => LETTER * [...text].reduce((width, letter) => width + (letter > "\u2e7f" ? 1.9 : 1), 0);

/** Where each block of columns ends, so that no block is wider than the room. */
export function blocks(widths, room) {
  const ends = [];
  let used = 0;
  widths.forEach((width, n) => {
    if (n && used + width > room) {
      ends.push(n);
      used = 0;
    }
    used += width;
  });
  return [...ends, widths.length];
}

/** The same number of blocks, about equally wide. */
export function evenBlocks(widths, room) {
  const ends = blocks(widths, room);
  const even = blocks(widths, sum(widths) / ends.length + Math.max(...widths));
  return even.length === ends.length && Math.max(...even.map((end, n) => sum(widths.slice(n ? even[n - 1] : 0, end)))) <= room ? even : ends;
}

/** A grid with a title, as wide as it needs to be where there is room. */
export function gridSection(title, shown) {
  const section = make("section", { class: "lab-side" }, make("h3", {}, title), shown);
  section.style.setProperty("--needed", shown.style.getPropertyValue("--needed") || 30);
  return section;
}

/** What the colours of a grid say, from 0 or from below it; `full` for a grid without texts. */
export function ramp(most, least = 0, full = false) {
  const step = (share, below) => {
    const one = make("span", { class: below ? "below" : null });
    one.style.setProperty("--share", share);
    return one;
  };
  const below = least < 0 ? [least, ...[1, 0.75, 0.5, 0.25].map((share) => step(share, true))] : ["0"];
  const above = [...[0.25, 0.5, 0.75, 1].map((share) => step(share, false)), most];
  const texts = [...below, ...(least < 0 ? ["0"] : []), ...above].map((one) => (typeof one === "string" ? one : one instanceof Element ? one : String(one).replace("-", "−")));
  return make("p", { class: full ? "lab-ramp lab-full" : "lab-ramp", "aria-hidden": "true" }, ...texts);
}
