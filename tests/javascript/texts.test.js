import assert from "node:assert/strict";
import test from "node:test";

import { mean, percent } from "../../src/qkv/lens/viewer/numbers.js";
import { gathered, inPieces, itemsOf, sentence } from "../../src/qkv/lens/viewer/texts.js";

const attention = {
  source: ["▁un", "do", "</s>"],
  source_words: [0, 0, null],
  words: { source: ["undo"] },
};

test("tokens of a word are gathered; special tokens stand alone", () => {
  const words = itemsOf(attention, "source", "words");
  assert.deepEqual(words.map((item) => [item.text, item.positions, item.mark]), [["undo", [0, 1], false], ["</s>", [2], true]]);
  assert.deepEqual(itemsOf(attention, "source", "tokens").map((item) => item.text), ["un", "do", "</s>"]);
  assert.ok(inPieces(attention));
});

test("weights are summed over attended tokens and averaged over attending ones", () => {
  const words = itemsOf(attention, "source", "words");
  const weights = [[0.5, 0.25, 0.25], [0.1, 0.3, 0.6], [0, 0, 1]];
  const found = gathered(weights, words, words);
  assert.deepEqual(found.map((row) => row.map((value) => Number(value.toFixed(6)))), [[0.575, 0.425], [0, 1]]);
});

test("sentences have the spaces of their script", () => {
  assert.equal(sentence(["Hello", ",", "(", "you", ")", "!"]), "Hello, (you)!");
  assert.equal(sentence(["你", "好", "。"]), "你好。");
});

test("numbers and means", () => {
  assert.equal(percent(0.5), "50 %");
  assert.equal(percent(0.031), "3.1 %");
  assert.deepEqual(mean([[[0, 1]], [[1, 0]]]), [[0.5, 0.5]]);
});
