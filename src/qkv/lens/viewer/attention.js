// All heads of an attention, one of them, or their mean.

import { about, bold, button, choice, make, roving, small } from "./dom.js";
import { picture } from "./heat.js";
import { mean, percent } from "./numbers.js";
import { patternName } from "./parts.js";
import { gathered, itemsOf } from "./texts.js";
import { detail } from "./weights.js";
import { say } from "./language.js";

const ABOUT = {
  heads: () => say("Each square is one attention head: a row is the word that attends, a column the word that it attends to, and more colour is more attention. Open a square to read it."),
  mean: () => say("All heads and layers of this part averaged into one."),
};

export function attentionPanel(attention, state, open) {
  const panel = make("div");
  const maps = attention.maps.filter((one) => one.part === state.part);
  if (state.part === "rollout") {
    const found = attention.rollout;
    panel.append(about(
      say("Attention through all layers: the share of each input word in each position after the last layer."),
    ), detail(attention, found.weights, [found.rows, found.columns], state.unit));
    return panel;
  }
  const several = maps.length > 1 || maps[0].heads.length > 1;
  if (!several) {
    panel.append(make("p", { class: "about" }, "This model has one attention head in one layer."));
    panel.append(detail(attention, maps[0].heads[0], [maps[0].rows, maps[0].columns], state.unit));
    return panel;
  }
  const views = { heads: "All heads", mean: "Average" };
  panel.append(choice("How to see it", views, state.view, (view) => open({ view, head: null })), about(ABOUT[state.view]()));
  if (state.view === "mean") {
    const all = maps.flatMap((one) => one.heads);
    panel.append(detail(attention, mean(all), [maps[0].rows, maps[0].columns], state.unit));
    return panel;
  }
  panel.append(headsGrid(attention, maps, state, open));
  if (state.head) panel.append(headPanel(attention, maps, state, open));
  return panel;
}

const patternsOf = (attention, name, head) => attention.patterns.filter((pattern) => pattern.map === name && pattern.head === head);

function headsGrid(attention, maps, state, open) {
  const grid = make("div", { class: "heads", role: "group", "aria-label": "Heads by layer" });
  const buttons = [];
  maps.forEach((one) => {
    const sides = [one.rows, one.columns].map((side) => itemsOf(attention, side, state.unit));
    const row = make("div", { class: "layer" }, small(`Layer ${one.layer + 1}`));
    one.heads.forEach((weights, head) => {
      const picked = headButton(attention, one, head, state, open);
      picked.prepend(picture(gathered(weights, ...sides), grid));
      buttons.push(picked);
      row.append(picked);
    });
    grid.append(row);
  });
  roving(grid, buttons, maps[0].heads.length);
  return grid;
}

function headButton(attention, one, head, state, open) {
  const pattern = patternsOf(attention, one.name, head)[0];
  const name = `Layer ${one.layer + 1}, head ${head + 1}${pattern ? `: ${pattern.pattern}` : ""}`;
  const chosen = state.head !== null && state.head[0] === one.name && state.head[1] === head;
  const attributes = {
    class: "head",
    title: name,
    "aria-label": name,
    "aria-pressed": String(chosen),
    "data-key": `${one.name} ${head}`,
    onclick: () => open({ head: chosen ? null : [one.name, head] }),
  };
  return button(attributes, make("span", { class: "pattern" }, pattern ? pattern.pattern : ""));
}

function headPanel(attention, maps, state, open) {
  const [name, head] = state.head;
  const one = maps.find((map) => map.name === name);
  const title = `Layer ${one.layer + 1}, head ${head + 1}`;
  const order = maps.flatMap((map) => map.heads.map((_, n) => [map.name, n]));
  const here = order.findIndex(([other, n]) => other === name && n === head);
  const step = (by, text) => {
    const next = order[(here + by + order.length) % order.length];
    return button({ class: "plain", "data-key": text, onclick: () => open({ head: next }) }, text);
  };
  const close = button({ class: "plain", onclick: () => open({ head: null }) }, "Close");
  const patterns = patternsOf(attention, name, head).map((pattern) =>
    make("p", { class: "about" }, bold(patternName(pattern.pattern)), ` (${percent(pattern.score)}): ${pattern.says}`),
  );
  return make(
    "section",
    { class: "one", "aria-label": title },
    make("div", { class: "bar" }, make("h3", {}, title), step(-1, "← Previous"), step(1, "Next →"), close),
    ...patterns,
    detail(attention, one.heads[head], [one.rows, one.columns], state.unit),
  );
}
