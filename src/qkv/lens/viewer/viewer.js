// Draws what qkv found out about a model, from the JSON of a view: show(element, view).

import { showAttention } from "./attention_view.js";

export { showAlignment } from "./alignment.js";

const VIEWS = { attention: showAttention };

/** Draw a view into an element; `view.view` says which one it is, and attention has none. */
export function show(element, view) {
  VIEWS[view.view || "attention"](element, view);
}
