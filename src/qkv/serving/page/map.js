// A map of words: dots with labels where there is space.

import { draw } from "../viewer/dom.js";
import { figure } from "../viewer/figure.js";
import { say } from "../viewer/language.js";

const [HEIGHT, EDGE] = [500, 40];
const [LETTER, LINE, GAP] = [10, 20, 9]; // width of a letter, height of a label, distance of a label from its dot

/** Draw points in the colours of their groups; return a function that highlights a word, or none. */
export function showMap(container, points, groups) {
  const width = container.clientWidth || HEIGHT;
  const own = new Set(groups.map((group) => group.word));
  const spots = fitted(points, width).sort((one, two) => own.has(two.word) - own.has(one.word));
  const label = say("A map of {count} words: {words}", { count: points.length, words: points.map((point) => point.word).join(", ") });
  const picture = draw("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label });
  const taken = spots.map(({ x, y }) => ({ left: x - 6, right: x + 6, top: y - 6, bottom: y + 6 }));
  const marks = new Map(spots.map((spot) => [spot.word, mark(spot, groupOf(spot.word, groups), own.has(spot.word), width, taken)]));
  picture.append(...marks.values());
  container.classList.add("qkv-viewer");
  container.replaceChildren(figure({ title: say("Map"), picture, name: "map" }));
  return (word) => marks.forEach((one, name) => one.classList.toggle("lit", name === word));
}

function groupOf(word, groups) {
  const own = groups.findIndex((group) => group.word === word);
  return own >= 0 ? own : groups.findIndex((group) => group.found.some((one) => one.word === word));
}

/** Scale points so that they fill the picture. */
function fitted(points, width) {
  const along = (axis, size) => {
    const values = points.map((point) => point[axis]);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return (value) => (high > low ? EDGE + ((value - low) / (high - low)) * (size - 2 * EDGE) : size / 2);
  };
  const [across, down] = [along("x", width), along("y", HEIGHT)];
  return points.map(({ word, x, y }) => ({ word, x: across(x), y: HEIGHT - down(y) }));
}

/** Draw a dot and its label; a label without space appears when the pointer is on the dot. */
function mark({ word, x, y }, group, own, width, taken) {
  const box = labelBox(x, y, LETTER * [...word].length, width, taken);
  const at = box ?? { left: x + GAP, top: y - LINE / 2 };
  const name = draw("text", { x: at.left, y: at.top + 15 }, word);
  const dot = draw("circle", { cx: x, cy: y, r: own ? 7 : 4.5 });
  return draw("g", { class: `group-${group}${own ? " own" : ""}${box ? "" : " tight"}` }, draw("title", {}, word), dot, name);
}

/** Find space for a label right, left, above or below a dot; return null if there is none. */
function labelBox(x, y, wide, width, taken) {
  const corners = [[x + GAP, y - LINE / 2], [x - GAP - wide, y - LINE / 2], [x - wide / 2, y - GAP - LINE], [x - wide / 2, y + GAP]];
  for (const [left, top] of corners) {
    const box = { left, top, right: left + wide, bottom: top + LINE };
    const inside = left >= 0 && box.right <= width && top >= 0 && box.bottom <= HEIGHT;
    if (inside && taken.every((one) => box.right < one.left || one.right < left || box.bottom < one.top || one.bottom < top)) {
      taken.push(box);
      return box;
    }
  }
  return null;
}
