// What a word contributed, by several methods side by side: the values of `AttributionView.json()`.

import { asking } from "./asking.js";
import { nameOf } from "./attribution.js";
import { numberBar, tokenText } from "./bars.js";
import { wordLine } from "./chips.js";
import { make, small } from "./dom.js";
import { figure } from "./figure.js";
import { say } from "./language.js";
import { fixed, signed } from "./quantities.js";
import { itemsOf } from "./texts.js";

const METHODS = { gradient: "Gradient × input", integrated: "Integrated gradients", occlusion: "Occlusion" };
const ORDER = Object.keys(METHODS);

/** The contributions of words or special tokens: sums over tokens, for all outputs or for some of them. */
export function byWord(view, items, outputs = null) {
  const { values, each } = view.attribution;
  const chosen = outputs === null || !each ? values : values.map((_, s) => outputs.reduce((total, row) => total + each[row][s], 0));
  return items.map((item) => item.positions.reduce((total, position) => total + chosen[position], 0));
}

/**
 * Draw the methods side by side. `ask({ method })` returns a promise of the attribution by another method; without it the view's
 * own `others` are shown.
 */
export function showAttributions(element, first, { state = {}, onState = () => {}, ask = null } = {}) {
  const known = new Map([first, ...(first.others || [])].map((one) => [one.attribution.method, one]));
  let word = state.word ?? null;
  element.replaceChildren();
  element.classList.add("qkv-viewer", "qkv-laboratory");
  const picture = make("div");
  const { line, put } = asking(ask || (async () => null), (found) => {
    known.set(found.attribution.method, found);
    draw();
  });
  const chooser = outputChooser(first, word, (chosen) => {
    word = chosen;
    draw();
    onState({ word });
  });
  const missing = ask ? ORDER.filter((method) => !known.has(method)) : [];
  element.append(figure({ title: say("What mattered for {of}", { of: nameOf(first.attribution.of) }), controls: chooser ? [chooser] : [], picture, legend: legendOf(first), name: "attribution" }), line);
  draw();
  (async () => {
    for (const method of missing) await put({ method });
  })();

  function draw() {
    const shown = ORDER.filter((method) => known.has(method)).map((method) => known.get(method));
    picture.replaceChildren(table(first, shown, word), ...shown.map(completenessOf).filter(Boolean));
  }
}

/** Words of the output, if it has several: one can be explained alone. */
function outputChooser(view, word, choose) {
  const { each, positions } = view.attribution;
  if (!each || each.length < 2 || !view.target) return null;
  const items = itemsOf(view, "target", "words").map((item) => ({ ...item, rows: item.positions.map((position) => positions.indexOf(position)) }));
  const offered = [{ text: say("all of it"), mark: true, rows: null }, ...items.filter((item) => item.rows.every((row) => row >= 0))];
  const pick = (n) => {
    line.chips.forEach((one, m) => one.setAttribute("aria-pressed", String(m === n)));
    choose(offered[n].rows);
  };
  const line = wordLine(offered, say("Words that were written: choose one"), pick);
  const at = offered.findIndex((one) => JSON.stringify(one.rows) === JSON.stringify(word));
  line.chips[Math.max(0, at)].setAttribute("aria-pressed", "true");
  return make("div", { class: "lab-row" }, small(say("For writing")), line.line);
}

function table(view, shown, word) {
  const items = itemsOf(view, "source", "words");
  const columns = shown.map((one) => byWord(one, items, word));
  const rows = items.map((item, n) => {
    const cells = columns.flatMap((values) => {
      const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
      const bar = low === high ? null : numberBar(values[n], low, high);
      return [make("td", { class: "lab-number lab-last" }, signed(values[n], 2)), make("td", { class: "lab-strip" }, bar)];
    });
    return make("tr", { class: item.mark ? "lab-hidden" : null }, make("th", { scope: "row", dir: "auto" }, ...tokenText(item.text)), ...cells);
  });
  const sums = columns.flatMap((values) => [make("td", { class: "lab-number lab-last" }, signed(values.reduce((a, b) => a + b, 0), 2)), make("td")]);
  const total = make("tr", { class: "lab-total" }, make("th", { scope: "row" }, say("sum")), ...sums);
  const head = make("tr", {}, make("th", { scope: "col" }, say("word")), ...shown.map((one) => make("th", { scope: "colgroup", colspan: 2 }, say(METHODS[one.attribution.method]))));
  return make("table", { class: "lab-table lab-keys lab-methods", "aria-label": say("Contribution of each word") }, make("thead", {}, head), make("tbody", {}, ...rows, total));
}

/** Whether integrated gradients sum to the difference of the scores. */
function completenessOf({ attribution }) {
  const found = attribution.completeness;
  if (!found) return null;
  const numbers = { sum: fixed(found.sum), difference: fixed(found.difference), steps: found.steps };
  const says = say("Integrated gradients sum to {sum}; the score of the text is {difference} above that of an empty one. {steps} steps.", numbers);
  const state = found.complete ? say("✓ Complete.") : say("✗ Not complete: take the values as rough.");
  return make("p", { class: "lab-complete" }, make("b", {}, state), ` ${says}`);
}

function legendOf(view) {
  const texts = [
    say("Blue supports the output, orange opposes it; each method has its own scale."),
    say("Gradient × input is the slope at the text; integrated gradients are the mean slope on the way from an empty text, and sum to the difference of the scores; occlusion leaves out each word or replaces it."),
    /instead of/.test(view.attribution.of) ? say("The score is the difference of two logits: why this word and not that one.") : "",
  ];
  return texts.filter(Boolean).join(" ");
}
