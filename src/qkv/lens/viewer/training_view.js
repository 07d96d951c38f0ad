// One text through training: the values of `TrainingView.json()`.

import { numberBar, tokenText } from "./bars.js";
import { select } from "./asking.js";
import { matrixOf } from "./change_attention.js";
import { draw, make } from "./dom.js";
import { figure } from "./figure.js";
import { ramp } from "./grid.js";
import { say } from "./language.js";
import { partTitle } from "./names.js";
import { mean } from "./numbers.js";
import { stepper } from "./player.js";
import { fixed } from "./quantities.js";
import { bare } from "./texts.js";

const PAUSE = 1500; // milliseconds between snapshots while they play
const WIDTH = 560; // of the curve of losses
const HEIGHT = 260;
const EDGE = { left: 50, right: 18, top: 18, bottom: 44 };

/** Draw attention, output and loss at a snapshot, and a slider over snapshots. `state` has `snapshot`, `map` and `head`. */
export function showTraining(element, view, { state = {}, onState = () => {} } = {}) {
  const maps = view.snapshots[0].maps;
  const last = view.snapshots.length - 1;
  const first = maps.find((one) => one.name === state.map) || maps.find((one) => one.part === "cross") || maps[0];
  const now = { snapshot: Math.min(state.snapshot ?? last, last), map: first.name, head: state.head ?? "mean" };
  element.replaceChildren();
  element.classList.add("qkv-viewer", "qkv-laboratory");
  const [written, attention, choosers] = [make("div"), make("div"), make("div", { class: "lab-choosers" })];
  const text = (n) => say("Step {step}", { step: view.steps[n].toLocaleString("en") });
  const slider = () => stepper({ label: say("Step of the training"), count: last + 1, start: now.snapshot, text, pause: PAUSE, choose: (snapshot) => show({ snapshot }) });
  const sliders = [slider(), slider()];
  const [loss, probabilities] = [make("div"), make("div")];
  const top = make("div", { class: "lab-parts" }, make("section", { class: "lab-whole" }, written), make("section", {}, make("h3", {}, say("Loss")), loss), probabilities);
  element.append(figure({ title: say("Through training"), controls: [sliders[0].element], picture: top, name: "training" }));
  element.append(figure({ title: say("Attention through training"), controls: [sliders[1].element, choosers], picture: attention, legend: make("div", {}, say("A row is the token that attends, a column the token that it attends to. All snapshots read the same texts."), ramp("1", 0, true)), name: "training-attention" }));
  paint();

  function show(change) {
    Object.assign(now, change);
    sliders.forEach((one) => one.set(now.snapshot));
    paint();
    onState({ ...now });
  }

  function paint() {
    const one = view.snapshots[now.snapshot];
    written.replaceChildren(outputOf(view, one));
    loss.replaceChildren(lossCurve(view, one));
    probabilities.replaceChildren(...predictionsOf(view, one));
    choosers.replaceChildren(...mapChoosers(view, maps, now, show));
    const map = one.maps.find((other) => other.name === now.map);
    const shown = now.head === "mean" ? { ...map, heads: [mean(map.heads)] } : map;
    const label = say("{part}, layer {layer}", { part: partTitle(view.kind, map.part), layer: map.layer + 1 });
    attention.replaceChildren(matrixOf(label, shown, now.head === "mean" ? 0 : Number(now.head), view, 1));
  }
}

function mapChoosers(view, maps, now, show) {
  const name = (one) => say("{part}, layer {layer}", { part: partTitle(view.kind, one.part), layer: one.layer + 1 });
  const own = maps.find((one) => one.name === now.map);
  const heads = [["mean", say("mean of all heads")], ...own.heads.map((_, n) => [n, String(n + 1)])];
  const found = maps.length > 1 ? [select(say("Attention"), maps.map((one) => [one.name, name(one)]), now.map, (map) => show({ map, head: "mean" }))] : [];
  return own.heads.length > 1 ? [...found, select(say("Head"), heads, now.head, (head) => show({ head }))] : found;
}

