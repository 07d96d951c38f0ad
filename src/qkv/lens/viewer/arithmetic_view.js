// The arithmetic of one attention head at one position, step by step: the values of `Arithmetic.json()`.

import { stepPicture } from "./arithmetic_steps.js";
import { asking, select } from "./asking.js";
import { partTitle } from "./names.js";
import { button, make, roving } from "./dom.js";
import { figure } from "./figure.js";
import { formula } from "./formula.js";
import { say } from "./language.js";
import { playing } from "./player.js";
import { stepGroups } from "./terms.js";
import { bare } from "./texts.js";

const PAUSE = 4000; // milliseconds between steps while they play
const CHOICE = ["part", "layer", "head", "position"];

/** Whether a view has the numbers of a choice; what the choice leaves out does not matter. */
export const answers = (view, choice) => CHOICE.every((name) => choice[name] === undefined || choice[name] === view[name]);

/**
 * Draw the steps into an element. `ask(choice)` returns a promise of the view of another part, layer, head or position; without it
 * the view's own `others` can be chosen.
 */
export function showArithmetic(element, first, { state = {}, onState = () => {}, ask = null } = {}) {
  const known = [first, ...(first.others || [])];
  let view = known.find((one) => answers(one, state)) || first;
  const now = { step: Math.min(state.step || 0, view.steps.length - 1), key: state.key ?? null, allKeys: false };
  const { line, put } = asking(ask || (async (choice) => known.find((one) => answers(one, choice))), changed);
  const [heading, choosers, picture] = [make("p", { class: "lab-heading" }), make("div", { class: "lab-choosers" }), make("div", { class: "lab-step" })];
  const rail = make("nav", { class: "lab-rail", "aria-label": say("Steps") });
  const player = playing(() => now.step < view.steps.length - 1 && go(now.step + 1, true), PAUSE);
  const [back, on] = [stepButton(say("← Previous"), -1), stepButton(say("Next →"), 1)];
  const controls = [back, player.button, on, choosers];
  element.replaceChildren();
  element.classList.add("qkv-viewer", "qkv-laboratory");
  const frame = figure({ title: say("How a weight comes about"), controls, picture: make("div", {}, heading, line, rail, picture), name: "arithmetic" });
  frame.addEventListener("keydown", keys);
  element.append(frame);
  draw();

  function stepButton(text, by) {
    return button({ class: "plain", onclick: () => (player.stop(), go(now.step + by)) }, text);
  }

  function keys(event) {
    const by = { PageDown: 1, PageUp: -1 }[event.key];
    if (by && !event.target.closest("select")) {
      event.preventDefault();
      player.stop();
      go(now.step + by);
    }
  }

  function changed(found) {
    const name = view.steps[now.step].name;
    view = found;
    const same = view.steps.findIndex((step) => step.name === name);
    Object.assign(now, { step: same < 0 ? Math.min(now.step, view.steps.length - 1) : same, key: null, allKeys: false });
    draw();
    tell();
  }

  function choose(change) {
    player.stop();
    const choice = Object.fromEntries(CHOICE.map((name) => [name, view[name]]));
    put(Object.fromEntries(Object.entries({ ...choice, ...change }).filter(([, value]) => value !== undefined)));
  }

  function go(step, moving = false) {
    if (step < 0 || step >= view.steps.length) return;
    Object.assign(now, { step });
    drawStep(moving);
    tell();
  }

  function tell() {
    onState({ step: now.step, ...Object.fromEntries(CHOICE.map((name) => [name, view[name]])) });
  }

  function draw() {
    heading.replaceChildren(...headingOf(view));
    choosers.replaceChildren(...choosersOf(view, known, ask, choose));
    rail.replaceChildren(...railOf(view, (step) => (player.stop(), go(step))));
    drawStep(false);
  }

  function drawStep(moving) {
    const step = view.steps[now.step];
    const count = say("Step {number} of {count}", { number: now.step + 1, count: view.steps.length });
    const change = (values) => (Object.assign(now, values), drawStep(false));
    picture.classList.toggle("moving", moving);
    picture.replaceChildren(
      make("p", { class: "lab-count" }, count),
      make("h3", {}, say(step.title)),
      formula(say(step.formula)),
      make("p", { class: "lab-says", "aria-live": "polite" }, say(step.says)),
      stepPicture(view, now.step, now, change),
    );
    rail.querySelectorAll("button").forEach((one, n) => {
      if (n === now.step) one.setAttribute("aria-current", "step");
      else one.removeAttribute("aria-current");
      one.setAttribute("tabindex", n === now.step ? "0" : "-1");
    });
    back.disabled = now.step === 0;
    on.disabled = now.step === view.steps.length - 1;
    if (on.disabled) player.stop();
  }
}

