// Position encodings, and embeddings in the plane.

import { about, draw, make } from "./dom.js";
import { picture } from "./heat.js";
import { bare } from "./texts.js";
import { say } from "./language.js";

export function innerPanel(attention) {
  const panel = make("div");
  if (attention.positions) {
    const figure = make("figure", {}, make("h3", {}, "Position encodings"), about(
      say("Attention alone does not know the order of words. So an encoding of its position is added to each word: one row for each position."),
    ));
    const canvas = picture(attention.positions, panel, 0.98);
    canvas.classList.add("wide");
    const [rows, columns] = [attention.positions.length, attention.positions[0].length];
    const caption = `${rows} positions downwards, ${columns} dimensions across; blue is above 0, orange below.`;
    figure.append(canvas, make("figcaption", {}, caption));
    panel.append(figure);
  }
  const colours = attention.target ? "Blue: tokens of the source. Orange: tokens of the translation." : "Each point is a token.";
  const title = make("h3", {}, "Embeddings");
  panel.append(make("figure", {}, title, about(
      say("Every token has a vector, its embedding. Here the vectors are projected to a plane: similar tokens lie close together."),
    ), pointMap(attention), make("figcaption", {}, colours)));
  return panel;
}

function pointMap(attention) {
  const [width, height, edge] = [window.innerWidth < 600 ? 360 : 640, 400, 30];
  const seen = new Map(); // each token once, without special tokens, which lie far from all words
  for (const [side, points] of Object.entries(attention.points)) {
    points.forEach((point, n) => {
      const token = attention[side][n];
      if (attention[`${side}_words`][n] !== null) seen.set(`${side} ${token}`, { point, side, text: bare(token) });
    });
  }
  const all = [...seen.values()];
  const range = (axis) => {
    const values = all.map((one) => one.point[axis]);
    return [Math.min(...values), Math.max(...values)];
  };
  const [xs, ys] = [range(0), range(1)];
  const at = (value, [low, high], size) => edge + ((value - low) / (high - low || 1)) * (size - 2 * edge);
  const taken = [];
  const dots = all.map(({ point, side, text }) => {
    const [x, y] = [at(point[0], xs, width), height - at(point[1], ys, height)];
    const position = room(x, y, 7.5 * text.length, [width, height], taken);
    const label = position ? [draw("text", { x: position[0], y: position[1] + 11 }, text)] : [];
    return draw("g", { class: side }, draw("title", {}, text), draw("circle", { cx: x, cy: y, r: 3.5 }), ...label);
  });
  const label = `A map of ${all.length} tokens`;
  return draw("svg", { class: "points", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...dots);
}

/** A free position for a label beside a point; null if there is no room, and the point has only a tooltip. */
function room(x, y, wide, [width, height], taken) {
  const high = 14;
  for (const [left, top] of [[x + 6, y - 7], [x - wide - 6, y - 7], [x - wide / 2, y - 20], [x - wide / 2, y + 6]]) {
    const inside = left >= 0 && left + wide <= width && top >= 0 && top + high <= height;
    const free = taken.every(([l, t, w]) => left + wide < l || l + w < left || top + high < t || t + high < top);
    if (inside && free) {
      taken.push([left, top, wide]);
      return [left, top];
    }
  }
  return null;
}
