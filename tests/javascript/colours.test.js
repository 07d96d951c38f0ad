import assert from "node:assert/strict";
import test from "node:test";

import { literal } from "../../src/qkv/lens/viewer/colours.js";

test("computed colours become hexadecimal colours with an opacity", () => {
  assert.deepEqual(literal("rgb(59, 91, 219)"), ["#3b5bdb", 1]);
  assert.deepEqual(literal("rgba(59, 91, 219, 0.25)"), ["#3b5bdb", 0.25]);
  assert.deepEqual(literal("rgb(59 91 219 / 25%)"), ["#3b5bdb", 0.25]);
  assert.deepEqual(literal("color(srgb 1 0.5 0 / 0.5)"), ["#ff8000", 0.5]);
});

test("what is no colour stays what it is", () => {
  for (const one of ["none", "url(#gradient)", "", "context-fill"]) assert.equal(literal(one), null);
});
