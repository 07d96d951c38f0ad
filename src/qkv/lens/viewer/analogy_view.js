// An analogy in a plane: the arrow from the first word to the second, and the same arrow from the third.

import { about, bold, draw, make } from "./dom.js";
import { figure } from "./figure.js";
import { say } from "./language.js";
import { boxesAlong, placed, placeLabels, wholePlane } from "./plane.js";

const [LEAST, MOST, SHAPE] = [280, 900, 2 / 3]; // widths of the picture in pixels, and its height relative to them
const FONT = "bold 17px system-ui, sans-serif";

export function showAnalogy(element, view) {
  const [first, second, third] = view.question;
  const points = view.points.map((point) => [point.x, point.y]);
  const width = Math.max(LEAST, Math.min(MOST, element.clientWidth || MOST));
  const height = Math.round(SHAPE * width);
  const plane = wholePlane([...points, view.arrows[1].to], width, height, width / 9);
  const best = view.answers[0]?.word ?? "?";
  const label = say("{first} is to {second} as {third} is to {best}", { first, second, third, best });
  const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, class: "analogy", role: "img", "aria-label": label });
  picture.append(...view.arrows.map((arrow, n) => drawArrow(placed(plane, arrow.from), placed(plane, arrow.to), n)));
  const pen = make("canvas", {}).getContext("2d");
  pen.font = FONT;
  const spots = view.points.map((point) => {
    const [x, y] = placed(plane, [point.x, point.y]);
    return { x, y, wide: pen.measureText(point.word).width + 4 };
  });
  const lines = view.arrows.flatMap((arrow) => boxesAlong(placed(plane, arrow.from), placed(plane, arrow.to)));
  const dots = spots.map(({ x, y }) => ({ left: x - 5, right: x + 5, top: y - 5, bottom: y + 5 }));
  const labels = placeLabels(spots, width, height, [...lines, ...dots]);
  view.points.forEach((point, n) => picture.append(mark(point, spots[n], labels[n], point.word === best)));
  const answers = view.answers.map(({ word, score }) => make("li", {}, bold(word), " ", make("span", { class: "cosine" }, score.toFixed(3))));
  const legend = make(
    "div",
    {},
    make("p", {}, say("The plane has the true distances of the three words. It holds {share} % of all the distances from “{first}”.", { share: Math.round(100 * view.explained), first })),
    make("p", {}, say("Answers, best first")),
    make("ol", { class: "answers" }, ...answers),
  );
  element.classList.add("qkv-viewer");
  const hint = say("The difference of two vectors, as an arrow: the answer is the word nearest to the end of the second arrow.");
  element.replaceChildren(about(hint), figure({ title: label, picture, legend, name: "analogy" }));
}

function drawArrow([x, y], [right, down], number) {
  const length = Math.hypot(right - x, down - y) || 1;
  const [across, along] = [(right - x) / length, (down - y) / length];
  const head = [[-12, -5], [-12, 5]].map(([back, side]) => [right + back * across - side * along, down + back * along + side * across]);
  const line = draw("line", { x1: x, y1: y, x2: right - 9 * across, y2: down - 9 * along });
  const tip = draw("polygon", { points: [[right, down], ...head].map((point) => point.join(",")).join(" ") });
  return draw("g", { class: `arrow-${number}` }, line, tip);
}

function mark(point, spot, label, best) {
  const dot = draw("circle", { cx: spot.x, cy: spot.y, r: point.role === "answer" && !best ? 4 : 6 });
  const group = draw("g", { class: `word ${point.role}${best ? " best" : ""}` }, draw("title", {}, point.word), dot);
  if (label) group.append(draw("text", { x: label.left + 2, y: label.top + 13 }, point.word));
  return group;
}
