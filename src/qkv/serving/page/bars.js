// Bars for shares.

import { make } from "../viewer/dom.js";

/** A bar for a share of what is shown, from 0 to 1; hidden from screen readers, which read the number beside it. */
export function bar(share) {
  const inner = make("span");
  inner.style.setProperty("--share", Math.max(0, Math.min(1, share)));
  return make("span", { class: "meter", "aria-hidden": "true" }, inner);
}
