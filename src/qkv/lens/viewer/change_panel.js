// The controls of a change: heads and layers to switch off, a temperature, words to edit; each acts at once.

import { editedWords, has, plainChange, temperatureOf, toggled, withTemperature } from "./changes.js";
import { changeName, partsOf, partTitle } from "./names.js";
import { button, make, roving } from "./dom.js";
import { say } from "./language.js";
import { fixed } from "./quantities.js";

const LEAST = -3; // of the temperature slider, as a power of 2
const MOST = 3;
const MOST_SHOWN = 32; // changes that a service takes

/** The panel. `view()` and `changes()` return the latest ones, `run(changes)` asks for others; `refresh()` shows an answer. */
export function changePanel(view, changes, run) {
  const box = make("section", { class: "lab-panel", "aria-label": say("Change something") });
  const ask = (found) => {
    if (found.length <= MOST_SHOWN) run(found);
    box.refresh();
  };
  box.refresh = () => {
    const held = box.contains(document.activeElement) ? document.activeElement.getAttribute("data-key") : null;
    box.replaceChildren(
      make("h2", {}, say("Change something")),
      words(view(), changes(), ask),
      heads(view(), changes(), ask),
      temperature(changes(), ask),
      list(changes(), ask),
    );
    const again = held && [...box.querySelectorAll("[data-key]")].find((one) => one.getAttribute("data-key") === held);
    if (again) again.focus();
  };
  box.refresh();
  return box;
}

function list(changes, ask) {
  if (!changes.length) return make("p", { class: "lab-note" }, say("Nothing is changed."));
  const items = changes.map((one, n) => {
    const text = changeName(one);
    const away = button({ class: "plain", "data-key": `away ${n}`, "aria-label": say("Undo: {change}", { change: text }), onclick: () => ask(changes.filter((other) => other !== one)) }, "×");
    return make("li", { dir: "auto" }, text, away);
  });
  const all = button({ class: "plain", onclick: () => ask([]) }, say("Undo all"));
  return make("div", { class: "lab-row" }, make("ul", { class: "lab-changes", "aria-label": say("Changes") }, ...items), all);
}

function heads(view, changes, ask) {
  const parts = partsOf(view.attentions).map((part) => {
    const buttons = [];
    const rows = view.attentions.filter((one) => one.part === part).map((one) => {
      const layer = `${one.name.split(".").slice(0, 2).join(".")}`;
      const whole = part !== "cross" && view.layers.includes(layer) ? toggle(changes, { change: "layer", layer }, say("Layer {layer}", { layer: one.layer + 1 }), ask) : toggle(changes, { change: "head", attention: one.name }, say("Layer {layer}", { layer: one.layer + 1 }), ask);
      const own = Array.from({ length: one.heads }, (_, head) => toggle(changes, { change: "head", attention: one.name, head }, String(head + 1), ask));
      buttons.push(whole, ...own);
      return make("div", { class: "lab-toggles" }, whole, ...own);
    });
    const group = make("div", { role: "group", "aria-label": partTitle(view.kind, part) }, make("p", { class: "lab-note" }, partTitle(view.kind, part)), ...rows);
    roving(group, buttons, rows[0].childNodes.length);
    return group;
  });
  const title = make("summary", {}, say("Heads and layers: click to switch off"));
  return make("details", { open: "" }, title, make("div", { class: "lab-parts" }, ...parts));
}

function toggle(changes, change, text, ask) {
  const off = has(changes.map(plainChange), change);
  const name = changeName(change);
  return button({ class: "lab-toggle", "aria-pressed": String(off), "aria-label": name, title: name, "data-key": name, onclick: () => ask(toggled(changes, change)) }, text);
}

function temperature(changes, ask) {
  const label = say("Temperature of the softmax");
  const value = temperatureOf(changes);
  const shown = make("output", { class: "lab-number" }, fixed(value, 2));
  const range = make("input", { type: "range", min: LEAST, max: MOST, step: 0.25, value: Math.log2(value), "aria-label": label, "data-key": "temperature" });
  const chosen = () => Number((2 ** Number(range.value)).toFixed(2));
  range.addEventListener("input", () => shown.replaceChildren(fixed(chosen(), 2)));
  range.addEventListener("change", () => ask(withTemperature(changes, chosen())));
  return make("label", { class: "lab-choice" }, label, range, shown, make("span", { class: "lab-note" }, say("below 1 sharpens attention, above 1 flattens it")));
}

/** The words of the text as buttons; one that is clicked can be replaced, left out or moved. */
function words(view, changes, ask) {
  const now = editedWords(view.words.source, changes);
  const editor = make("div", { class: "lab-row" });
  const buttons = now.map(([word, fresh], n) => {
    const open = () => {
      buttons.forEach((one, m) => one.setAttribute("aria-pressed", String(m === n)));
      editor.replaceChildren(...edits(word, n, now.length, changes, ask));
      editor.querySelector("input").select();
    };
    return button({ class: `chip${fresh ? " lab-fresh" : ""}`, dir: "auto", "aria-pressed": "false", "data-key": `word ${n}`, onclick: open }, word);
  });
  const line = make("div", { class: "line", role: "group", "aria-label": say("Words: click to change") }, ...buttons);
  roving(line, buttons);
  return make("div", {}, make("p", { class: "lab-note" }, say("Words: click to change")), line, editor);
}

function edits(word, n, count, changes, ask) {
  const label = say("Word {number}", { number: n + 1 });
  const input = make("input", { value: word, "aria-label": label, maxlength: 100, dir: "auto" });
  const add = (change) => ask([...changes, change]);
  const replace = () => input.value.trim() && input.value.trim() !== word && add({ change: "replace", word: n, text: input.value.trim() });
  input.addEventListener("keydown", (event) => event.key === "Enter" && replace());
  const plain = (text, does, able = true) => button({ class: "plain", disabled: able ? null : "", onclick: does }, text);
  return [
    input,
    plain(say("Replace"), replace),
    plain(say("Delete"), () => add({ change: "delete", word: n }), count > 1),
    plain(say("← Move"), () => add({ change: "move", word: n, to: n - 1 }), n > 0),
    plain(say("Move →"), () => add({ change: "move", word: n, to: n + 1 }), n < count - 1),
  ];
}
