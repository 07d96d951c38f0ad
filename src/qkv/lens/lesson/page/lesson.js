// A lesson: six steps with the numbers of a model, questions before their answers, points that stay in the page.

import { button, make } from "../../viewer/dom.js";
import { language, say } from "../../viewer/language.js";
import { Answers } from "./answers.js";
import { stepPanel } from "./step.js";
import { tell } from "./texts.js";
import { worksheet } from "./worksheet.js";

const LANGUAGES = { en: "English", zh: "中文" };

/** Show a lesson, the values of `Lesson.json()`. */
export function start(element, lesson) {
  const state = { example: 0, step: 0 };
  const answers = new Answers(lesson.examples);
  element.classList.add("qkv-viewer", "qkv-lesson");

  const here = () => lesson.examples[state.example].steps;

  function draw(focus) {
    const root = document.documentElement;
    root.lang = language();
    document.title = `${heading(lesson)} · ${lesson.run}`;
    element.replaceChildren(header(), stepper(), main(), worksheet(lesson, state.example, heading(lesson)));
    if (!focus) return;
    const wanted = focus === "title" ? element.querySelector(".title") : element.querySelector(`[data-key="${focus}"]`);
    wanted.focus({ preventScroll: true });
    if (focus === "title") scrollTo(0, 0);
  }

  function go(step) {
    if (step < 0 || step >= here().length || step === state.step) return;
    state.step = step;
    draw("title");
  }

  function header() {
    const points = make("p", { class: "points-line", role: "status" });
    const count = () => points.replaceChildren(say("Points: {points} of {all}", answers.points(state.example)), make("small", {}, say("Only you see them.")));
    answers.onChange = count;
    count();
    const about = say("Model {run} ({model}), {date}. All numbers are the model's own.", lesson);
    return make(
      "header",
      {},
      make("div", { class: "masthead" }, make("h1", {}, heading(lesson)), tools()),
      make("div", { class: "about-line" }, make("p", { class: "hint" }, about), points),
      lesson.examples.length > 1 ? sentences() : null,
    );
  }

  function tools() {
    const root = document.documentElement;
    const other = language() === "zh" ? "en" : "zh";
    const switched = () => {
      root.dataset.language = other;
      draw("language");
    };
    const large = root.dataset.size === "projector";
    const resized = () => {
      if (large) delete root.dataset.size;
      else root.dataset.size = "projector";
      draw("projector");
    };
    return make(
      "div",
      { class: "toolbox", role: "group", "aria-label": say("Settings") },
      button({ class: "plain", lang: other, "data-key": "language", onclick: switched }, LANGUAGES[other]),
      button({ class: "plain", "aria-pressed": String(large), "data-key": "projector", onclick: resized }, say("Projector")),
      button({ class: "plain", onclick: () => print() }, say("Print as a worksheet")),
    );
  }

  function sentences() {
    const pick = make("select", {
      "data-key": "sentence",
      onchange: (event) => {
        Object.assign(state, { example: event.target.selectedIndex, step: 0 });
        draw("sentence");
      },
    });
    lesson.examples.forEach((one, n) => {
      pick.append(make("option", n === state.example ? { selected: "" } : {}, one.text));
    });
    return make("label", { class: "sentence" }, make("span", {}, say("Sentence")), pick);
  }

  function stepper() {
    const items = here().map((step, n) => {
      const done = answers.finished(state.example, step);
      const attributes = { class: done ? "done" : null, "aria-current": n === state.step ? "step" : null, onclick: () => go(n) };
      const number = make("span", { class: "number" }, done ? "✓" : String(n + 1));
      return make("li", {}, button(attributes, number, make("span", { class: "name" }, tell(step.title))));
    });
    return make("nav", { "aria-label": say("Steps") }, make("ol", { class: "stepper" }, ...items));
  }

  function main() {
    const [last, steps] = [here().length - 1, here()];
    const back = button({ class: "plain", disabled: state.step ? null : "", onclick: () => go(state.step - 1) }, say("← Back"));
    const next = button({ class: "main", disabled: state.step < last ? null : "", onclick: () => go(state.step + 1) }, say("Next step →"));
    const answered = () => {
      element.querySelector("nav").replaceWith(stepper());
      if (state.step === last && answers.finished(state.example, steps[last])) panel.append(ending());
    };
    const panel = make("main", {}, stepPanel(steps[state.step], state.step + 1, answers.of(state.example, steps[state.step]), answered));
    if (state.step === last && answers.finished(state.example, steps[last])) panel.append(ending());
    const keys = make("p", { class: "hint keys" }, say("Keys: ← and → or 1 to {steps} for the steps, Tab and Enter for the questions.", { steps: last + 1 }));
    return make("div", { class: "content" }, panel, make("footer", {}, make("div", { class: "moves" }, back, next), keys));
  }

  function ending() {
    return make("p", { class: "ending", role: "status" }, say("You have walked the whole way of the model: {points} of {all} points.", answers.points(state.example)));
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, dialog")) return;
    const moves = { ArrowRight: state.step + 1, PageDown: state.step + 1, ArrowLeft: state.step - 1, PageUp: state.step - 1 };
    const step = event.key in moves ? moves[event.key] : /^[1-9]$/.test(event.key) ? Number(event.key) - 1 : null;
    if (step === null) return;
    event.preventDefault();
    go(step);
  });
  draw();
}

/** What the lesson is about. */
function heading(lesson) {
  const titles = {
    translator: say("How a model translates"),
    generator: say("How a model writes"),
    encoder: say("How a model fills a gap"),
  };
  return titles[lesson.kind];
}
