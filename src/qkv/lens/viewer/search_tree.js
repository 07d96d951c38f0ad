// A beam search as a tree: a row for each step, a lane for each hypothesis, best first.

import { draw, make, roving } from "./dom.js";
import { say } from "./language.js";
import { fixed } from "./quantities.js";
import { bare } from "./texts.js";

const FONT = 14; // units of the drawing, which are pixels at the usual size of text
const LETTER = 8;
const LINE = 17;
const LEFT = 34; // for the numbers of the steps
const GAP = 26; // between rows
const LANES = [58, 168]; // narrowest and widest

/** The nodes that the search kept, row by row: those of a step, best first. */
export function treeRows(view) {
  const rows = view.steps.map(() => []);
  view.nodes.filter((one) => one.kept && one.parent !== null).forEach((one) => rows[one.step].push(one));
  rows.forEach((row) => row.sort((a, b) => b.score - a.score || a.id - b.id));
  return rows;
}

/** Where nodes stand in a drawing so wide: rows of { node, x, y, width, height, lines }, and the height of all. */
export function treeLayout(view, width) {
  const rows = treeRows(view);
  const lanes = Math.max(...rows.map((row) => row.length));
  const lane = Math.max(LANES[0], Math.min(LANES[1], (width - LEFT) / lanes));
  const letters = Math.max(4, Math.floor((lane - 22) / LETTER));
  let y = 34;
  const places = rows.map((row, step) => {
    const texts = row.map((node) => broken(bare(node.token) + (node.status === "ended" ? " ■" : ""), letters));
    const height = Math.max(1, ...texts.map((lines) => lines.length)) * LINE + 22;
    const found = row.map((node, n) => ({ node, lines: texts[n], x: LEFT + n * lane + 4, y, width: lane - 8, height: texts[n].length * LINE + 22 }));
    y += height + GAP;
    return { step, y: found.length ? found[0].y : y, nodes: found };
  });
  return { rows: places, width: LEFT + lanes * lane, height: y - GAP + 8, start: LEFT + lane / 2 };
}

/** A text in lines of so many letters. */
export function broken(text, letters) {
  const all = [...text];
  const lines = [];
  for (let first = 0; first < all.length; first += letters) lines.push(all.slice(first, first + letters).join(""));
  return lines.length ? lines : [""];
}

/** The tree as an element that is drawn anew for each width; `select(id)` marks a node. */
export function searchTree(view, choose) {
  const box = make("div", { class: "lab-tree" });
  let [room, selected, groups] = [0, null, new Map()];
  const paint = () => {
    const unit = parseFloat(getComputedStyle(box).fontSize) / 16 || 1;
    const wide = Math.floor((box.clientWidth || 800) / unit);
    if (wide === room) return;
    room = wide;
    const layout = treeLayout(view, wide);
    const places = new Map(layout.rows.flatMap((row) => row.nodes.map((one) => [one.node.id, one])));
    groups = new Map([...places.values()].map((one) => [one.node.id, nodeGroup(one, choose)]));
    const edges = [...places.values()].map((one) => edge(places.get(one.node.parent), one, layout));
    const numbers = layout.rows.map((row) => draw("text", { class: "step", x: 0, y: row.y + LINE + 4 }, String(row.step + 1)));
    const picture = draw("svg", { viewBox: `0 0 ${Math.max(wide, layout.width)} ${layout.height}`, role: "group", "aria-label": say("The beam as a tree"), "font-size": FONT });
    picture.append(draw("text", { class: "start", x: layout.start, y: 14, "text-anchor": "middle" }, say("start")), ...edges, ...numbers, ...groups.values());
    roving(picture, [...groups.values()]);
    box.replaceChildren(picture);
    select(selected);
  };
  const select = (id) => {
    selected = id;
    groups.forEach((group, own) => group.setAttribute("aria-pressed", String(own === id)));
  };
  new ResizeObserver(paint).observe(box);
  return { element: box, select };
}

function edge(from, to, layout) {
  const [x, y] = from ? [from.x + from.width / 2, from.y + from.height] : [layout.start, 20];
  const [a, b] = [to.x + to.width / 2, to.y];
  const kind = to.node.best ? "best" : to.node.status;
  return draw("path", { class: `edge ${kind}`, d: `M${x} ${y}C${x} ${(y + b) / 2} ${a} ${(y + b) / 2} ${a} ${b}` });
}

function nodeGroup({ node, lines, x, y, width, height }, choose) {
  const fates = { ended: "ended", dropped: "dropped", alive: "goes on" };
  const label = say("{token} {probability}, step {step}, score {score}, {fate}", {
    token: lines.join(" "), step: node.step + 1, probability: fixed(Math.exp(node.logprob), 2), score: fixed(node.score, 2), fate: say(fates[node.status]),
  });
  const pick = () => choose(node);
  const texts = lines.map((line, n) => draw("text", { x: x + width / 2, y: y + 16 + n * LINE, "text-anchor": "middle" }, line));
  const number = draw("text", { class: "number", x: x + width / 2, y: y + height - 6, "text-anchor": "middle" }, fixed(Math.exp(node.logprob), 2));
  const box = draw("rect", { x, y, width, height, rx: 6 });
  const group = draw("g", { class: `node ${node.best ? "best" : node.status}`, role: "button", "aria-label": label }, box, ...[...texts, number].flatMap((text) => [text, " "]));
  group.addEventListener("click", pick);
  group.addEventListener("focus", pick);
  return group;
}
