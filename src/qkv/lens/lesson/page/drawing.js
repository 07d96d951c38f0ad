// Parts of pictures: a frame, texts, cells with a number, and what is covered until a question is answered.

import { draw } from "../../viewer/dom.js";
import { cut, written } from "./texts.js";

export const SIZE = 13; // of letters, in units of a picture

/** An SVG of some width and height, with words for those who do not see it. */
export function frame(width, height, label, ...children) {
  const attributes = { class: "picture", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label };
  return draw("svg", attributes, ...children);
}

/** A text; `options`: anchor, kind (a class), size, room (the width after which it is cut). */
export function text(x, y, content, { anchor = "start", kind = "", size = SIZE, room = Infinity } = {}) {
  const fitting = cut(String(content), room, size);
  const attributes = { x, y, "text-anchor": anchor, "font-size": size, "dominant-baseline": "central", class: kind };
  return draw("text", attributes, fitting, ...(fitting === String(content) ? [] : [draw("title", {}, content)]));
}

export const rect = (x, y, width, height, attributes = {}) =>
  draw("rect", { x, y, width: Math.max(0, width), height, rx: Math.min(4, height / 2), ...attributes });

/** A cell with a number: blue above 0, orange below, the stronger the larger. */
export function cell(x, y, width, height, value, most) {
  const strength = 0.06 + 0.4 * Math.min(1, Math.abs(value) / (most || 1));
  const shown = Math.abs(value) < 9.995 ? written(value) : written(value, 1);
  return draw(
    "g",
    {},
    rect(x + 1, y, width - 2, height, { class: value < 0 ? "below" : "above", "fill-opacity": strength.toFixed(3) }),
    text(x + width / 2, y + height / 2 + 0.5, shown, { anchor: "middle", kind: "digits", size: width < 44 ? 11 : 12.5 }),
  );
}

/** A covered cell. */
export function covered(x, y, width, height) {
  return draw(
    "g",
    {},
    rect(x + 1.5, y + 0.5, width - 3, height - 1, { class: "covered" }),
    text(x + width / 2, y + height / 2 + 0.5, "?", { anchor: "middle", kind: "question" }),
  );
}
