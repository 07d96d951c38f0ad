// The units of a feed-forward network, and what the model would say after each layer.

import { draw } from "../../viewer/dom.js";
import { say } from "../../viewer/language.js";
import { covered, frame, rect, text } from "./drawing.js";
import { cut, share, textWidth } from "./texts.js";

const [HIGH, ROW, WIDE] = [110, 40, 560];

export function unitsPicture(one, width, known) {
  const title = say("{count} units as bars, above 0 upwards", { count: one.values.length });
  if (!known(one.after)) return frame(width, HIGH, title, covered(0, 0, width, HIGH));
  const high = Math.max(0.001, ...one.values);
  const low = Math.max(0, ...one.values.map((value) => -value));
  const zero = 6 + ((HIGH - 12) * high) / (high + low);
  const wide = width / one.values.length;
  const bars = one.values.map((value, n) => {
    const tall = (Math.abs(value) / (high + low)) * (HIGH - 12);
    const attributes = { class: value < 0 ? "below" : "above", "fill-opacity": 0.85, rx: 1 };
    return rect(n * wide + 1, value < 0 ? zero : zero - tall, wide - 2, tall, attributes);
  });
  return frame(width, HIGH, title, ...bars, draw("line", { x1: 0, x2: width, y1: zero, y2: zero, class: "rule" }));
}

export function layersPicture(one, width, known) {
  const open = known(one.after);
  const narrow = width < WIDE;
  const left = narrow ? 0 : Math.max(...one.layers.map((layer) => textWidth(named(layer), 13))) + 16;
  const high = narrow ? ROW + 20 : ROW;
  const bar = narrow ? 84 : 150;
  const room = (width - left - bar - 12) / 3;
  const rows = one.layers.map((layer, n) => {
    const top = n * high;
    const y = top + (narrow ? 38 : high / 2);
    const label = text(0, narrow ? top + 12 : y, named(layer), { kind: "faded" });
    if (!open) return draw("g", {}, label, covered(left, y - 15, width - left, 30));
    const words = layer.top.map(([token, p], m) => word(left + m * room, y, room - 6, token, p, token === one.answer));
    const from = width - bar;
    if (layer.probability === null) return draw("g", {}, label, ...words); // it is not among the most probable ones here
    const told = text(width, y, share(layer.probability), { anchor: "end", kind: "digits", size: 12 });
    return draw("g", {}, label, ...words, rect(from, y - 9, layer.probability * (bar - 52), 18, { class: "bar" }), told);
  });
  const told = one.layers.map((layer) => `${named(layer)}: ${open ? layer.top.map(([token, p]) => `${token} ${share(p)}`).join(", ") : "?"}`);
  const legend = open
    ? [text(width, one.layers.length * high + 12, say("the bars: “{answer}”", { answer: one.answer }), { anchor: "end", kind: "faded", size: 12 })]
    : [];
  return frame(width, one.layers.length * high + (open ? 26 : 0), told.join(". "), ...rows, ...legend);
}

const named = (layer) => say("after layer {layer}", layer);

function word(x, y, width, token, probability, answer) {
  const attributes = { class: answer ? "above" : "other-word", "fill-opacity": (0.08 + 0.37 * probability).toFixed(3) };
  const kind = answer ? "word answer" : "word";
  return draw("g", {}, rect(x, y - 15, width, 30, attributes), text(x + width / 2, y + 0.5, cut(token, width - 8, 13), { anchor: "middle", kind }));
}
