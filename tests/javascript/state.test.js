import assert from "node:assert/strict";
import test from "node:test";

import { readState, writeState } from "../../src/qkv/lens/viewer/state.js";

test("a state is read as it was written", () => {
  const states = [
    {},
    { tab: "attention", head: ["decoder.0.cross", 1], step: 3, on: false },
    { word: "3", other: "true", text: "a & b = c # d", chinese: "注意力", empty: "", quoted: '"x"' },
  ];
  for (const state of states) assert.deepEqual(readState(`#${writeState(state)}`), state);
});

test("what is not chosen is not in the address", () => {
  assert.equal(writeState({ tab: "inner", head: null, unit: undefined }), "tab=inner");
});

test("an address from elsewhere is no error", () => {
  assert.deepEqual(readState("#section"), { section: "" });
  assert.deepEqual(readState(""), {});
});
