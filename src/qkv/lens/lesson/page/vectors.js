// Vectors as rows of numbers.

import { draw } from "../../viewer/dom.js";
import { say } from "../../viewer/language.js";
import { cell, covered, frame, text } from "./drawing.js";
import { textWidth, written } from "./texts.js";

const [HEIGHT, GAP, NAMES, WIDE] = [30, 8, 18, 520];

export function vectorsPicture(one, width, known) {
  const narrow = width < WIDE;
  const most = Math.max(...one.rows.flatMap((row) => row.values.map(Math.abs)));
  const symbols = Math.max(...one.rows.map((row) => textWidth(row.label, 14)));
  const names = Math.max(0, ...one.rows.map((row) => (row.token ? textWidth(row.token, 13) : 0)));
  const left = narrow ? 0 : Math.min(230, 12 + symbols + (names ? names + 12 : 0));
  const right = narrow ? 0 : 88;
  const high = HEIGHT + GAP + (narrow ? NAMES : 0);
  const drawn = one.rows.map((row, n) => {
    const top = n * high + (narrow ? NAMES : 0);
    const [y, wide] = [top + HEIGHT / 2, (width - left - right) / Math.max(row.values.length, 4)];
    const hidden = (m) => row.hidden.includes(m) && !known(row.after);
    const numbers = row.values.map((value, m) =>
      hidden(m) ? covered(left + m * wide, top, wide, HEIGHT) : cell(left + m * wide, top, wide, HEIGHT, value, most),
    );
    const lineY = narrow ? top - NAMES / 2 + 1 : y;
    const label = text(0, lineY, row.label, { kind: "symbol", size: 14 });
    const at = narrow ? textWidth(row.label, 14) + 14 : symbols + 14;
    const token = row.token ? [text(at, lineY, row.token, { kind: "word", room: narrow ? width - at - 80 : left - at - 4 })] : [];
    return draw("g", {}, label, ...token, ...numbers, ...rest(row, width, left + row.values.length * wide, lineY, narrow, known));
  });
  return frame(width, one.rows.length * high, spoken(one, known), ...drawn);
}

/** How many numbers the vector has in all. */
function rest(row, width, end, y, narrow, known) {
  if (row.width <= row.values.length) return [];
  const told = row.hidden.length || known(row.after);
  const words = told ? say("… of {width}", { width: row.width }) : "…";
  return [text(narrow ? width : end + 8, y, words, { anchor: narrow ? "end" : "start", kind: "faded", size: 12 })];
}

function spoken(one, known) {
  const rows = one.rows.map((row) => {
    const numbers = row.values.map((value, m) => (row.hidden.includes(m) && !known(row.after) ? "?" : written(value)));
    return `${row.label} ${row.token || ""}: ${numbers.join("; ")}`;
  });
  return rows.join(". ");
}
