// Going from step to step, which happens only when somebody asks.

import { button, make } from "./dom.js";
import { say } from "./language.js";

/** A button that goes through the steps until they end or somebody stops it; `next()` is false at the end. */
export function playing(next, pause) {
  let timer = null;
  const stop = () => {
    clearInterval(timer);
    timer = null;
    one.replaceChildren(say("▶ Play"));
  };
  const start = () => {
    timer = setInterval(() => next() === false && stop(), pause);
    one.replaceChildren(say("■ Stop"));
    next();
  };
  const one = button({ class: "plain", onclick: () => (timer === null ? start() : stop()) }, say("▶ Play"));
  return { button: one, stop };
}

/** A slider over steps, with buttons for the one before and the one after, and to play them; `set(step)` follows from elsewhere. */
export function stepper({ label, count, start, text, choose, pause }) {
  let now = start;
  const shown = make("output", { class: "lab-number" });
  const range = make("input", { type: "range", min: 0, max: count - 1, step: 1, "aria-label": label });
  const player = playing(() => now < count - 1 && go(now + 1), pause);
  const stepBy = (symbol, name, by) => button({ class: "plain", "aria-label": name, title: name, onclick: () => (player.stop(), go(now + by)) }, symbol);
  const [back, on] = [stepBy("←", say("Previous step"), -1), stepBy("→", say("Next step"), 1)];
  const set = (step) => {
    now = Math.max(0, Math.min(count - 1, step));
    range.value = now;
    range.setAttribute("aria-valuetext", text(now));
    shown.replaceChildren(text(now));
    back.disabled = now === 0;
    on.disabled = now === count - 1;
  };
  const go = (step) => {
    set(step);
    choose(now);
    return true;
  };
  range.addEventListener("input", () => (player.stop(), go(Number(range.value))));
  set(start);
  return { element: make("div", { class: "lab-row lab-stepper" }, back, range, on, player.button, shown), set };
}
