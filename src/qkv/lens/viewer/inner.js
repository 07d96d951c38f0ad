// Position encodings, and embeddings in the plane.

import { about, draw, make } from "./dom.js";
import { figure } from "./figure.js";
import { picture } from "./heat.js";
import { placeLabels } from "./labels.js";
import { bare } from "./texts.js";
import { say } from "./language.js";

const [FONT, LINE, EDGE] = [13, 17, 24]; // of labels, in pixels; and the space between points and the edge
const [NARROW, WIDE] = [340, 1040]; // widths of the map

export function innerPanel(attention, width) {
  const panel = make("div");
  if (attention.positions) panel.append(positions(attention));
  panel.append(make("div", { class: "explained" }, about(
    say("Every token has a vector, its embedding. Here the vectors are projected to a plane: similar tokens lie close together."),
  ), pointMap(attention, Math.max(NARROW, Math.min(WIDE, width)))));
  return panel;
}

function positions(attention) {
  const [rows, columns] = [attention.positions.length, attention.positions[0].length];
  const box = make("div", { class: "axes" });
  const canvas = picture(attention.positions, box, 0.98);
  const ends = (name, count) => make("div", { class: name, "aria-hidden": "true" }, make("span", {}, "1"), make("span", {}, String(count)));
  box.append(ends("down", rows), canvas, ends("across", columns));
  const legend = say("{rows} positions downwards, {columns} dimensions across; blue is above 0, orange below.", { rows, columns });
  return make("div", { class: "explained" }, about(
    say("Attention alone does not know the order of words. So an encoding of its position is added to each word: one row for each position."),
  ), figure({ title: say("Position encodings"), picture: box, legend, name: "positions" }));
}

/** Each token once, without special tokens, which lie far from all words. */
function tokensOf(attention) {
  const seen = new Map();
  for (const [side, points] of Object.entries(attention.points)) {
    points.forEach((point, n) => {
      const token = attention[side][n];
      if (attention[`${side}_words`][n] !== null) seen.set(`${side} ${token}`, { point, side, text: bare(token) });
    });
  }
  return [...seen.values()];
}

function pointMap(attention, width) {
  const height = Math.round(width * (width < 600 ? 1.1 : 0.55));
  const all = tokensOf(attention);
  const ruler = make("canvas").getContext("2d");
  ruler.font = `${FONT}px system-ui, sans-serif`;
  const along = (axis, size) => {
    const values = all.map((one) => one.point[axis]);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return (value) => EDGE + ((value - low) / (high - low || 1)) * (size - 2 * EDGE);
  };
  const [across, down] = [along(0, width), along(1, height)];
  const spots = all.map((one) => {
    return { ...one, x: across(one.point[0]), y: height - down(one.point[1]), wide: 1.06 * ruler.measureText(one.text).width + 2, high: LINE };
  });
  const places = placeLabels(spots, width, height);
  const marks = spots.map(({ x, y, side, text }, n) => {
    const at = places[n];
    const label = at ? [draw("text", { x: at.left + 1, y: at.top + LINE - 4 }, text)] : [];
    const dot = side === "source" ? draw("circle", { cx: x, cy: y, r: 3.5 }) : draw("rect", { x: x - 3, y: y - 3, width: 6, height: 6 });
    return draw("g", { class: side }, draw("title", {}, text), dot, ...label);
  });
  const label = say("A map of {count} tokens", { count: all.length });
  const picture = draw("svg", { class: "points", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...marks);
  const hidden = places.filter((one) => !one).length;
  const legend = [
    attention.target ? say("Blue circles: tokens of the source. Orange squares: tokens of the translation.") : say("Each point is a token."),
    hidden ? say("{count} points have no room for a label; point at one to read it.", { count: hidden }) : "",
  ];
  return figure({ title: say("Embeddings"), picture, legend: legend.join(" "), name: "embeddings" });
}
