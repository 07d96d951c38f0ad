// Draws what qkv found out about a model, from the JSON of a view: show(element, view).

import { showAttention } from "./attention_view.js";
import { readState, writeState } from "./state.js";

export { showAlignment } from "./alignment.js";

const VIEWS = { attention: showAttention };

/**
 * Draw a view into an element; `view.view` says which one it is, and attention has none. `state` is a plain object with what is
 * chosen in the view (its tab, its head); `onState(state)` is called when that changes.
 */
export function show(element, view, { state = {}, onState = () => {} } = {}) {
  VIEWS[view.view || "attention"](element, view, { state, onState });
}

/** Draw a view on a page of its own, whose address has the state: a link or a reload restores it. */
export function showPage(element, view) {
  const onState = (state) => {
    if (location.protocol !== "about:") history.replaceState(null, "", `#${writeState(state)}`); // a notebook's frame has no address
  };
  show(element, view, { state: readState(location.hash), onState });
}