function railOf(view, go) {
  const buttons = [];
  const groups = stepGroups(view.steps).map(([name, numbers]) => {
    const own = numbers.map((n) => {
      const title = say(view.steps[n].title);
      const label = say("Step {number}: {title}", { number: n + 1, title });
      return button({ "aria-label": label, title, onclick: () => go(n) }, String(n + 1));
    });
    buttons.push(...own);
    return make("div", { class: "lab-group", role: "group", "aria-label": say(name) }, make("span", { "aria-hidden": "true" }, say(name)), make("div", {}, ...own));
  });
  const row = make("div", { class: "lab-groups" }, ...groups);
  roving(row, buttons);
  buttons.forEach((one, n) => one.addEventListener("focus", () => one.matches(":focus-visible") && go(n)));
  return [row];
}

/** Where we are: the head, the token that attends, and what the model is to predict there. */
function headingOf(view) {
  const { layers, heads } = view.choices.find((one) => one.part === view.part);
  const where = { part: partTitle(view.kind, view.part), layer: view.layer + 1, layers, head: view.head + 1, heads };
  const head = say("{part}, layer {layer} of {layers}, head {head} of {heads}.", where);
  const tokens = { position: view.position + 1, token: bare(view.reads), next: view.predicts === null ? "" : bare(view.predicts) };
  const reads = say("At position {position} the model reads “{token}”.", tokens);
  const predicts = view.predicts === null ? "" : say("The next token is “{next}”.", tokens);
  return [`${head} ${reads} ${predicts}`];
}

function choosersOf(view, known, ask, choose) {
  const offered = (name, all) => (ask ? all : all.filter((value) => known.some((one) => answers(one, { ...pick(view, name), [name]: value }))));
  const part = view.choices.find((one) => one.part === view.part);
  const upTo = (count) => Array.from({ length: count }, (_, n) => n);
  const texts = view.texts[part.rows];
  const reads = (n) => (view.texts.read && part.rows === "target" ? `${bare(view.texts.read[n])} → ${bare(texts[n])}` : bare(texts[n]));
  const number = (name, value) => choose({ [name]: Number(value) });
  return [
    [say("Attention"), "part", view.choices.map((one) => one.part), (value) => partTitle(view.kind, value), (value) => choose({ part: value, layer: undefined, head: undefined, position: undefined })],
    [say("Layer"), "layer", upTo(part.layers), (n) => n + 1, (value) => number("layer", value)],
    [say("Head"), "head", upTo(part.heads), (n) => n + 1, (value) => number("head", value)],
    [say("Position"), "position", upTo(part.positions), (n) => `${n + 1}: ${reads(n)}`, (value) => number("position", value)],
  ].flatMap(([label, name, all, text, chosen]) => {
    const values = offered(name, all);
    return values.length > 1 ? [select(label, values.map((value) => [value, text(value)]), view[name], chosen)] : [];
  });
}

/** The rest of a choice that another value of `name` goes with: a part has layers and positions of its own. */
function pick(view, name) {
  return name === "part" ? {} : Object.fromEntries(CHOICE.filter((one) => one !== name).map((one) => [one, view[one]]));
}
