// A model before and after changes, side by side: the values of `ModelComparison.json()`.

import { asking } from "./asking.js";
import { numberBar, tokenText } from "./bars.js";
import { headAttention, movedFigure } from "./change_attention.js";
import { changeName } from "./names.js";
import { changePanel } from "./change_panel.js";
import { plainChange } from "./changes.js";
import { make, roving } from "./dom.js";
import { figure } from "./figure.js";
import { say } from "./language.js";
import { fixed, signed } from "./quantities.js";
import { bare, sentence } from "./texts.js";

/**
 * Draw the comparison into an element. `ask(changes, maps)` returns a promise of the comparison after other changes; `maps`, if it
 * is given, names the attentions whose weights are wanted. Without it, the page shows what was computed.
 */
export function showChange(element, first, { state = {}, onState = () => {}, ask = null } = {}) {
  let view = first;
  const now = { head: state.head || null, changes: first.changes.map(plainChange) };
  const { line, put } = asking(async ([changes, maps]) => ask(changes, maps), answered);
  const [panel, output, attention] = [make("div"), make("div"), make("div")];
  element.replaceChildren();
  element.classList.add("qkv-viewer", "qkv-laboratory");
  element.append(panel, line, output, attention);
  if (ask) panel.append(changePanel(() => view, () => now.changes, run));
  draw();

  function run(changes) {
    now.changes = changes;
    put([changes, now.head ? [...new Set([...moving(view), now.head[0]])] : null]);
    tell();
  }

  function answered(found) {
    view = found;
    if (ask) panel.firstChild.refresh();
    draw();
  }

  function choose(head) {
    now.head = head;
    tell();
    const known = view.before.maps.some((one) => one.name === head[0]);
    if (!known && ask) put([now.changes, [...new Set([...moving(view), head[0]])]]);
    else drawHead();
  }

  function tell() {
    onState({ head: now.head, changes: now.changes });
  }

  function draw() {
    const says = view.changes.map((one) => changeName(one));
    const told = ask ? null : make("ul", { class: "lab-changes", "aria-label": say("Changes") }, ...says.map((text) => make("li", { dir: "auto" }, text)));
    output.replaceChildren(...[told, outputFigure(view), tokensFigure(view)].filter(Boolean));
    attention.replaceChildren(movedFigure(view, now.head, choose), make("div"));
    drawHead();
  }

  function drawHead() {
    const weight = ask && ((changes) => run(changes));
    attention.lastChild.replaceChildren(...(now.head ? [headAttention(view, now.head, now.changes, weight)] : []));
  }
}

const moving = (view) => view.before.maps.map((one) => one.name);

/** Passages of two texts with those that differ marked: the elements of one side. */
export function markedPassages(pairs, side) {
  const shown = pairs.filter((pair) => pair[side] !== "");
  return shown.flatMap((pair, n) => {
    const text = pair[side];
    const before = n ? shown[n - 1][side] : "";
    const space = n && sentence([before, text]).length > before.length + text.length ? " " : "";
    return [space, pair[0] === pair[1] ? text : make(side ? "ins" : "del", {}, text)];
  });
}

function sides(name, before, after) {
  const row = (label, content) => make("tr", {}, make("th", { scope: "row" }, label), make("td", { dir: "auto" }, ...content));
  return make("table", { class: "lab-table lab-sides", "aria-label": name }, make("tbody", {}, row(say("before"), before), row(say("after"), after)));
}

function outputFigure(view) {
  const { text, output, labels } = view;
  const parts = [];
  if (text.before !== text.after) parts.push(make("h3", {}, say("The text")), sides(say("The text"), markedPassages(text.differences, 0), markedPassages(text.differences, 1)));
  if (labels.length) parts.push(labelsTable(labels));
  else if (output.before !== null) {
    const name = say(view.kind === "translator" ? "The translation" : "What the model says");
    if (parts.length) parts.push(make("h3", {}, name));
    parts.push(sides(name, markedPassages(output.differences, 0), markedPassages(output.differences, 1)));
    if (output.before === output.after) parts.push(make("p", { class: "lab-note" }, say("The output is the same.")));
  }
  return parts.length ? figure({ title: say("Before and after"), picture: make("div", {}, ...parts), name: "change-output" }) : null;
}

