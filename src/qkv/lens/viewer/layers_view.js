// What a model would say if it stopped after each layer (logit lens): the values of `LayerPredictions.json()`.

import { numberBar, tokenText } from "./bars.js";
import { draw, make } from "./dom.js";
import { figure } from "./figure.js";
import { grid, ramp } from "./grid.js";
import { say } from "./language.js";
import { fixed } from "./quantities.js";
import { bare } from "./texts.js";

const LETTERS = 10; // of a token in a cell; the rest is in its name
const WIDTH = 480; // of the curve of ranks
const HEIGHT = 240;
const EDGE = { left: 52, right: 16, top: 16, bottom: 40 };

/** Draw the table of most probable tokens; `state.cell` is [layer, predicted token]. */
export function showLayers(element, view, { state = {}, onState = () => {} } = {}) {
  element.replaceChildren();
  element.classList.add("qkv-viewer", "qkv-laboratory");
  const detail = make("div");
  const choose = (layer, position) => {
    detail.replaceChildren(detailFigure(view, layer, position));
    onState({ cell: [layer, position] });
  };
  const [layer, position] = state.cell || firstCell(view);
  element.append(tableFigure(view, [layer, position], choose), detail);
  detail.append(detailFigure(view, layer, position));
}

/** The last layer of the token that the layers disagree most about. */
function firstCell(view) {
  const last = view.layers.length - 1;
  const gain = (position) => view.probability[last][position] - view.probability[0][position];
  return [last, view.positions.map((_, n) => n).reduce((best, n) => (gain(n) > gain(best) ? n : best), 0)];
}

const short = (token) => ([...token].length > LETTERS ? `${[...token].slice(0, LETTERS - 1).join("")}…` : token);

const layerName = (view, layer) => say("Layer {layer}", { layer: view.layers[layer].layer + 1 });

/** What the model has read where it predicts a token. */
function readBefore(view, position) {
  const tokens = view[view.predicts_in];
  return bare(tokens[view.positions[position]]);
}

function tableFigure(view, chosen, choose) {
  const order = view.layers.map((_, layer) => layer).reverse(); // the last layer on top, as states rise
  const likeliest = (r, c) => view.top[order[r]][c][0];
  const shown = grid({
    label: say("Most probable token after each layer"),
    rows: order.map((layer) => ({ name: layerName(view, layer), values: view.top[layer].map((top) => top[0][1]) })),
    columns: view.positions.map((_, n) => readBefore(view, n)),
    scale: 1,
    text: (r, c) => short(bare(likeliest(r, c)[0])),
    says: (r, c) => `${layerName(view, order[r])}, ${say("after “{token}”", { token: readBefore(view, c) })}: ${bare(likeliest(r, c)[0])} ${fixed(likeliest(r, c)[1])}`,
    chosen: [order.indexOf(chosen[0]), chosen[1]],
    choose: (r, c) => choose(order[r], c),
    corner: say(view.kind === "encoder" ? "at" : "after"),
  });
  const legend = make("div", {}, say("Each cell has the token that the model would find most probable if it stopped after that layer; more colour is a higher probability. The top row is what the model says."), ramp("1"));
  return figure({ title: say("Prediction after each layer"), picture: shown, legend, name: "layers" });
}

function detailFigure(view, layer, position) {
  const answer = bare(view.answers[position]);
  const lines = view.layers.map((_, n) => {
    const [probability, rank] = [view.probability[n][position], view.rank[n][position]];
    return make("tr", { class: n === layer ? "lab-own" : null }, make("th", { scope: "row" }, ...tokenText(layerName(view, n))), make("td", { class: "lab-number lab-last" }, fixed(probability)), make("td", { class: "lab-number" }, String(rank)), make("td", { class: "lab-strip" }, numberBar(probability, 0, 1)));
  });
  const head = make("tr", {}, ...[say("layer"), say("probability"), say("rank")].map((text, n) => make("th", { scope: "col", class: n ? "lab-number" : null }, text)), make("td"));
  const table = make("table", { class: "lab-table lab-keys", "aria-label": say("“{token}” after each layer", { token: answer }) }, make("thead", {}, head), make("tbody", {}, ...lines));
  const top = view.top[layer][position].map(([token, probability]) => make("tr", {}, make("th", { scope: "row", dir: "auto" }, ...tokenText(bare(token))), make("td", { class: "lab-number lab-last" }, fixed(probability)), make("td", { class: "lab-strip" }, numberBar(probability, 0, view.top[layer][position][0][1]))));
  const best = make("table", { class: "lab-table", "aria-label": say("Most probable tokens after this layer") }, make("tbody", {}, ...top));
  const picture = make(
    "div",
    { class: "lab-parts" },
    make("section", {}, make("h3", {}, say("Probability of “{token}”", { token: answer })), table),
    make("section", {}, make("h3", {}, say("Rank of “{token}” among all tokens", { token: answer })), rankCurve(view, layer, position)),
    make("section", {}, make("h3", {}, say("Most probable after {layer}", { layer: layerName(view, layer) })), best),
  );
  const title = say("The answer “{answer}” after “{token}”", { answer, token: readBefore(view, position) });
  return figure({ title, picture, legend: say("The answer is the token that the text has there, or else what the last layer finds most probable."), name: "layers-answer" });
}

/** The ranks of the answer by layer, on a logarithmic scale: 1 is the top. */
function rankCurve(view, layer, position) {
  const ranks = view.rank.map((row) => row[position]);
  const decades = Math.max(1, Math.ceil(Math.log10(Math.max(...ranks))));
  const x = (n) => EDGE.left + (ranks.length < 2 ? 0.5 : n / (ranks.length - 1)) * (WIDTH - EDGE.left - EDGE.right);
  const y = (rank) => EDGE.top + (Math.log10(rank) / decades) * (HEIGHT - EDGE.top - EDGE.bottom);
  const lines = Array.from({ length: decades + 1 }, (_, n) => 10 ** n).flatMap((rank) => [
    draw("path", { class: "tick", d: `M${EDGE.left} ${y(rank)}H${WIDTH - EDGE.right}` }),
    draw("text", { x: EDGE.left - 8, y: y(rank) + 5, "text-anchor": "end" }, rank.toLocaleString("en")),
  ]);
  const every = Math.ceil(ranks.length / 12);
  const names = ranks.map((_, n) => n).filter((n) => n % every === 0 || n === ranks.length - 1).map((n) => draw("text", { x: x(n), y: HEIGHT - 20, "text-anchor": "middle" }, String(view.layers[n].layer + 1)));
  const points = ranks.map((rank, n) => draw("circle", { class: n === layer ? "point own" : "point", cx: x(n), cy: y(rank), r: n === layer ? 7 : 4 }, draw("title", {}, `${layerName(view, n)}: ${rank}`)));
  const path = draw("path", { class: "curve", d: ranks.map((rank, n) => `${n ? "L" : "M"}${x(n).toFixed(1)} ${y(rank).toFixed(1)}`).join("") });
  const under = draw("text", { x: (WIDTH + EDGE.left) / 2, y: HEIGHT - 2, "text-anchor": "middle" }, say("layer"));
  const label = say("Ranks: {ranks}", { ranks: ranks.join(", ") });
  return draw("svg", { class: "lab-curve", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label }, ...lines, ...names, under, path, ...points);
}
