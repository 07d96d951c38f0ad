// One matrix of attention in detail: words to point at, and the table of all weights.

import { press, shade, wordLine } from "./chips.js";
import { bold, make, roving, small } from "./dom.js";
import { figure } from "./figure.js";
import { picture } from "./heat.js";
import { highest, percent } from "./numbers.js";
import { gathered, itemsOf, topItems } from "./texts.js";
import { say, sayWith } from "./language.js";

const MAX_CELLS = 6400; // of a table; a larger one is drawn as one picture
const [CELL, HEADING] = [15, 130]; // least width of a cell, and width of the words beside the rows, in pixels
const LONG = 14; // characters of a word that may be broken beside a row
const LOOKS = { target: "While writing", read: "Having read", source: "Attending" };

function table(weights, rows, columns, choose) {
  const most = highest(weights);
  const cells = [];
  const grid = make("table", { role: "grid", "aria-label": say("All weights") });
  const named = (item) => make("span", { class: item.mark ? "mark" : null }, item.text);
  const heading = (item, scope) => make("th", { scope, class: item.text.length > LONG ? "long" : null }, named(item));
  const corner = make("th", { scope: "col", class: "corner" }, say("from ↓ to →"));
  grid.append(make("thead", {}, make("tr", {}, corner, ...columns.map((item) => heading(item, "col")))));
  const body = rows.map((row, t) => {
    const line = columns.map((column, s) => {
      const says = `${row.text} → ${column.text}: ${weights[t][s].toFixed(3)}`;
      const chosen = () => choose(t, s);
      const cell = make("td", { title: says, "aria-label": says, onfocus: chosen, onmouseenter: chosen });
      cell.style.setProperty("--share", Math.pow(weights[t][s] / most, 0.8).toFixed(3));
      cells.push(cell);
      return cell;
    });
    return make("tr", {}, heading(row, "row"), ...line);
  });
  grid.append(make("tbody", {}, ...body));
  roving(grid, cells, columns.length);
  return grid;
}

/** A table with too many cells for the page, as a picture to point at. */
function large(weights, rows, columns, element, choose) {
  const canvas = picture(weights, element);
  canvas.classList.add("matrix");
  canvas.addEventListener("mousemove", ({ offsetX, offsetY }) => {
    const at = (offset, size, count) => Math.max(0, Math.min(count - 1, Math.floor((offset / size) * count)));
    choose(at(offsetY, canvas.clientHeight, rows.length), at(offsetX, canvas.clientWidth, columns.length));
  });
  return canvas;
}

/** The table or the picture, whichever has room; it changes with the width of the page. */
function matrix(weights, rows, columns, choose) {
  const box = make("div", { class: "weights" });
  let form = null;
  const fit = () => {
    const room = rows.length * columns.length <= MAX_CELLS && columns.length * CELL + HEADING <= box.clientWidth;
    const next = room ? "table" : "large";
    if (next === form || !box.clientWidth) return;
    form = next;
    const note = say("Rows are the words that attend, columns the words that they attend to, in the order of the text.");
    const all = room ? [table(weights, rows, columns, choose)] : [large(weights, rows, columns, box, choose), make("p", { class: "hint" }, note)];
    box.replaceChildren(...all);
  };
  new ResizeObserver(fit).observe(box);
  return box;
}

/** A figure of one matrix; `matrix`, its `sides` and `unit`, and the title, controls and name of the figure. */
export function detail(attention, values, sides, unit, frame) {
  const [rows, columns] = sides.map((side) => itemsOf(attention, side, unit));
  const same = sides[0] === sides[1];
  const weights = gathered(values, rows, columns);
  const says = make("p", { class: "says", "aria-live": "polite" });
  const choose = (row, column) => {
    const most = Math.max(...weights[row]) || 1;
    press(from.chips, row);
    to.chips.forEach((one, n) => shade(one, weights[row][n] / most));
    const one = () => `${columns[column].text} ${percent(weights[row][column])}`;
    const seen = column === undefined ? topItems(columns, weights[row]) : one();
    says.replaceChildren(...sayWith(same ? "{word} attends to: {words}" : "{word} attended to: {words}", { word: bold(rows[row].text), words: seen }));
  };
  const from = wordLine(rows, say("Attending words: choose one"), (row) => choose(row));
  const to = same ? from : wordLine(columns, say("Attended words"));
  const lines = [make("div", { class: "pointing" }, same ? null : small(say(LOOKS[sides[0]])), from.line)];
  if (!same) lines.push(make("div", { class: "pointing" }, small(say("it attended to")), to.line));
  choose(Math.max(0, rows.findIndex((row) => !row.mark)));
  const scale = make("span", { class: "scale" }, "0 %", make("span", { class: "ramp", "aria-hidden": "true" }), percent(highest(weights)));
  const legend = make("div", { class: "legend" }, scale, make("span", {}, say("Point at a word or a cell, or use the arrow keys.")));
  return figure({ ...frame, picture: make("div", {}, ...lines, says, matrix(weights, rows, columns, choose)), legend });
}
