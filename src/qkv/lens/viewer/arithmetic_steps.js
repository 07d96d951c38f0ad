// One step of the arithmetic as a picture: vectors, numbers of each key, probabilities.

import { numberBar, tokenText, vectorRow, vectorTable } from "./bars.js";
import { button, make, roving } from "./dom.js";
import { say } from "./language.js";
import { fixed, largest, leading } from "./quantities.js";
import { bare } from "./texts.js";
import { cameIn, columnsUpTo, exponentials, latest, termsOf, weighted } from "./terms.js";

const MOST_KEYS = 40; // rows at first; of more keys those with the largest weights
const LARGEST_TERMS = 3; // written out
const ALIKE = ["residual", "feedforward_residual", "position_added", "segment", "task", "weighted_relative", "residual_layer"];

/** The picture of a step. `state` has the key that is pointed at and whether all keys are shown; `change` changes it. */
export function stepPicture(view, index, state, change) {
  const step = view.steps[index];
  const parts = [numbersLine(step)];
  if (step.values.some((one) => one.kind === "vector") && step.name !== "weighted_sum") parts.push(vectors(view, index));
  for (const one of step.values.filter((found) => found.kind === "matrix")) parts.push(matrix(view, one, state, change));
  if (step.name === "weighted_sum") parts.push(weightedSum(view, index, state, change));
  if (step.values.some((one) => one.kind === "keys")) parts.push(keysTable(view, index, state, change));
  for (const one of step.values.filter((found) => found.kind === "tokens")) parts.push(tokensTable(one));
  if (!step.values.length) parts.push(unchanged(view, index));
  return make("div", { class: "lab-step-picture" }, ...parts);
}

/** Single numbers, such as √d = 5.657. */
function numbersLine(step) {
  const found = step.values.filter((one) => one.kind === "number");
  if (!found.length) return null;
  const one = ({ label, value }) => make("span", { class: "lab-quantity" }, `${say(label)} = `, make("b", {}, fixed(value, Number.isInteger(value) ? 0 : 3)));
  return make("p", { class: "lab-quantities" }, ...found.map(one));
}

function vectors(view, index) {
  const step = view.steps[index];
  const found = step.values.filter((one) => one.kind === "vector").map((one) => [say(one.label), one.values]);
  const before = cameIn(view, index);
  if (before) found.unshift([say("input"), before]);
  const together = ALIKE.includes(step.name) ? largest(found.flatMap(([, values]) => values)) : null;
  const rows = found.map(([name, values]) => vectorRow({ name, values, scale: together || largest(values) }));
  return vectorTable(say(step.title), rows, together || (found.length === 1 ? largest(found[0][1]) : null));
}

/** A step that changes nothing shows the vector that goes through it. */
function unchanged(view, index) {
  const found = latest(view, index, "vector");
  return found ? vectorTable(say(view.steps[index].title), [vectorRow({ name: "x", values: found.values })], largest(found.values)) : null;
}

/** The keys that are shown, and a button for the rest. */
function shownKeys(view, state, change) {
  const weights = latest(view, view.steps.length - 1, "keys", "weights").values;
  const all = state.allKeys || weights.length <= MOST_KEYS;
  const keys = all ? weights.map((_, n) => n) : leading(weights, MOST_KEYS);
  const more = button({ class: "plain", "data-key": "all keys", onclick: () => change({ allKeys: true }) }, say("Show all {count} keys", { count: weights.length }));
  return { keys, more: all ? null : more };
}

function matrix(view, one, state, change) {
  const scale = largest(one.values.flat());
  const heads = one.rows === "heads";
  const { keys, more } = heads ? { keys: one.values.map((_, n) => n), more: null } : shownKeys(view, state, change);
  const rows = keys.map((n) => {
    const name = heads ? say("head {number}", { number: n + 1 }) : bare(view.keys[n]);
    const label = heads ? name : `${one.label}, ${name}`;
    return vectorRow({ name, values: one.values[n], scale, label, own: heads ? n === view.head : n === state.key });
  });
  return make("div", {}, vectorTable(say(one.label), rows, scale), more);
}

/** Each value times its weight, and their sum. */
function weightedSum(view, index, state, change) {
  const rows = weighted(view, index);
  const weights = latest(view, index, "keys", "weights").values;
  const sum = latest(view, index, "vector", "z").values;
  const scale = largest([...rows.flat(), ...sum]);
  const { keys, more } = shownKeys(view, state, change);
  const lines = keys.map((n) => {
    const label = `${fixed(weights[n])} · v, ${bare(view.keys[n])}`;
    return vectorRow({ name: bare(view.keys[n]), values: rows[n], scale, number: `${fixed(weights[n])} · v`, label, own: n === state.key });
  });
  const total = vectorRow({ name: "z", values: sum, scale, number: "Σ", own: true });
  total.classList.add("lab-total");
  return make("div", {}, vectorTable(say("The values, each with its weight, and their sum"), [...lines, total], scale), more);
}

