import assert from "node:assert/strict";
import test from "node:test";

import { boxesAlong, centred, placed, placeLabels, search, wholePlane, zoomed } from "../../src/qkv/lens/viewer/plane.js";

const POINTS = [[0, 0], [2, 1], [-1, 3], [0.5, -2]];

test("the whole plane is in the picture, and up is up", () => {
  const view = wholePlane(POINTS, 400, 300);
  const spots = POINTS.map((point) => placed(view, point));
  assert.ok(spots.every(([x, y]) => x > 30 && x < 370 && y > 30 && y < 270));
  assert.ok(spots[2][1] < spots[0][1]);
  assert.ok(wholePlane([[1, 1], [1, 1]], 400, 300).scale > 0);
});

test("a zoom keeps the place that it is around, and has bounds", () => {
  const view = wholePlane(POINTS, 400, 300);
  const closer = zoomed(view, 2, placed(view, POINTS[1]), view);
  assert.deepEqual(placed(closer, POINTS[1]).map(Math.round), placed(view, POINTS[1]).map(Math.round));
  assert.equal(closer.scale, 2 * view.scale);
  assert.equal(zoomed(view, 1e9, [0, 0], view).scale, 60 * view.scale);
  assert.deepEqual(placed(centred(closer, POINTS[3], 400, 300), POINTS[3]), [200, 150]);
});

test("labels overlap neither each other, nor lines, nor the edge", () => {
  const spots = [...Array(300).keys()].map((n) => ({ x: (n * 37) % 600, y: (n * 53) % 400, wide: 20 + (n % 7) * 12 }));
  const line = boxesAlong([0, 0], [600, 400]);
  const boxes = placeLabels(spots, 600, 400, line)
    .map((place, n) => place && { left: place.left, top: place.top, right: place.left + spots[n].wide, bottom: place.top + 16 })
    .filter(Boolean);
  assert.ok(boxes.length > 30);
  const apart = (one, two) => one.right <= two.left || two.right <= one.left || one.bottom <= two.top || two.bottom <= one.top;
  boxes.forEach((box, n) => {
    assert.ok(box.left >= 0 && box.top >= 0 && box.right <= 600 && box.bottom <= 400);
    assert.ok([...boxes.slice(0, n), ...line].every((other) => apart(box, other)));
  });
});

test("a search finds the word itself first", () => {
  const words = ["cats", "scatter", "Cat", "dog"];
  assert.deepEqual(search(words, " cat "), [2, 0, 1]);
  assert.deepEqual(search(words, ""), []);
  assert.deepEqual(search(words, "bird"), []);
});
