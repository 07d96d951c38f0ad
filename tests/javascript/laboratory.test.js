import assert from "node:assert/strict";
import test from "node:test";

import { outline } from "../../src/qkv/lens/viewer/bars.js";
import { editedWords, plainChange, temperatureOf, toggled, withTemperature, withWeight } from "../../src/qkv/lens/viewer/changes.js";
import { formulaPieces } from "../../src/qkv/lens/viewer/formula.js";
import { blocks, evenBlocks } from "../../src/qkv/lens/viewer/grid.js";
import { attentionsOf } from "../../src/qkv/lens/viewer/heads_view.js";
import { fixed, largest, leading, signed } from "../../src/qkv/lens/viewer/quantities.js";
import { broken, treeLayout, treeRows } from "../../src/qkv/lens/viewer/search_tree.js";
import { hypothesisAt, nextTokens } from "../../src/qkv/lens/viewer/steps_view.js";
import { cameIn, columnsUpTo, exponentials, stepGroups, termsOf, weighted } from "../../src/qkv/lens/viewer/terms.js";

const vector = (name, values) => ({ kind: "vector", name, label: name, values });
const matrix = (name, values) => ({ kind: "matrix", name, label: name, rows: "keys", values });
const keys = (name, label, values) => ({ kind: "keys", name, label, values });
const step = (name, ...values) => ({ name, title: name, values });
const VIEW = {
  steps: [
    step("token", vector("token", [1, 2])),
    step("query", vector("q", [2, -1])),
    step("keys", matrix("k", [[1, 1], [3, 0.5]])),
    step("values", matrix("v", [[1, 0], [0, 4]])),
    step("dot", keys("dot", "q·k", [1, 5.5])),
    step("mask_none", keys("scores", "masked", [1, 5.5])),
    step("softmax", keys("weights", "weight", [0.25, 0.75])),
    step("weighted_sum", vector("z", [0.25, 3])),
    step("final_norm", vector("x", [0, 1])),
  ],
};

test("the terms of a score sum to it", () => {
  const found = termsOf(VIEW, 4, 1);
  assert.deepEqual(found.products, [6, -0.5]);
  assert.equal(found.products.reduce((a, b) => a + b), found.score);
  assert.equal(termsOf(VIEW, 6, 1), null);
});

test("additive scores and scores with something added to the query have their own terms", () => {
  const additive = { steps: [VIEW.steps[1], VIEW.steps[2], step("score_additive", vector("v", [1, 2]), keys("dot", "score", [0, 0]))] };
  const { products } = termsOf(additive, 2, 0);
  assert.deepEqual(products, [Math.tanh(3), 2 * Math.tanh(0)]);
  const distance = { steps: [VIEW.steps[1], VIEW.steps[2], step("dot_distance", vector("added", [1, 1]), matrix("distance", [[1, 2], [0, 1]]), keys("dot", "distance", [3, 0]))] };
  assert.deepEqual(termsOf(distance, 2, 0).products, [3, 0]);
});

test("each value counts by its weight, and the sum is the step's own", () => {
  const rows = weighted(VIEW, 7);
  assert.deepEqual(rows, [[0.25, 0], [0, 3]]);
  assert.deepEqual(VIEW.steps[7].values[0].values, [0, 1].map((n) => rows.reduce((sum, row) => sum + row[n], 0)));
});

test("columns of keys leave out a mask that hides nothing", () => {
  assert.deepEqual(columnsUpTo(VIEW, 6).map(([label]) => label), ["q·k", "weight"]);
  assert.deepEqual(columnsUpTo(VIEW, 5).map(([label]) => label), ["q·k", "masked"]);
});

test("exponentials give the weights of a softmax, and hidden keys none", () => {
  const found = exponentials([1, 3, null]);
  assert.deepEqual([found[1], found[2]], [1, 0]);
  assert.ok(Math.abs(found[0] - Math.exp(-2)) < 1e-12);
});

test("steps belong to groups in their order", () => {
  assert.deepEqual(stepGroups(VIEW.steps), [["Input", [0]], ["Query, keys, values", [1, 2, 3]], ["Scores", [4, 5]], ["Weights and their sum", [6, 7]], ["Output", [8]]]);
  assert.deepEqual(cameIn(VIEW, 1), [1, 2]);
  assert.equal(cameIn(VIEW, 4), null);
});

test("numbers have a minus sign as wide as a digit, and no minus zero", () => {
  assert.deepEqual([fixed(-1.25, 2), fixed(-0.0001, 2), fixed(null), signed(0.5, 1), signed(-0.001, 2)], ["−1.25", "0.00", "−∞", "+0.5", "0.00"]);
  assert.deepEqual([largest([1, -3, null]), largest([0])], [3, 1]);
  assert.deepEqual(leading([0.1, 0.5, 0.2, 0.4], 2), [1, 3]);
});