/** A row for each key with its numbers so far; the last ones also as bars. Pointing at a row shows what its score is made of. */
function keysTable(view, index, state, change) {
  const step = view.steps[index];
  const columns = columnsUpTo(view, index).slice(-3).map(([label, values, name]) => [say(label), values, name]);
  if (step.name === "softmax") columns.splice(0, columns.length - 1, columns[columns.length - 2], [say("exp"), exponentials(columns[columns.length - 2][1]), ""]);
  const last = columns[columns.length - 1][1];
  const [low, high] = step.name === "softmax" ? [0, 1] : extent(last);
  const { keys, more } = shownKeys(view, state, change);
  const explained = make("div", { class: "lab-terms", "aria-live": "polite" });
  const rows = keys.map((n) => {
    const name = bare(view.keys[n]);
    const cells = columns.map(([, values], c) => make("td", { class: c === columns.length - 1 ? "lab-number lab-last" : "lab-number" }, fixed(values[n])));
    const bar = make("td", { class: "lab-strip" }, numberBar(last[n] || 0, low, high));
    const row = make("tr", { class: last[n] === null ? "lab-hidden" : null }, make("th", { scope: "row", dir: "auto" }, ...tokenText(name)), ...cells, bar);
    row.addEventListener("pointerenter", () => point(n));
    row.addEventListener("focus", () => point(n));
    return row;
  });
  const point = (key) => {
    state.key = key;
    rows.forEach((row, n) => row.classList.toggle("lab-own", keys[n] === key));
    explained.replaceChildren(...[explanation(view, index, key, columns)].filter(Boolean));
  };
  const head = make("tr", {}, make("th", { scope: "col" }, say("key")), ...columns.map(([label]) => make("th", { scope: "col", class: "lab-number" }, label)), make("td"));
  const table = make("table", { class: "lab-table lab-keys", "aria-label": say(step.title) }, make("thead", {}, head), make("tbody", {}, ...rows));
  roving(table, rows);
  const weights = latest(view, view.steps.length - 1, "keys", "weights").values;
  point(keys.includes(state.key) ? state.key : keys.reduce((best, n) => (weights[n] > weights[best] ? n : best), keys[0]));
  const note = step.name === "softmax" ? make("p", { class: "lab-note" }, say("Before the exponential the largest score is taken off all of them, which changes no weight and keeps the numbers small.")) : null;
  return make("div", { class: "lab-split" }, make("div", {}, table, more, note), explained);
}

/** The least and the largest number, and 0. */
function extent(values) {
  const known = values.filter((value) => value !== null);
  const [low, high] = [Math.min(0, ...known), Math.max(0, ...known)];
  return low === high ? [0, 1] : [low, high];
}

/** What the number of a key comes from. */
function explanation(view, index, key, columns) {
  const found = termsOf(view, index, key);
  const name = bare(view.keys[key]);
  if (!found) return arithmeticLine(view, index, key, columns, name);
  const rows = found.factors.map(([label, values]) => vectorRow({ name: label, values }));
  const scale = largest(found.products);
  const products = vectorRow({ name: say("product"), values: found.products, scale });
  products.classList.add("lab-total");
  const order = found.products.map((_, n) => n).sort((a, b) => Math.abs(found.products[b]) - Math.abs(found.products[a]));
  const factors = found.factors.slice(-2).map(([, values]) => values);
  const written = order.slice(0, LARGEST_TERMS).map((n) => `${bracketed(factors[0][n])} · ${bracketed(factors[1][n])}`).join(" + ");
  const sum = make("p", { class: "lab-sum" }, make("b", { dir: "auto" }, name), `:  ${written}${order.length > LARGEST_TERMS ? " + …" : ""} = `, make("b", { class: "lab-score" }, fixed(found.score)));
  const says = say("The {count} products sum to the score; these are the largest ones.", { count: found.products.length });
  return make("div", {}, sum, make("p", { class: "lab-note" }, says), vectorTable(`${found.sign}, ${name}`, [...rows, products], scale));
}

const bracketed = (value) => (value < 0 ? `(${fixed(value, 2)})` : fixed(value, 2));

/** How a number comes from the one before it: a division, a sum, a mask, a softmax. */
function arithmeticLine(view, index, key, columns, name) {
  const { name: step, values } = view.steps[index];
  const number = (n) => fixed(columns[n][1][key]);
  const end = columns.length - 1;
  let text = null;
  if (step === "divide") text = `${number(end - 1)} / ${fixed(values[0].value)} = ${number(end)}`;
  else if (step === "softmax") text = `${number(1)} / ${fixed(exponentials(columns[0][1]).reduce((a, b) => a + b, 0))} = ${number(end)}`;
  else if (step.startsWith("bias_") || step === "dot_sum") {
    const before = columnsUpTo(view, index);
    const added = before.filter((one) => one[2] === step).slice(0, -1);
    const terms = step === "dot_sum" ? before.slice(0, -1) : [before[before.length - 2 - added.length], ...added];
    text = `${terms.map(([, one]) => bracketedLong(one[key])).join(" + ")} = ${number(end)}`;
  } else if (step.startsWith("mask_")) text = columns[end][1][key] === null ? say("hidden: its weight will be 0") : say("visible: its score stays {score}", { score: number(end) });
  return text && make("p", { class: "lab-sum" }, make("b", { dir: "auto" }, name), `:  ${text}`);
}

const bracketedLong = (value) => (value < 0 ? `(${fixed(value)})` : fixed(value));

function tokensTable({ tokens }) {
  const most = tokens.reduce((best, one) => Math.max(best, one.probability), 0) || 1;
  const rows = tokens.map((one) => {
    const name = make("th", { scope: "row", dir: "auto" }, ...tokenText(bare(one.token)));
    const share = make("td", { class: "lab-strip" }, numberBar(one.probability, 0, most));
    const note = make("td", { class: "lab-first" }, one.given ? say("← the text goes on with it") : "");
    return make("tr", { class: one.given ? "lab-own" : null }, name, make("td", { class: "lab-number" }, fixed(one.logit)), make("td", { class: "lab-number lab-last" }, fixed(one.probability, 4)), share, note);
  });
  const head = make("tr", {}, ...["token", "logit", "probability"].map((text, n) => make("th", { scope: "col", class: n ? "lab-number" : null }, say(text))), make("td"), make("td"));
  return make("table", { class: "lab-table lab-keys", "aria-label": say("The most probable tokens") }, make("thead", {}, head), make("tbody", {}, ...rows));
}
