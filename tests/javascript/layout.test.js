import assert from "node:assert/strict";
import test from "node:test";

import { bandsOf } from "../../src/qkv/lens/viewer/bands.js";
import { placeLabels } from "../../src/qkv/lens/viewer/labels.js";

const diagonal = (n) => Array.from({ length: n }, (_, word) => [word, word, 1]);

test("a short pair is one band", () => {
  assert.deepEqual(bandsOf([[10, 10, 10], [10, 10]], [[0, 0, 1], [2, 1, 1]], 100), [[0, 3, 0, 2]]);
});

test("each band fits its lines, and all words are in one", () => {
  const widths = [Array(300).fill(30), Array(280).fill(40)];
  const bands = bandsOf(widths, diagonal(280), 500);
  const ends = bands.map(([, i, , j]) => [i, j]);
  assert.deepEqual(ends.at(-1), [300, 280]);
  bands.forEach(([a, i, b, j], n) => {
    assert.deepEqual([a, b], n ? ends[n - 1] : [0, 0]);
    assert.ok((i - a) * 30 <= 500 && (j - b) * 40 <= 500);
  });
  const kept = diagonal(280).filter(([s, t]) => bands.some(([a, i, b, j]) => a <= s && s < i && b <= t && t < j));
  assert.ok(kept.length > 270, `${kept.length} of 280 links are inside a band`);
});

test("a word wider than a line stands alone", () => {
  assert.deepEqual(bandsOf([[500, 10], [10]], [[0, 0, 1]], 100), [[0, 1, 0, 1], [1, 2, 1, 1]]);
});

test("labels are inside and apart", () => {
  const points = Array.from({ length: 60 }, (_, n) => ({ x: (n * 37) % 300, y: (n * 53) % 200, wide: 20 + (n % 5) * 10, high: 14 }));
  const found = placeLabels(points, 300, 200);
  const boxes = found.flatMap((one, n) => (one ? [{ ...one, right: one.left + points[n].wide, bottom: one.top + 14 }] : []));
  assert.ok(boxes.length > 10);
  for (const box of boxes) {
    assert.ok(box.left >= 0 && box.top >= 0 && box.right <= 300 && box.bottom <= 200);
    const over = boxes.filter((one) => one.left < box.right && box.left < one.right && one.top < box.bottom && box.top < one.bottom);
    assert.equal(over.length, 1);
  }
});