function outputOf(view, one) {
  const names = { translator: "The translation at this step", generator: "What it writes at this step", encoder: "What it says at this step" };
  const line = make("p", { class: "lab-written", dir: "auto", "aria-live": "polite" }, one.output || "—");
  const facts = [say("step {step}", { step: one.step.toLocaleString("en") }), one.loss === null ? "" : say("loss {loss}", { loss: fixed(one.loss) })];
  return make("div", {}, make("h3", {}, say(names[view.kind])), line, make("p", { class: "lab-note" }, facts.filter(Boolean).join(", ")));
}

/** Probabilities of the tokens of the text that all snapshots read, or the words for each [MASK]. */
function predictionsOf(view, one) {
  if (one.predictions) {
    return one.predictions.map((words) => section(say("Words for [MASK]"), words.map(({ word, probability }) => [word, probability])));
  }
  if (!one.probabilities) return [];
  const tokens = view.target || view.source;
  const pairs = tokens.map((token, n) => [bare(token), one.probabilities[n]]).filter(([, value]) => value !== null);
  return [section(say("Probability of each token, given those before it"), pairs)];
}

function section(title, pairs) {
  const rows = pairs.map(([name, value]) => make("tr", {}, make("th", { scope: "row", dir: "auto" }, ...tokenText(name)), make("td", { class: "lab-number lab-last" }, fixed(value)), make("td", { class: "lab-strip" }, numberBar(value, 0, 1))));
  return make("section", {}, make("h3", {}, title), make("table", { class: "lab-table", "aria-label": title }, make("tbody", {}, ...rows)));
}

/** Steps of a curve on a logarithmic scale, and its losses on a linear one, as functions of the drawing. */
export function scales(losses) {
  const most = Math.max(1, ...losses.map(([step]) => step));
  const [low, high] = [Math.min(...losses.map(([, loss]) => loss)), Math.max(...losses.map(([, loss]) => loss))];
  const x = (step) => EDGE.left + (Math.log1p(step) / Math.log1p(most)) * (WIDTH - EDGE.left - EDGE.right);
  const y = (loss) => EDGE.top + ((high - loss) / (high - low || 1)) * (HEIGHT - EDGE.top - EDGE.bottom);
  return { x, y, low, high, most };
}

function lossCurve(view, one) {
  if (!view.losses.length) return make("p", { class: "lab-note" }, say("The run has no log of its losses."));
  const { x, y, low, high, most } = scales(view.losses);
  const d = view.losses.map(([step, loss], n) => `${n ? "L" : "M"}${x(step).toFixed(1)} ${y(loss).toFixed(1)}`).join("");
  const grid = [low, (low + high) / 2, high].flatMap((loss) => [
    draw("path", { class: "tick", d: `M${EDGE.left} ${y(loss)}H${WIDTH - EDGE.right}` }),
    draw("text", { x: EDGE.left - 8, y: y(loss) + 5, "text-anchor": "end" }, fixed(loss, 2)),
  ]);
  const decades = Array.from({ length: Math.floor(Math.log10(most)) + 1 }, (_, n) => 10 ** n);
  const names = decades.map((step) => draw("text", { x: x(step), y: HEIGHT - 22, "text-anchor": "middle" }, step.toLocaleString("en")));
  const marks = view.snapshots.filter((other) => other.loss !== null).map((other) => draw("circle", { class: `point${other === one ? " own" : ""}${other.step < view.losses[0][0] ? " hollow" : ""}`, cx: x(other.step), cy: y(other.loss), r: other === one ? 8 : 4 }, draw("title", {}, `${other.step}: ${fixed(other.loss)}`)));
  const under = draw("text", { x: (WIDTH + EDGE.left) / 2, y: HEIGHT - 4, "text-anchor": "middle" }, say("step (logarithmic)"));
  const label = say("Loss from {first} to {last}; at step {step} it is {loss}", { first: fixed(view.losses[0][1], 2), last: fixed(view.losses[view.losses.length - 1][1], 2), step: one.step, loss: one.loss === null ? "?" : fixed(one.loss, 2) });
  return draw("svg", { class: "lab-curve", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label }, ...grid, ...names, under, draw("path", { class: "curve", d }), ...marks);
}
