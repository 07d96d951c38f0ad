// The lesson on paper: each step on a page, questions as blanks, the answers at the end. Only printing shows it.

import { make } from "../../viewer/dom.js";
import { say } from "../../viewer/language.js";
import { picture } from "./pictures.js";
import { tell, written } from "./texts.js";

const WIDTH = 640; // of pictures, in pixels
const LETTERS = "abcdefgh";

/** The worksheet of one sentence. */
export function worksheet(lesson, number, heading) {
  const example = lesson.examples[number];
  const known = (name) => name === null || name === undefined;
  const name = make("p", { class: "name-line" }, `${say("Name")}: `, make("span", { class: "blank long" }));
  const pages = example.steps.map((step, n) =>
    make(
      "section",
      { class: "sheet" },
      n ? null : make("h1", {}, heading),
      n ? null : name,
      n ? null : make("p", { class: "given" }, `${say("Sentence")}: `, make("b", { dir: "auto" }, example.text)),
      make("h2", {}, `${n + 1}. `, tell(step.title)),
      ...step.pictures.filter((one) => one.kind !== "result").flatMap((one) => printed(one, known)),
      make("ol", { class: "blanks" }, ...step.questions.map(blank)),
    ),
  );
  const answers = example.steps.flatMap((step, n) => [
    make("h3", {}, `${n + 1}. `, tell(step.title)),
    make("ol", {}, ...step.questions.map((question) => make("li", {}, make("b", {}, answerOf(question)), " ", tell(question.because)))),
  ]);
  const about = say("Model {run} ({model}), {date}. All numbers are the model's own.", lesson);
  const last = make("section", { class: "sheet" }, make("h2", {}, say("Answers")), ...answers, make("p", { class: "hint" }, about));
  return make("div", { class: "worksheet", "aria-hidden": "true" }, ...pages, last);
}

function printed(one, known) {
  return [...one.says.map((said) => make("p", {}, tell(said))), picture(one, known, WIDTH).element];
}

function blank(question) {
  const choices = question.options.map((one, n) => make("span", { class: "box" }, `${LETTERS[n]})  `, tell(one)));
  const space = choices.length ? make("p", { class: "choices" }, ...choices) : make("p", {}, make("span", { class: "blank" }));
  return make("li", {}, tell(question.asks), space);
}

function answerOf(question) {
  if (question.kind === "number") return `${written(question.answer, question.digits)}.`;
  return `${LETTERS[question.answer]}) ${tell(question.options[question.answer])}.`;
}
