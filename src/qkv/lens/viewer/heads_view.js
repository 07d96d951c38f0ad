// What each head is worth: the drop of the score without it, beside what it attends to; the values of `qkv heads`.

import { numberBar } from "./bars.js";
import { make } from "./dom.js";
import { figure } from "./figure.js";
import { grid, gridSection, ramp } from "./grid.js";
import { say } from "./language.js";
import { partsOf, partTitle } from "./names.js";
import { percent } from "./numbers.js";
import { patternName } from "./parts.js";
import { fixed, largest, signed } from "./quantities.js";

const LISTED = 12; // heads with the largest drop

/** The attentions of a view by name, with part, layer and the drop of each head. */
export function attentionsOf(drops) {
  return Object.entries(drops).map(([name, heads]) => {
    const [part, layer, kind] = name.split(".");
    return { name, part: kind === "cross" ? "cross" : part, layer: Number(layer), heads };
  });
}

/** Draw the grid of drops and the heads by their drop. `state.head` is [attention, head]. */
export function showHeads(element, view, { state = {}, onState = () => {} } = {}) {
  element.replaceChildren();
  element.classList.add("qkv-viewer", "qkv-laboratory");
  const attentions = attentionsOf(view.drops);
  const patterns = view.patterns || [];
  const of = (name, head) => patterns.filter((one) => one.map === name && one.head === head);
  const kind = view.kind || (attentions.length > 0 && new Set(attentions.map((one) => one.part)).size > 1 ? "translator" : "encoder");
  const place = (one, head) => say("{part}, layer {layer}, head {head}", { part: partTitle(kind, one.part), layer: one.layer + 1, head: head + 1 });
  const told = make("p", { class: "lab-told", role: "status" });
  const scale = largest(attentions.flatMap((one) => one.heads));
  const choose = (one, head) => {
    told.replaceChildren(...toldOf(view, place(one, head), one.heads[head], of(one.name, head)));
    onState({ head: [one.name, head] });
  };
  const grids = partsOf(attentions).map((part) => {
    const rows = attentions.filter((one) => one.part === part);
    const at = rows.findIndex((one) => state.head && one.name === state.head[0]);
    const shown = grid({
      label: partTitle(kind, part),
      rows: rows.map((one) => ({ name: say("Layer {layer}", { layer: one.layer + 1 }), values: one.heads })),
      columns: Array.from({ length: Math.max(...rows.map((one) => one.heads.length)) }, (_, n) => String(n + 1)),
      corner: say("head"),
      scale,
      text: (r, c) => fixed(rows[r].heads[c], 3) + (of(rows[r].name, c).length ? "*" : ""),
      says: (r, c) => [`${place(rows[r], c)}: ${signed(rows[r].heads[c], 4)}`, ...of(rows[r].name, c).map((one) => patternName(one.pattern))].join(", "),
      chosen: at < 0 ? null : [at, state.head[1]],
      choose: (r, c) => choose(rows[r], c),
    });
    return gridSection(partTitle(kind, part), shown);
  });
  const facts = say("{figure}: {score} with all heads, on {texts} texts. Blue: the score drops without the head, so the model needs it. Orange: the model is better without it.", { figure: say(view.figure), score: fixed(view.score), texts: view.texts.toLocaleString("en") });
  const stars = patterns.length ? say(" A star: the head follows a known pattern.") : "";
  const legend = make("div", {}, facts + stars, ramp(fixed(scale, 3), -scale.toFixed(3)));
  element.append(figure({ title: say("Without each head"), picture: make("div", { class: "lab-parts" }, ...grids), legend, name: "heads" }), told, ranking(view, attentions, place, of));
}

function toldOf(view, place, drop, patterns) {
  const effect = drop > 0 ? say("without it the score drops by {drop}.", { drop: fixed(drop, 4) }) : say("without it the score rises by {drop}.", { drop: fixed(-drop, 4) });
  const found = patterns.map((one) => `${patternName(one.pattern)} (${percent(one.score)}): ${say(one.says)}.`);
  return [make("b", {}, `${place}: `), [effect, ...found].join(" ")];
}

/** The heads that the model needs most, with their patterns. */
function ranking(view, attentions, place, of) {
  const all = attentions.flatMap((one) => one.heads.map((drop, head) => ({ one, head, drop }))).sort((a, b) => b.drop - a.drop);
  const shown = all.slice(0, LISTED);
  const scale = largest(shown.map(({ drop }) => drop));
  const low = Math.min(0, ...shown.map(({ drop }) => drop));
  const rows = shown.map(({ one, head, drop }) => {
    const patterns = of(one.name, head).map((found) => patternName(found.pattern)).join(", ");
    return make("tr", {}, make("th", { scope: "row", class: "lab-place" }, place(one, head)), make("td", { class: "lab-number lab-last" }, signed(drop, 4)), make("td", { class: "lab-strip" }, numberBar(drop, low, scale)), make("td", { class: "lab-pattern" }, patterns));
  });
  const head = make("tr", {}, ...[say("head"), say("drop"), "", say("pattern")].map((text, n) => (text ? make("th", { scope: "col", class: n === 1 ? "lab-number" : null }, text) : make("td"))));
  const table = make("table", { class: "lab-table lab-keys", "aria-label": say("Heads by their drop") }, make("thead", {}, head), make("tbody", {}, ...rows));
  const harmless = all.filter(({ drop }) => drop <= 0).length;
  const legend = say("{harmless} of {count} heads can go without a loss, one at a time.", { harmless, count: all.length });
  return figure({ title: say("The heads that the model needs most"), picture: table, legend, name: "heads-ranking" });
}
