// Which heads and states carry an answer, by activation patching: the values of `PatchView.json()`.

import { make } from "./dom.js";
import { figure } from "./figure.js";
import { grid, gridSection, ramp } from "./grid.js";
import { say } from "./language.js";
import { partsOf, partTitle } from "./names.js";
import { fixed, largest, signed } from "./quantities.js";
import { numberBar, tokenText } from "./bars.js";
import { MARKS, bare } from "./texts.js";

const STATES = { encoder: "State of each token after each layer of the encoder", decoder: "State of each token after each layer of the decoder" };

/** Draw both texts with their answers, a grid of heads and a grid of states. `state.cell` is [grid, row, column]. */
export function showPatch(element, view, { state = {}, onState = () => {} } = {}) {
  element.replaceChildren();
  element.classList.add("qkv-viewer", "qkv-laboratory");
  const told = make("p", { class: "lab-told", role: "status" });
  const scale = largest([...view.heads, ...view.states].flatMap((row) => row.values));
  const choose = (name, where, value) => {
    told.replaceChildren(`${where}: `, make("b", {}, fixed(value, 2)), ` ${meaning(value, view)}`);
    onState({ cell: name });
  };
  element.append(answersFigure(view), headsFigure(view, scale, state, choose), statesFigure(view, scale, state, choose), told);
}

/** What a share that is restored says. */
function meaning(value, view) {
  const names = { answer: bare(view.answer), instead: bare(view.instead), share: `${Math.round(100 * value)} %` };
  if (value >= 0.005) return say("it restores {share} of the advantage of “{answer}” over “{instead}”.", names);
  return value > -0.005 ? say("it restores nothing.") : say("it makes “{instead}” even more likely.", names);
}

/** A text of tokens with those that differ marked. */
function textLine(view, tokens) {
  const spaced = tokens.some((token) => token.startsWith("▁"));
  const apart = (token) => token.startsWith("▁") || MARKS[token] || (!spaced && !/^(##|[.,!?;:)])/.test(token));
  return tokens.flatMap((token, n) => [n && apart(token) ? " " : "", view.differs.includes(n) ? make("mark", {}, bare(token)) : bare(token)]);
}

function answersFigure(view) {
  const names = [view.answer, view.instead].map(bare);
  const most = Math.max(...["clean", "corrupted"].flatMap((run) => [view[run].answer, view[run].instead])) || 1;
  const runs = [["clean", say("first text"), view.source], ["corrupted", say("second text"), view.other]];
  const lines = runs.map(([run, name]) => {
    const cells = [view[run].answer, view[run].instead].flatMap((value) => [make("td", { class: "lab-number lab-last" }, fixed(value)), make("td", { class: "lab-strip" }, numberBar(value, 0, most))]);
    return make("tr", {}, make("th", { scope: "row" }, ...tokenText(name)), ...cells, make("td", { class: "lab-number" }, signed(view[run].difference, 2)));
  });
  const answers = names.flatMap((name) => [make("th", { scope: "col", class: "lab-number" }, `p(${name})`), make("td")]);
  const head = make("tr", {}, make("td"), ...answers, make("th", { scope: "col", class: "lab-number" }, say("difference of logits")));
  const table = make("table", { class: "lab-table lab-answers", "aria-label": say("Both texts and their answers") }, make("thead", {}, head), make("tbody", {}, ...lines));
  const texts = runs.map(([, name, tokens]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", { dir: "auto" }, ...textLine(view, tokens))));
  const both = make("table", { class: "lab-table lab-sides", "aria-label": say("Both texts") }, make("tbody", {}, ...texts));
  const legend = say("The model reads the second text. One activation of its pass over the first text is put in place, and the grids tell how much of the advantage of “{answer}” over “{instead}” comes back.", { answer: names[0], instead: names[1] });
  return figure({ title: say("Two texts that differ in a word"), picture: make("div", {}, both, table), legend, name: "patch-texts" });
}

function legendOf(scale) {
  return make("div", {}, say("0: as for the second text. 1: as for the first. Blue restores the answer, orange works against it."), ramp(fixed(scale, 2), -scale.toFixed(2)));
}

function headsFigure(view, scale, state, choose) {
  const grids = partsOf(view.heads).map((part) => {
    const rows = view.heads.filter((row) => row.part === part);
    const place = (r, c) => say("{part}, layer {layer}, head {head}", { part: partTitle(view.kind, part), layer: rows[r].layer + 1, head: c + 1 });
    const shown = grid({
      label: partTitle(view.kind, part),
      rows: rows.map((row) => ({ name: say("Layer {layer}", { layer: row.layer + 1 }), values: row.values })),
      columns: Array.from({ length: Math.max(...rows.map((row) => row.values.length)) }, (_, n) => String(n + 1)),
      corner: say("head"),
      scale,
      text: (r, c) => fixed(rows[r].values[c], 2),
      says: (r, c) => `${place(r, c)}: ${fixed(rows[r].values[c])}`,
      chosen: chosenIn(state, `heads ${part}`),
      choose: (r, c) => choose([`heads ${part}`, r, c], place(r, c), rows[r].values[c]),
    });
    return gridSection(partTitle(view.kind, part), shown);
  });
  const at = view.position === null ? say("Output of each head") : say("Output of each head at “{token}”", { token: bare(view.source[view.position]) });
  return figure({ title: at, picture: make("div", { class: "lab-parts" }, ...grids), legend: legendOf(scale), name: "patch-heads" });
}

function statesFigure(view, scale, state, choose) {
  const grids = partsOf(view.states).map((part) => {
    const rows = view.states.filter((row) => row.part === part);
    const tokens = (rows[0].text === "read" ? view.read : view.source).map(bare);
    const place = (r, c) => say("layer {layer}, “{token}” at position {position}", { layer: rows[r].layer + 1, token: tokens[c], position: c + 1 });
    const title = say(view.kind === "translator" ? STATES[part] : "State of each token after each layer");
    const shown = grid({
      label: title,
      rows: rows.map((row) => ({ name: say("Layer {layer}", { layer: row.layer + 1 }), values: row.values })),
      columns: tokens,
      scale,
      text: (r, c) => fixed(rows[r].values[c], 2),
      says: (r, c) => `${place(r, c)}: ${fixed(rows[r].values[c])}`,
      chosen: chosenIn(state, `states ${part}`),
      choose: (r, c) => choose([`states ${part}`, r, c], place(r, c), rows[r].values[c]),
    });
    return make("section", { class: "lab-whole" }, make("h3", {}, title), shown);
  });
  return figure({ title: say("States of tokens"), picture: make("div", { class: "lab-parts" }, ...grids), legend: legendOf(scale), name: "patch-states" });
}

/** The chosen cell of a grid. */
const chosenIn = (state, name) => (state.cell && state.cell[0] === name ? state.cell.slice(1) : null);

