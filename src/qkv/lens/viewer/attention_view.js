// The attention of a model on a text, the values of `AttentionView.json()`.

import { alignmentPanel } from "./alignment.js";
import { attentionPanel } from "./attention.js";
import { attributionPanel } from "./attribution.js";
import { button, choice, make, roving, words } from "./dom.js";
import { innerPanel } from "./inner.js";
import { partName } from "./parts.js";
import { patternsPanel } from "./patterns.js";
import { firstUnit, inPieces, sentence } from "./texts.js";

/** The input and the output. */
function summary(attention) {
  const source = sentence(attention.words.source);
  if (!attention.output) return make("div", { class: "summary" }, words(source));
  const said = { translator: "was translated as", encoder: "the model says", generator: "the model went on with" }[attention.kind];
  const output = attention.output.trim();
  const read = attention.kind === "generator" && source.endsWith(output) ? source.slice(0, source.length - output.length) : source;
  const arrow = make("span", { class: "arrow", role: "img", "aria-label": said, title: said }, "→");
  return make("div", { class: "summary" }, words(read), arrow, words(output));
}

/** Whether a part of the state, which may come from an address, fits this view. */
function allowed(attention, tabs, name, value) {
  const part = () => attention.maps.some((one) => one.part === value) || (value === "rollout" && attention.rollout);
  const head = () => Array.isArray(value) && attention.maps.some((one) => one.name === value[0] && value[1] in one.heads);
  const tests = {
    tab: () => tabs.includes(value),
    part,
    head,
    view: () => ["heads", "mean"].includes(value),
    unit: () => ["words", "tokens"].includes(value),
  };
  return name in tests && Boolean(tests[name]());
}

let count = 0; // viewers so far, for unique ids

export function showAttention(element, attention, { state: given, onState }) {
  const number = (count += 1);
  const parts = [...new Set(attention.maps.map((one) => one.part))];
  const first = parts.includes("cross") ? "cross" : parts[0];
  const state = { tab: null, part: first, view: "heads", head: null, unit: firstUnit(attention) };
  const tabs = {
    alignment: attention.alignment && attention.alignment.length ? "Word by word" : null,
    attention: "Attention",
    patterns: "Head patterns",
    attribution: attention.attribution ? "What mattered" : null,
    inner: "Positions and embeddings",
  };
  const names = Object.keys(tabs).filter((name) => tabs[name]);
  const restored = Object.entries(given).filter(([name, value]) => allowed(attention, names, name, value));
  Object.assign(state, { tab: names[0] }, Object.fromEntries(restored));

  element.replaceChildren();
  element.classList.add("qkv-viewer");
  const list = make("div", { class: "tabs", role: "tablist", "aria-label": "What to see" });
  const tools = make("div", { class: "tools" });
  const panel = make("div", { role: "tabpanel", class: "panel", id: `qkv-panel-${number}` });
  const buttons = names.map((name) => {
    const chosen = () => open({ tab: name });
    const attributes = { role: "tab", id: `qkv-tab-${number}-${name}`, "aria-controls": panel.id };
    return button({ ...attributes, onclick: chosen, onfocus: chosen }, tabs[name]);
  });
  list.append(...buttons);
  roving(list, buttons);
  element.append(summary(attention), list, tools, panel);

  function open(change) {
    const before = { ...state };
    Object.assign(state, change);
    if (change.tab === before.tab && change.tab !== undefined && panel.childNodes.length) return;
    if (change.part && change.part !== before.part) Object.assign(state, { head: change.head || null });
    buttons.forEach((button, n) => {
      button.setAttribute("aria-selected", String(names[n] === state.tab));
      button.setAttribute("tabindex", names[n] === state.tab ? "0" : "-1");
    });
    panel.setAttribute("aria-labelledby", `qkv-tab-${number}-${state.tab}`);
    fill();
    onState({ ...state });
  }

  function openHead(one, head) {
    open({ tab: "attention", part: one.part, view: "heads", head: [one.name, head] });
  }

  function fill() {
    const held = element.contains(document.activeElement) ? document.activeElement.getAttribute("data-key") : null;
    const all = attention.rollout ? [...parts, "rollout"] : parts;
    const choices = Object.fromEntries(all.map((part) => [part, partName(attention, part)]));
    tools.replaceChildren();
    if (state.tab === "attention" && all.length > 1) {
      tools.append(choice("Which attention", choices, state.part, (part) => open({ part })));
    }
    if (inPieces(attention) && ["alignment", "attention", "attribution"].includes(state.tab)) {
      const units = { words: "Words", tokens: "Pieces" };
      tools.append(choice("Words or pieces of words", units, state.unit, (chosen) => open({ unit: chosen })));
    }
    const panels = {
      alignment: () => alignmentPanel(attention, state),
      attention: () => attentionPanel(attention, state, open),
      patterns: () => patternsPanel(attention, openHead),
      attribution: () => attributionPanel(attention, state),
      inner: () => innerPanel(attention),
    };
    panel.replaceChildren(panels[state.tab]());
    const again = held && [...element.querySelectorAll("[data-key]")].find((one) => one.getAttribute("data-key") === held);
    if (again) again.focus();
  }

  open({});
}
