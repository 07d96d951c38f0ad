// The attention of heads before and after a change: how much of it moved, and one head side by side.

import { partsOf, partTitle } from "./names.js";
import { withWeight } from "./changes.js";
import { button, make } from "./dom.js";
import { figure } from "./figure.js";
import { grid, gridSection, ramp } from "./grid.js";
import { picture } from "./heat.js";
import { say } from "./language.js";
import { fixed } from "./quantities.js";
import { bare } from "./texts.js";

const MAX_CELLS = 3600; // of one matrix; a larger one is a picture

/** For each head the share of its attention that moved; a head can be chosen. */
export function movedFigure(view, head, choose) {
  const known = view.moved.filter((one) => one.heads);
  const scale = Math.max(0.0001, ...known.flatMap((one) => one.heads));
  const note = known.length < view.moved.length ? make("p", { class: "lab-note" }, say("Where the tokens differ, weights cannot be compared one by one: choose a head to see both.")) : null;
  const grids = partsOf(view.moved).map((part) => {
    const maps = view.moved.filter((one) => one.part === part);
    const counts = maps.map((one) => view.attentions.find((other) => other.name === one.name).heads);
    const rows = maps.map((one, n) => ({ name: say("Layer {layer}", { layer: one.layer + 1 }), values: one.heads || Array(counts[n]).fill(0) }));
    const at = maps.findIndex((one) => head && one.name === head[0]);
    const shown = grid({
      label: partTitle(view.kind, part),
      rows,
      columns: Array.from({ length: Math.max(...counts) }, (_, n) => String(n + 1)),
      scale,
      corner: say("head"),
      text: (r, c) => (maps[r].heads ? fixed(maps[r].heads[c], 2) : "?"),
      says: (r, c) => say("Layer {layer}, head {head}: {share} moved", { layer: maps[r].layer + 1, head: c + 1, share: maps[r].heads ? fixed(maps[r].heads[c]) : "?" }),
      chosen: at < 0 ? null : [at, head[1]],
      choose: (r, c) => choose([maps[r].name, c]),
    });
    return gridSection(partTitle(view.kind, part), shown);
  });
  const legend = make("div", {}, say("The share of each head's attention that moved to other tokens, by the mean over all tokens: 1 is all of it. Choose a head to see it before and after."), known.length ? ramp(fixed(scale, 2)) : null);
  return figure({ title: say("Attention that moved"), picture: make("div", {}, note, make("div", { class: "lab-parts" }, ...grids)), legend, name: "change-moved" });
}

/** One head before and after, side by side; `run`, if there is one, gets changes with a weight that somebody sets. */
export function headAttention(view, [name, head], changes, run) {
  const [before, after] = [view.before, view.after].map((side) => side.maps.find((one) => one.name === name));
  const { layer, part } = view.moved.find((one) => one.name === name);
  const title = say("{part}, layer {layer}, head {head}", { part: partTitle(view.kind, part), layer: layer + 1, head: head + 1 });
  if (!before) {
    return figure({ title, picture: make("p", {}, say("Nothing of this attention moved, or it was too large to be kept.")), name: "change-head" });
  }
  const setter = make("div", { class: "lab-row" });
  const pick = run && ((query, key) => setter.replaceChildren(weightSetter(before, view, { attention: name, head, query, key }, changes, run)));
  const scale = Math.max(...[before, after].flatMap((map) => map.heads[head].flat())) || 1;
  const side = (text, seen, map, chosen) => {
    const shown = matrixOf(`${title}, ${text}`, map, head, seen, scale, chosen);
    return gridSection(text, shown);
  };
  const both = make("div", { class: "lab-parts" }, side(say("before"), view.before, before, pick), side(say("after"), view.after, after, pick));
  const hint = run ? say(" Choose a cell to set its weight.") : "";
  const legend = make("div", {}, say("A row is the token that attends, a column the token that it attends to.") + hint, ramp(fixed(scale, 2), 0, true));
  return figure({ title, controls: run ? [setter] : [], picture: both, legend, name: "change-head" });
}

/** The weights of a head as a grid, or as a picture where there are many. */
export function matrixOf(label, map, head, texts, scale, choose = null) {
  const weights = map.heads[head];
  const [rows, columns] = [texts[map.rows].map(bare), texts[map.columns].map(bare)];
  if (weights.length * weights[0].length > MAX_CELLS) {
    const box = make("div", { class: "lab-heat", role: "img", "aria-label": label });
    box.append(picture(weights, box));
    return box;
  }
  const says = (r, c) => `${rows[r]} → ${columns[c]}: ${fixed(weights[r][c])}`;
  return grid({ label, rows: rows.map((name, n) => ({ name, values: weights[n] })), columns, says, scale, choose });
}

function weightSetter(map, view, place, changes, run) {
  const { query, key, head } = place;
  const words = { query: bare(view.before[map.rows][query]), key: bare(view.before[map.columns][key]) };
  const label = say("Weight of “{key}” for “{query}”", words);
  const shown = make("output", { class: "lab-number" });
  const given = changes.find((one) => one.change === "weight" && one.attention === place.attention && one.head === head && one.query === query && one.key === key);
  const range = make("input", { type: "range", min: 0, max: 1, step: 0.01, "aria-label": label, value: given ? given.value : map.heads[head][query][key] });
  const tell = () => shown.replaceChildren(fixed(Number(range.value), 2));
  range.addEventListener("input", tell);
  range.addEventListener("change", () => run(withWeight(changes, place, Number(range.value))));
  const away = button({ class: "plain", onclick: () => run(withWeight(changes, place, null)) }, say("As it was"));
  tell();
  return make("label", { class: "lab-choice" }, label, range, shown, given ? away : null);
}
