// All heads of an attention, one of them, or their mean.

import { about, bold, button, choice, make, roving, small } from "./dom.js";
import { effectOf } from "./effects.js";
import { figure } from "./figure.js";
import { picture } from "./heat.js";
import { mean, percent } from "./numbers.js";
import { partName, patternName } from "./parts.js";
import { gathered, itemsOf } from "./texts.js";
import { detail } from "./weights.js";
import { say } from "./language.js";

const MAX_ACROSS = 16; // heads beside one another

const headName = (one, head) => say("Layer {layer}, head {head}", { layer: one.layer + 1, head: head + 1 });

export function attentionPanel(attention, state, open, controls) {
  const panel = make("div");
  const maps = attention.maps.filter((one) => one.part === state.part);
  if (state.part === "rollout") {
    const found = attention.rollout;
    panel.append(about(
      say("Attention through all layers: the share of each input word in each position after the last layer."),
    ), detail(attention, found.weights, [found.rows, found.columns], state.unit, { title: partName(attention, "rollout"), controls, name: "rollout" }));
    return panel;
  }
  const sides = [maps[0].rows, maps[0].columns];
  if (maps.length === 1 && maps[0].heads.length === 1) {
    const frame = { title: partName(attention, state.part), controls, name: maps[0].name };
    panel.append(about(say("This model has one attention head in one layer.")), detail(attention, maps[0].heads[0], sides, state.unit, frame));
    return panel;
  }
  const views = { heads: say("All heads"), mean: say("Average") };
  controls.push(choice(say("How to see it"), views, state.view, (view) => open({ view, head: null })));
  if (state.view === "mean") {
    const frame = { title: partName(attention, state.part), controls, name: `${state.part}-mean` };
    const all = mean(maps.flatMap((one) => one.heads));
    panel.append(about(say("All heads and layers of this part averaged into one.")), detail(attention, all, sides, state.unit, frame));
    return panel;
  }
  panel.append(about(
    say("Each square is one attention head: a row is the word that attends, a column the word that it attends to, and more colour is more attention. Open a square to read it."),
  ), headsGrid(attention, maps, state, open, controls));
  if (state.head) panel.append(headPanel(attention, maps, state, open));
  return panel;
}

const patternsOf = (attention, name, head) => attention.patterns.filter((pattern) => pattern.map === name && pattern.head === head);

function headsGrid(attention, maps, state, open, controls) {
  const grid = make("div", { class: "heads", role: "group", "aria-label": say("Heads by layer") });
  grid.style.setProperty("--across", Math.min(MAX_ACROSS, maps[0].heads.length));
  const buttons = [];
  maps.forEach((one) => {
    const sides = [one.rows, one.columns].map((side) => itemsOf(attention, side, state.unit));
    const row = make("div", { class: "heads-row" });
    for (let head = 0; head < one.heads.length; head += 1) {
      const picked = headButton(attention, one, head, state, open);
      picked.prepend(picture(() => gathered(one.heads[head], ...sides), grid));
      buttons.push(picked);
      row.append(picked);
    }
    grid.append(make("div", { class: "layer" }, small(say("Layer {layer}", { layer: one.layer + 1 })), row));
  });
  roving(grid, buttons, maps[0].heads.length);
  const legend = say("In each square the strongest weight has the full colour. The word below a square is the pattern that the head follows.");
  return figure({ title: partName(attention, state.part), controls, picture: grid, legend, name: `${state.part}-heads` });
}

function headButton(attention, one, head, state, open) {
  const pattern = patternsOf(attention, one.name, head)[0];
  const name = headName(one, head) + (pattern ? `: ${say(pattern.pattern)}` : "");
  const chosen = state.head !== null && state.head[0] === one.name && state.head[1] === head;
  const attributes = {
    class: "head",
    title: name,
    "aria-label": name,
    "aria-pressed": String(chosen),
    "data-key": `${one.name} ${head}`,
    onclick: () => open({ head: chosen ? null : [one.name, head] }),
  };
  return button(attributes, make("span", { class: "pattern" }, pattern ? say(pattern.pattern) : ""));
}

function headPanel(attention, maps, state, open) {
  const [name, head] = state.head;
  const one = maps.find((map) => map.name === name);
  const title = headName(one, head);
  const order = maps.flatMap((map) => Array.from({ length: map.heads.length }, (_, n) => [map.name, n]));
  const here = order.findIndex(([other, n]) => other === name && n === head);
  const step = (by, text) => {
    const next = order[(here + by + order.length) % order.length];
    return button({ class: "plain", "data-key": text, onclick: () => open({ head: next }) }, text);
  };
  const controls = [
    step(-1, say("← Previous head")),
    step(1, say("Next head →")),
    button({ class: "plain", onclick: () => open({ head: null }) }, say("Close")),
  ];
  const patterns = patternsOf(attention, name, head).map((pattern) =>
    make("p", { class: "about" }, bold(patternName(pattern.pattern)), ` (${percent(pattern.score)}): ${say(pattern.says)}`),
  );
  const frame = { title, controls, name: `${name}-head-${head + 1}` };
  const view = detail(attention, one.heads[head], [one.rows, one.columns], state.unit, frame);
  return make("section", { class: "one", "aria-label": title }, view, ...patterns, about(effectOf(attention, name, head)));
}
