// Draws what qkv found out about a model, from the JSON of a view: show(element, view).

import { showAnalogy } from "./analogy_view.js";
import { showArithmetic } from "./arithmetic_view.js";
import { showAttention } from "./attention_view.js";
import { showAttributions } from "./attribution_view.js";
import { showChange } from "./change_view.js";
import { make } from "./dom.js";
import { showHeads } from "./heads_view.js";
import { say } from "./language.js";
import { showLayers } from "./layers_view.js";
import { unpack } from "./packed.js";
import { showMap } from "./map_view.js";
import { showNeighbours } from "./neighbours_view.js";
import { showPatch } from "./patch_view.js";
import { showSteps } from "./steps_view.js";
import { showTraining } from "./training_view.js";
import { readState, writeState } from "./state.js";

export { showAlignment } from "./alignment.js";

const VIEWS = {
  analogy: showAnalogy,
  arithmetic: showArithmetic,
  attention: showAttention,
  attribution: showAttributions,
  change: showChange,
  heads: showHeads,
  layers: showLayers,
  map: showMap,
  neighbours: showNeighbours,
  patch: showPatch,
  steps: showSteps,
  training: showTraining,
};

const TITLES = {
  attention: "Inside the model: attention",
  arithmetic: "Inside the model: the arithmetic of a head",
  change: "Inside the model: before and after a change",
  patch: "Inside the model: what restores the answer",
  layers: "Inside the model: layer by layer",
  steps: "Inside the model: while it writes",
  training: "Inside the model: through training",
  heads: "Inside the model: without each head",
  attribution: "Inside the model: what mattered",
  analogy: "Word vectors",
  map: "Word vectors",
  neighbours: "Word vectors",
};
const KINDS = { translator: "translator", encoder: "encoder", generator: "text generator" };

const nameOf = (view) => view.view || "attention";

/**
 * Draw a view into an element; `view.view` says which one it is, and attention has none. `state` is a plain object with what is
 * chosen in the view (its tab, its head); `onState(state)` is called when that changes. Views of the laboratory call `ask` with what
 * somebody wants to see instead, and draw the view that its promise brings; without it they offer what they hold.
 */
export function show(element, view, { state = {}, onState = () => {}, ask = null } = {}) {
  VIEWS[nameOf(view)](element, view, { state, onState, ask });
}

/** Draw a view on a page of its own, whose address has the state: a link or a reload restores it. */
export function showPage(element, view) {
  const onState = (state) => {
    if (location.protocol !== "about:") history.replaceState(null, "", `#${writeState(state)}`); // a notebook's frame has no address
  };
  const body = make("div");
  element.classList.add("qkv-viewer");
  element.replaceChildren(header(view, element.dataset.made), body);
  show(body, unpack(view), { state: readState(location.hash), onState });
}

/** What is shown, of which model, and when it was made. */
function header(view, made) {
  const known = view.about || {};
  const model = [known.run, view.model, Object.hasOwn(KINDS, view.kind) ? say(KINDS[view.kind]) : null].filter(Boolean);
  const facts = [
    view.model && say("Model: {model}", { model: model.join(", ") }),
    known.data && say("trained on {data}", { data: known.data }),
    made && say("page made on {date} by qkv", { date: made }),
  ];
  const title = say(TITLES[nameOf(view)] || "Inside the model");
  return make("header", { class: "page-head" }, make("h1", {}, title), make("p", {}, facts.filter(Boolean).join(" · ")));
}
