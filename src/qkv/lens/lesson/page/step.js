// One step: pictures with sentences before them, and questions that come one after the other.

import { make } from "../../viewer/dom.js";
import { say } from "../../viewer/language.js";
import { picture } from "./pictures.js";
import { questionCard } from "./question.js";
import { tell } from "./texts.js";

/** The panel of a step; `answered` is called after each answer. */
export function stepPanel(step, number, answers, answered) {
  const title = make("h2", { class: "title", tabindex: "-1" }, make("span", { class: "number" }, String(number)), tell(step.title));
  const pictures = make("div", { class: "pictures" });
  const asked = make("section", { class: "questions", "aria-label": say("Your turn") });
  const drawn = step.pictures.map((one) => picture(one, answers.known));
  drawn.forEach((one, n) => pictures.append(...step.pictures[n].says.map((said) => make("p", {}, tell(said))), one.element));

  function ask() {
    const next = step.questions.findIndex((question) => !answers.get(question).done);
    const count = next < 0 ? step.questions.length : next + 1;
    while (asked.childElementCount < count) {
      asked.append(questionCard(step.questions[asked.childElementCount], asked.childElementCount, answers, after));
    }
  }

  function after() {
    drawn.forEach((one) => one.update());
    ask();
    answered();
  }

  ask();
  return make("article", { class: "step" }, title, make("div", { class: "sides" }, pictures, asked));
}
