// Work that follows typing: one run at a time, and the newest input wins.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Runner } from "../../src/qkv/serving/page/live.js";

/** Work whose runs end when they are told to; an aborted one ends by itself. */
function controlled() {
  const runs = [];
  const work = (signal) =>
    new Promise((resolve) => {
      const run = { end: resolve, aborted: false };
      signal.addEventListener("abort", () => {
        run.aborted = true;
        resolve();
      });
      runs.push(run);
    });
  return { runs, work };
}

const settled = () => new Promise((resolve) => setImmediate(resolve));

test("typing waits for the run, and then runs once for the newest input", async () => {
  const { runs, work } = controlled();
  const runner = new Runner(work, { pause: 0 });
  runner.start(false);
  for (let key = 0; key < 5; key += 1) runner.start(false);
  await settled();
  assert.equal(runs.length, 1);
  assert.equal(runs[0].aborted, false);
  runs[0].end();
  await settled();
  assert.equal(runs.length, 2);
  runs[1].end();
  await settled();
  assert.equal(runs.length, 2);
  assert.equal(runner.running, null);
});

test("a run that a person asks for takes the place of the present one", async () => {
  const { runs, work } = controlled();
  const runner = new Runner(work);
  runner.now();
  runner.now();
  await settled();
  assert.equal(runs[0].aborted, true);
  assert.equal(runs.length, 2);
});

test("nothing runs after a stop", async () => {
  const { runs, work } = controlled();
  const runner = new Runner(work, { pause: 0 });
  runner.now();
  runner.later();
  runner.stop();
  await settled();
  await new Promise((resolve) => setTimeout(resolve, 5));
  assert.equal(runs.length, 1);
  assert.equal(runs[0].aborted, true);
});

test("several keys within the pause are one run", async () => {
  const { runs, work } = controlled();
  const runner = new Runner(work, { pause: 1 });
  runner.later();
  runner.later();
  while (!runs.length) await settled();
  await new Promise((resolve) => setTimeout(resolve, 5));
  assert.equal(runs.length, 1);
});
