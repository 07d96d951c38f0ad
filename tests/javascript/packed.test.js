import assert from "node:assert/strict";
import test from "node:test";

import { unpack } from "../../src/qkv/lens/viewer/packed.js";

const packed = (numbers) => Buffer.from(new Uint16Array(numbers).buffer).toString("base64");

test("weights are read exactly, at their first use", () => {
  const head = { packed: packed([10000, 0, 1234, 8766, 1, 9999]), columns: 2 };
  const view = unpack({ maps: [{ name: "encoder.0.self", heads: [head, head] }], rollout: null, words: { source: ["a"] } });
  const { heads } = view.maps[0];
  assert.equal(heads.length, 2);
  assert.equal(typeof Object.getOwnPropertyDescriptor(heads, 0).get, "function");
  assert.deepEqual(heads[0], [[1, 0], [0.1234, 0.8766], [0.0001, 0.9999]]);
  assert.equal(heads[0], heads[0]);
  assert.equal(Object.getOwnPropertyDescriptor(heads, 0).get, undefined);
  assert.deepEqual(heads.map((rows) => rows.length), [3, 3]);
});
