// The attention of a model on a text, the values of `AttentionView.json()`.

import { alignmentPanel } from "./alignment.js";
import { attentionPanel } from "./attention.js";
import { attributionPanel } from "./attribution.js";
import { button, choice, make, roving, words } from "./dom.js";
import { innerPanel } from "./inner.js";
import { say } from "./language.js";
import { partName } from "./parts.js";
import { patternsPanel } from "./patterns.js";
import { firstUnit, inPieces, sentence } from "./texts.js";

const SAID = { translator: "was translated as", encoder: "the model says", generator: "the model went on with" };

const LONG = 400; // characters of a text that is folded up
const FOLDED = 120; // of them that are shown

/** The input and the output; long ones are folded up. */
export function summary(attention) {
  const source = sentence(attention.words.source);
  const output = (attention.output || "").trim();
  const read = attention.kind === "generator" && output && source.endsWith(output) ? source.slice(0, -output.length) : source;
  const folded = (text) => (text.length > FOLDED ? `${text.slice(0, FOLDED)}…` : text);
  if (source.length + output.length <= LONG) return make("div", { class: "summary" }, ...texts(attention, read, output));
  const first = make("summary", {}, ...texts(attention, folded(read), folded(output)));
  return make("details", { class: "summary" }, first, ...texts(attention, read, output));
}

function texts(attention, read, output) {
  if (!output) return [words(read)];
  const said = say(SAID[attention.kind]);
  return [words(read), make("span", { class: "arrow", role: "img", "aria-label": said, title: said }, " → "), words(output)];
}

/** Whether a part of the state, which may come from an address, fits this view. */
function allowed(attention, tabs, name, value) {
  const tests = {
    tab: () => tabs.includes(value),
    part: () => attention.maps.some((one) => one.part === value) || (value === "rollout" && attention.rollout),
    head: () => Array.isArray(value) && attention.maps.some((one) => one.name === value[0] && Number.isInteger(value[1]) && value[1] in one.heads),
    view: () => ["heads", "mean"].includes(value),
    unit: () => ["words", "tokens"].includes(value),
  };
  return Object.hasOwn(tests, name) && Boolean(tests[name]());
}

let count = 0; // viewers so far, for unique ids

export function showAttention(element, attention, { state: given, onState }) {
  const number = (count += 1);
  const parts = [...new Set(attention.maps.map((one) => one.part))];
  const tabs = {
    alignment: attention.alignment && attention.alignment.length ? say("Word by word") : null,
    attention: say("Attention"),
    patterns: say("Head patterns"),
    attribution: attention.attribution ? say("What mattered") : null,
    inner: say("Positions and embeddings"),
  };
  const names = Object.keys(tabs).filter((name) => tabs[name]);
  const part = parts.includes("cross") ? "cross" : parts[0];
  const state = { tab: names[0], part, view: "heads", head: null, unit: firstUnit(attention) };
  Object.assign(state, Object.fromEntries(Object.entries(given).filter(([name, value]) => allowed(attention, names, name, value))));

  const list = make("div", { class: "tabs", role: "tablist", "aria-label": say("What to see") });
  const panel = make("div", { role: "tabpanel", class: "panel", id: `qkv-panel-${number}` });
  const buttons = names.map((name) => {
    const chosen = () => name !== state.tab && open({ tab: name });
    const attributes = { role: "tab", id: `qkv-tab-${number}-${name}`, "aria-controls": panel.id };
    return button({ ...attributes, onclick: chosen, onfocus: chosen }, tabs[name]);
  });
  list.append(...buttons);
  roving(list, buttons);
  element.classList.add("qkv-viewer");
  element.replaceChildren(summary(attention), list, panel);

  /** Change the state, and show it. */
  function open(change) {
    if (change.part && change.part !== state.part) Object.assign(state, { head: null });
    Object.assign(state, change);
    buttons.forEach((button, n) => {
      button.setAttribute("aria-selected", String(names[n] === state.tab));
      button.setAttribute("tabindex", names[n] === state.tab ? "0" : "-1");
    });
    panel.setAttribute("aria-labelledby", `qkv-tab-${number}-${state.tab}`);
    fill();
    onState({ ...state });
  }

  const openHead = (one, head) => open({ tab: "attention", part: one.part, view: "heads", head: [one.name, head] });

  function fill() {
    const held = element.contains(document.activeElement) ? document.activeElement.getAttribute("data-key") : null;
    const panels = {
      alignment: () => alignmentPanel(attention, state, unitChoice()),
      attention: () => attentionPanel(attention, state, open, [...partChoice(), ...unitChoice()]),
      patterns: () => patternsPanel(attention, openHead),
      attribution: () => attributionPanel(attention, state, unitChoice()),
      inner: () => innerPanel(attention, element.clientWidth),
    };
    panel.replaceChildren(panels[state.tab]());
    const again = held && [...element.querySelectorAll("[data-key]")].find((one) => one.getAttribute("data-key") === held);
    if (again) again.focus();
  }

  function partChoice() {
    const all = attention.rollout ? [...parts, "rollout"] : parts;
    const choices = Object.fromEntries(all.map((one) => [one, partName(attention, one)]));
    return all.length > 1 ? [choice(say("Which attention"), choices, state.part, (chosen) => open({ part: chosen }))] : [];
  }

  function unitChoice() {
    const units = { words: say("Words"), tokens: say("Pieces") };
    return inPieces(attention) ? [choice(say("Words or pieces of words"), units, state.unit, (unit) => open({ unit }))] : [];
  }

  open({});
}
