// The table from scores to weights, and the most probable tokens as bars.

import { draw } from "../../viewer/dom.js";
import { say } from "../../viewer/language.js";
import { covered, frame, rect, text } from "./drawing.js";
import { share, textWidth, written } from "./texts.js";

const [HEAD, ROW, WIDE] = [30, 30, 560];

export function scoresPicture(one, width, known) {
  const names = Math.min(width < WIDE ? 86 : 150, Math.max(44, ...one.keys.map((key) => textWidth(key, 13))) + 10);
  const bar = width < WIDE ? 0 : Math.min(260, width * 0.28);
  const wide = (width - names - bar) / one.columns.length;
  const right = (n) => names + (n + 1) * wide - 6;
  const size = wide < 60 ? 12 : 13;
  const heads = one.columns.map((column, n) => text(right(n), HEAD / 2, say((column.short && textWidth(column.label, 13) > wide - 12 && column.short) || column.label), { anchor: "end", kind: "symbol", size: wide < 60 ? 11 : 13 }));
  const rows = one.keys.map((key, row) => {
    const top = HEAD + row * ROW;
    const numbers = one.columns.map((column, n) => {
      if (column.hidden.includes(row) && !known(column.after)) return covered(names + n * wide + 4, top + 3, wide - 6, ROW - 6);
      const value = column.values[row];
      const shown = value === null ? "−∞" : n && one.masked[row] && n < one.columns.length - 1 ? "−∞" : written(value);
      return text(right(n), top + ROW / 2, masked(one, n, row) || shown, { anchor: "end", kind: "digits", size });
    });
    return draw("g", {}, text(0, top + ROW / 2, key, { kind: "word", room: names - 6 }), ...numbers, ...weightBar(one, row, top, width, bar, known));
  });
  const lines = [HEAD, HEAD + one.keys.length * ROW].map((y) => draw("line", { x1: 0, x2: width, y1: y, y2: y, class: "rule" }));
  const more = one.more ? [text(0, HEAD + one.keys.length * ROW + 16, say("and {count} more tokens with smaller weights", { count: one.more }), { kind: "faded", size: 12 })] : [];
  return frame(width, HEAD + one.keys.length * ROW + (one.more ? 30 : 4), spoken(one, known), ...lines, ...heads, ...rows, ...more);
}

/** What stands in a column for a token that the mask hides: nothing of the softmax is computed for it. */
function masked(one, n, row) {
  if (!one.masked[row]) return null;
  return n === 0 ? null : n < one.columns.length - 2 ? "−∞" : "0";
}

function weightBar(one, row, top, width, bar, known) {
  const column = one.columns[one.columns.length - 1];
  if (!known(column.after)) return [];
  const weight = column.values[row] || 0;
  if (bar) return [rect(width - bar + 8, top + 7, weight * (bar - 8), ROW - 14, { class: "bar" })];
  return [rect(0, top + ROW - 5, weight * width, 3, { class: "bar" })];
}

function spoken(one, known) {
  const rows = one.keys.map((key, row) => {
    const told = one.columns.map((column) => {
      const value = column.hidden.includes(row) && !known(column.after) ? "?" : column.values[row] === null ? "−∞" : written(column.values[row]);
      return `${column.label} ${value}`;
    });
    return `${key}: ${told.join(", ")}`;
  });
  return rows.join(". ");
}

export function barsPicture(one, width, known) {
  const open = known(one.after);
  const names = Math.min(width * 0.3, Math.max(40, ...one.tokens.map((token) => textWidth(token.token, 14))) + 10);
  const [logits, shares] = [names + 62, width - 58];
  const most = one.tokens[0].probability;
  const head = [
    text(logits - 6, HEAD / 2, say("logit"), { anchor: "end", kind: "symbol" }),
    text(width, HEAD / 2, say("probability"), { anchor: "end", kind: "symbol" }),
  ];
  const rows = one.tokens.map((token, n) => {
    const top = HEAD + n * ROW;
    const cells = open
      ? [
          rect(logits + 4, top + 6, ((shares - logits - 8) * token.probability) / most, ROW - 12, { class: "bar" }),
          text(width, top + ROW / 2, share(token.probability), { anchor: "end", kind: "digits" }),
        ]
      : [covered(logits + 4, top + 3, width - logits - 4, ROW - 6)];
    return draw(
      "g",
      {},
      text(0, top + ROW / 2, token.token, { kind: "word", room: names - 6, size: 14 }),
      text(logits - 6, top + ROW / 2, written(token.logit), { anchor: "end", kind: "digits" }),
      ...cells,
    );
  });
  const told = one.tokens.map((token) => `${token.token}: ${written(token.logit)}, ${open ? share(token.probability) : "?"}`);
  return frame(width, HEAD + one.tokens.length * ROW, told.join(". "), ...head, ...rows);
}
