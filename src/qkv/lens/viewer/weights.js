// One matrix of attention in detail: words to point at, and the table of all weights.

import { shade, wordLine } from "./chips.js";
import { bold, make, roving, small } from "./dom.js";
import { highest, percent } from "./numbers.js";
import { gathered, itemsOf, topItems } from "./texts.js";

const MAX_CELLS = 6400; // of a table; a larger one is left out
const LOOKS = { target: "While writing", read: "Having read", source: "Attending" };

function table(weights, rows, columns, label, choose) {
  const most = highest(weights);
  const cells = [];
  const grid = make("table", { role: "grid", "aria-label": label });
  const named = (item) => make("span", { class: item.mark ? "mark" : null }, item.text);
  const heading = (item, scope) => make("th", { scope, title: item.text }, named(item));
  const corner = make("th", { scope: "col", "aria-label": "attending word" });
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
  const scale = make("p", { class: "scale" }, "0", make("span", { class: "ramp", "aria-hidden": "true" }), percent(most));
  return make("div", {}, make("div", { class: "scroll", tabindex: "-1" }, grid), scale);
}

export function detail(attention, matrix, sides, unit) {
  const [rows, columns] = sides.map((side) => itemsOf(attention, side, unit));
  const same = sides[0] === sides[1];
  const weights = gathered(matrix, rows, columns);
  const says = make("p", { class: "says", "aria-live": "polite" });
  const choose = (row, column) => {
    const most = Math.max(...weights[row]) || 1;
    from.chips.forEach((one, n) => one.setAttribute("aria-pressed", String(n === row)));
    to.chips.forEach((one, n) => shade(one, weights[row][n] / most));
    const one = () => `${columns[column].text} ${percent(weights[row][column])}`;
    const seen = column === undefined ? topItems(columns, weights[row]) : one();
    says.replaceChildren(bold(rows[row].text), ` ${same ? "attends" : "attended"} to: ${seen}`);
  };
  const from = wordLine(rows, "Attending words: choose one", (row) => choose(row));
  const to = same ? from : wordLine(columns, "Attended words");
  const lines = [make("div", { class: "pointing" }, same ? null : small(LOOKS[sides[0]]), from.line)];
  if (!same) lines.push(make("div", { class: "pointing" }, small("it attended to"), to.line));
  const start = rows.findIndex((row) => !row.mark);
  choose(Math.max(0, start));
  const large = rows.length * columns.length > MAX_CELLS;
  const all = large
    ? make("p", { class: "about" }, "The table of all weights is left out for a text of this length.")
    : table(weights, rows, columns, "All weights", choose);
  const hint = make("p", { class: "hint" }, "Point at a word, or use the arrow keys.");
  return make("div", { class: "detail" }, hint, ...lines, says, all);
}
