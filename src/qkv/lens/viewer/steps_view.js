// How a text is written: the next token in each step, and the search as a tree: the values of `SearchView.json()`.

import { numberBar, tokenText } from "./bars.js";
import { make } from "./dom.js";
import { figure } from "./figure.js";
import { say } from "./language.js";
import { stepper } from "./player.js";
import { fixed } from "./quantities.js";
import { searchTree } from "./search_tree.js";
import { bare } from "./texts.js";

const PAUSE = 1500; // milliseconds between steps while they play

/** The hypothesis of a step that is shown: the one of a node, else the one on the way of the output. */
export function hypothesisAt(view, step, node = null) {
  const all = view.steps[step].hypotheses;
  return all.find((one) => one.node === node) || all.find((one) => view.nodes[one.node].best) || all[0];
}

/** Tokens with their probability, that of drawing them where the search draws (0 if it may not), and whether the search took them. */
export function nextTokens(view, step, hypothesis) {
  const { draw } = view.steps[step];
  const taken = new Set(view.nodes.filter((one) => one.parent === hypothesis.node && one.kept).map((one) => one.token));
  const drawn = new Map(draw ? draw.top : []);
  const found = hypothesis.top.map(([token, before]) => ({ token, before, after: draw ? drawn.get(token) || 0 : null, taken: taken.has(token) }));
  const listed = new Set(found.map((one) => one.token));
  const rest = view.nodes.filter((one) => one.parent === hypothesis.node && one.kept && !listed.has(one.token));
  const others = rest.map((one) => ({ token: one.token, before: Math.exp(one.logprob), after: draw ? draw.probability : null, taken: true }));
  return [...found, ...others];
}

/** Draw the steps, and the tree of a beam search. `state` has `step` and `node`. */
export function showSteps(element, view, { state = {}, onState = () => {} } = {}) {
  const now = { step: Math.min(state.step || 0, view.steps.length - 1), node: state.node ?? null };
  element.replaceChildren();
  element.classList.add("qkv-viewer", "qkv-laboratory");
  const picture = make("div");
  const text = (step) => say("Step {number} of {count}", { number: step + 1, count: view.steps.length });
  const slider = stepper({ label: say("Step of the search"), count: view.steps.length, start: now.step, text, pause: PAUSE, choose: (step) => show({ step, node: null }) });
  const tree = view.search === "beam" ? searchTree(view, (node) => show({ step: Math.min(node.step + 1, view.steps.length - 1), node: node.id })) : null;
  element.append(figure({ title: say("While it writes"), controls: [slider.element], picture, legend: legendOf(view), name: "steps" }));
  if (tree) element.append(figure({ title: say("The beam as a tree"), picture: tree.element, legend: treeLegend(), name: "beam" }));
  draw();

  function show(change) {
    Object.assign(now, change);
    slider.set(now.step);
    draw();
    onState({ ...now });
  }

  function draw() {
    const node = now.node === null ? null : view.nodes[now.node];
    const hypothesis = hypothesisAt(view, now.step, now.node);
    const ended = node !== null && hypothesis.node !== node.id;
    picture.replaceChildren(writtenSoFar(view, ended ? node : view.nodes[hypothesis.node], hypothesis, ended), ...(ended ? [] : [tokensTable(view, now.step, hypothesis)]));
    if (tree) tree.select(ended ? node.id : hypothesis.node);
  }
}

const SEARCHES = { beam: "Beam search", greedy: "Greedy search", sampling: "Sampling" };

const OPTIONS = { beam: "beam {value}", length_penalty: "length penalty {value}", coverage_penalty: "coverage penalty {value}", temperature: "temperature {value}", top_k: "top-k {value}", top_p: "top-p {value}", seed: "seed {value}" };

function legendOf(view) {
  const options = Object.entries(view.options).filter(([, value]) => value !== null && value !== 0).map(([name, value]) => say(OPTIONS[name], { value }));
  const search = [say(SEARCHES[view.search]), ...options].join(", ");
  const found = say("{search}. Log-probability of the output {logprob}, score {score}.", { search, logprob: fixed(view.logprob, 2), score: fixed(view.score, 2) });
  return view.search === "sampling" ? `${found} ${say("Pale: what the model says. Full: after temperature, top-k and top-p, from which a token is drawn.")}` : found;
}

function writtenSoFar(view, node, hypothesis, ended) {
  const read = view.kind === "generator" ? view.source : [];
  const before = read.map((token, n) => (n && token.startsWith("▁") ? " " : "") + bare(token)).join("");
  const path = ended ? pathText(view, node.id) : hypothesis.text;
  const line = make("p", { class: "lab-written", dir: "auto", "aria-live": "polite" }, make("span", { class: "lab-read" }, before), path, ended ? "" : make("span", { class: "lab-cursor" }, "▁"));
  if (!node.step && node.step !== 0) return line;
  const fates = { ended: "This text has ended.", dropped: "The search dropped this text here.", alive: "The search goes on with this text." };
  const facts = node.parent === null ? "" : say("log-probability {total}, score {score}", { total: fixed(node.total, 2), score: fixed(node.score, 2) });
  return make("div", {}, line, make("p", { class: "lab-note" }, [ended ? say(fates[node.status]) : "", facts].filter(Boolean).join(" ")));
}

/** The tokens on the way to a node. */
function pathText(view, id) {
  const tokens = [];
  for (let here = view.nodes[id]; here.parent !== null; here = view.nodes[here.parent]) tokens.unshift(here.token);
  return tokens.map((token, n) => (n && token.startsWith("▁") ? " " : "") + bare(token)).join("");
}

function tokensTable(view, step, hypothesis) {
  const found = nextTokens(view, step, hypothesis);
  const { draw } = view.steps[step];
  const most = Math.max(...found.map((one) => Math.max(one.before, one.after || 0)));
  const rows = found.map((one) => {
    const bars = draw ? [numberBar(one.before, 0, most), numberBar(one.after, 0, most)] : [numberBar(one.before, 0, most)];
    const numbers = [one.before, ...(draw ? [one.after] : [])].map((value, n, all) => make("td", { class: `lab-number${n === all.length - 1 ? " lab-last" : ""}` }, value === 0 ? say("cut off") : fixed(value)));
    return make("tr", { class: one.taken ? "lab-own" : null }, make("th", { scope: "row", dir: "auto" }, ...tokenText(bare(one.token))), ...numbers, make("td", { class: `lab-strip${draw ? " lab-pair" : ""}` }, ...bars), make("td", { class: "lab-now" }, one.taken ? say(draw ? "← drawn" : view.search === "beam" ? "← kept" : "← taken") : ""));
  });
  const names = [say("next token"), say(draw ? "model" : "probability"), ...(draw ? [say("drawn from")] : [])];
  const head = make("tr", {}, ...names.map((text, n) => make("th", { scope: "col", class: n ? "lab-number" : null }, text)), make("td"), make("td"));
  const table = make("table", { class: "lab-table lab-keys", "aria-label": say("Most probable next tokens") }, make("thead", {}, head), make("tbody", {}, ...rows));
  if (!draw) return table;
  const note = say("One of {count} tokens could be drawn; this one with a probability of {probability}.", { count: draw.choices, probability: fixed(draw.probability) });
  return make("div", {}, table, make("p", { class: "lab-note" }, note));
}

function treeLegend() {
  return say("Each row is a step, from the best hypothesis on the left to the worst one on the right. The thick line leads to the output; ■ ends a text; dashed ones were dropped later. Choose a token to see what could follow it.");
}