test("bars of both signs have their own outline", () => {
  assert.equal(outline([1, -1], 1, 1).match(/M/g).length, 1);
  assert.ok(outline([0.5, -1], 1, -1).startsWith("M1.12 1V2"));
});

test("a formula has variables, indices and words", () => {
  const found = formulaPieces("k_j = W_k input_j");
  assert.deepEqual(found.filter(({ kind }) => kind === "variable").map(({ text, index }) => text + index), ["kj", "Wk"]);
  assert.equal(found.find(({ text }) => text === "input").index, "j");
});

test("changes come and go", () => {
  const head = { change: "head", attention: "encoder.0.self", head: 1 };
  assert.deepEqual(plainChange({ ...head, says: "words", query: null }), head);
  assert.deepEqual(toggled(toggled([], head), { head: 1, change: "head", attention: "encoder.0.self" }), []);
  const warm = withTemperature([head], 2);
  assert.equal(temperatureOf(warm), 2);
  assert.deepEqual(withTemperature(warm, 1), [head]);
  const place = { attention: "encoder.0.self", head: 0, query: 1, key: 2 };
  const set = withWeight(withWeight([], place, 0.5), place, 0.9);
  assert.deepEqual(set, [{ change: "weight", ...place, value: 0.9 }]);
  assert.deepEqual(withWeight(set, place, null), []);
});

test("words are edited one after the other", () => {
  const changes = [{ change: "replace", word: 1, text: "cat" }, { change: "delete", word: 0 }, { change: "move", word: 1, to: 0 }];
  assert.deepEqual(editedWords(["a", "dog", "runs"], changes), [["runs", true], ["cat", true]]);
});

test("a long grid is divided into blocks that fit", () => {
  assert.deepEqual(blocks([2, 2, 2, 2, 2], 5), [2, 4, 5]);
  assert.deepEqual(blocks([9], 5), [1]);
  assert.deepEqual(evenBlocks(Array(10).fill(1), 9), [6, 10]);
});

test("attentions are read from the names of drops", () => {
  assert.deepEqual(attentionsOf({ "decoder.1.cross": [0.1] }), [{ name: "decoder.1.cross", part: "cross", layer: 1, heads: [0.1] }]);
});

const node = (id, parent, step, token, score, more = {}) => ({ id, parent, step, token, logprob: -1, total: -id, score, kept: true, status: "dropped", best: false, ...more });
const SEARCH = {
  nodes: [
    node(0, null, -1, null, 0, { best: true }),
    node(1, 0, 0, "▁a", -2),
    node(2, 0, 0, "▁the", -1, { best: true, status: "alive" }),
    node(3, 0, 0, "▁no", -3, { kept: false }),
    node(4, 2, 1, "</s>", -1.5, { best: true, status: "ended" }),
  ],
  steps: [
    { hypotheses: [{ node: 0, text: "", top: [["▁the", 0.6], ["▁a", 0.2]] }], draw: null },
    { hypotheses: [{ node: 1, text: "a", top: [["x", 0.5]] }, { node: 2, text: "the", top: [["</s>", 0.9]] }], draw: null },
  ],
};

test("a beam's tree has the kept hypotheses, best first", () => {
  assert.deepEqual(treeRows(SEARCH).map((row) => row.map((one) => one.id)), [[2, 1], [4]]);
  const layout = treeLayout(SEARCH, 300);
  const [first, second] = layout.rows[0].nodes;
  assert.ok(first.x + first.width < second.x && layout.rows[1].y > layout.rows[0].y + first.height);
  assert.ok(layout.width <= 340);
  assert.deepEqual(broken("abcdefg", 3), ["abc", "def", "g"]);
});

test("the hypothesis on the way of the output is shown, unless another one is chosen", () => {
  assert.equal(hypothesisAt(SEARCH, 1).node, 2);
  assert.equal(hypothesisAt(SEARCH, 1, 1).node, 1);
  assert.deepEqual(nextTokens(SEARCH, 0, SEARCH.steps[0].hypotheses[0]).map(({ token, taken }) => [token, taken]), [["▁the", true], ["▁a", true]]);
});

test("a token that sampling cuts off has no chance", () => {
  const drawn = { nodes: [SEARCH.nodes[0], SEARCH.nodes[2]], steps: [{ hypotheses: SEARCH.steps[0].hypotheses, draw: { top: [["▁the", 1]], choices: 1, probability: 1 } }] };
  assert.deepEqual(nextTokens(drawn, 0, drawn.steps[0].hypotheses[0]).map(({ after }) => after), [1, 0]);
});
