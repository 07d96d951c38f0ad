// Texts that differ in a word.

import assert from "node:assert/strict";
import { test } from "node:test";

import { contrast } from "../../src/qkv/serving/page/contrast.js";

test("the first word that has a counterpart is swapped", () => {
  assert.equal(contrast("A man and a man sit."), "A woman and a man sit.");
  assert.equal(contrast("He sleeps."), "She sleeps.");
  assert.equal(contrast("猫 睡觉"), "狗 睡觉");
  assert.equal(contrast("London calling"), "Paris calling");
});

test("a text without such a word stays", () => {
  assert.equal(contrast("Hold the manual."), "Hold the manual.");
});