function labelsTable(labels) {
  const most = Math.max(1, ...labels.flatMap(([, before, after]) => [before, after]));
  return beforeAfterTable(say("Labels"), say("label"), labels.map(([name, before, after]) => ({ name, before, after })), most);
}

function tokensFigure(view) {
  if (!view.tokens.length) return null;
  const most = Math.max(0.001, ...view.tokens.flatMap((one) => [one.before, one.after]));
  const says = make("div", { class: "lab-terms" });
  const rows = view.tokens.map((one) => ({ ...one, name: bare(one.token), note: bare(one.top_after[0][0]) === bare(one.token) ? "" : say("now {token} {probability}", { token: bare(one.top_after[0][0]), probability: fixed(one.top_after[0][1], 2) }) }));
  const table = beforeAfterTable(say("Probabilities of the tokens"), say("token"), rows, most, (n) => says.replaceChildren(topTable(view.tokens[n])));
  says.append(topTable(view.tokens[view.tokens.reduce((best, one, n, all) => (Math.abs(one.after - one.before) > Math.abs(all[best].after - all[best].before) ? n : best), 0)]));
  const legend = say("Probability of each token of the first output, before (pale) and after. Point at a token for the most probable ones in its place.");
  return figure({ title: say("Probabilities of the tokens"), picture: make("div", { class: "lab-split" }, table, says), legend, name: "change-tokens" });
}

/** A table with two bars for each row, and their numbers; `point` is called for a row that is pointed at. */
function beforeAfterTable(label, what, rows, most, point = null) {
  const lines = rows.map((one, n) => {
    const bars = make("td", { class: "lab-strip lab-pair" }, numberBar(one.before, 0, most), numberBar(one.after, 0, most));
    const change = one.after - one.before;
    const numbers = [fixed(one.before), fixed(one.after), signed(change)].map((text, m) => make("td", { class: `lab-number${m === 1 ? " lab-last" : ""}` }, text));
    const line = make("tr", {}, make("th", { scope: "row", dir: "auto" }, ...tokenText(one.name)), ...numbers, bars, point ? make("td", { class: "lab-now", dir: "auto" }, one.note) : null);
    if (point) ["pointerenter", "focus"].forEach((kind) => line.addEventListener(kind, () => point(n)));
    return line;
  });
  const names = [say("before"), say("after"), say("change")].map((text) => make("th", { scope: "col", class: "lab-number" }, text));
  const head = make("tr", {}, make("th", { scope: "col" }, what), ...names, make("td"), point ? make("td") : null);
  const table = make("table", { class: "lab-table lab-keys", "aria-label": label }, make("thead", {}, head), make("tbody", {}, ...lines));
  if (point) roving(table, lines);
  return table;
}

function topTable(one) {
  const most = Math.max(one.top_before[0][1], one.top_after[0][1]);
  const line = ([token, probability]) => make("tr", {}, make("th", { scope: "row", dir: "auto" }, ...tokenText(bare(token))), make("td", { class: "lab-number" }, fixed(probability)), make("td", { class: "lab-strip" }, numberBar(probability, 0, most)));
  const side = (name, top) => make("div", {}, make("p", { class: "lab-note" }, name), make("table", { class: "lab-table", "aria-label": `${name}: ${bare(one.token)}` }, make("tbody", {}, ...top.map(line))));
  return make("div", {}, make("p", {}, say("In the place of "), make("b", { dir: "auto" }, bare(one.token))), make("div", { class: "lab-columns" }, side(say("before"), one.top_before), side(say("after"), one.top_after)));
}
