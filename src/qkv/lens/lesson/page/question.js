// A question: a choice or a number, with a hint, a button that shows the answer, and friendly words about what was given.

import { button, make } from "../../viewer/dom.js";
import { say } from "../../viewer/language.js";
import { tell, typed, written } from "./texts.js";

/** The card of a question; `after` is called when it is answered. */
export function questionCard(question, number, answers, after) {
  const id = `ask-${question.name}`;
  const feedback = make("div", { class: "feedback", role: "status" });
  const hint = button({ class: "plain", onclick: help }, say("Hint"));
  const show = button({ class: "plain", onclick: reveal }, say("Show"));
  const given = question.kind === "choice" ? options() : numberField();
  const aside = make("div", { class: "aside" }, hint, show);
  const card = make(
    "div",
    { class: "ask", role: "group", "aria-labelledby": id, "data-question": question.name },
    make("p", { class: "asks", id }, make("span", { class: "mark", "aria-hidden": "true" }, "?"), tell(question.asks)),
    given.element,
    aside,
    feedback,
  );
  if (answers.get(question).done) settle();

  function right() {
    answers.right(question);
    settle();
    after();
  }

  function wrong(tried, words) {
    answers.wrong(question, tried);
    feedback.className = "feedback wrong";
    feedback.replaceChildren(words);
  }

  function help() {
    answers.help(question);
    feedback.className = "feedback";
    feedback.replaceChildren(tell(question.hint));
  }

  function reveal() {
    answers.reveal(question);
    settle();
    after();
  }

  /** Show the answer, and why it is so; nothing can be changed any more. */
  function settle() {
    const { shown, points } = answers.get(question);
    const praise = shown ? say("This is the answer.") : points > 1 ? say("Right!") : say("Right, well done.");
    card.classList.add("done");
    feedback.className = shown ? "feedback" : "feedback right";
    feedback.replaceChildren(make("b", {}, praise), " ", tell(question.because));
    const held = aside.contains(document.activeElement);
    aside.remove();
    given.settle();
    if (held) {
      feedback.tabIndex = -1;
      feedback.focus({ preventScroll: true });
    }
  }

  function options() {
    const buttons = question.options.map((option, n) =>
      button({ class: "option", dir: "auto", onclick: () => choose(n) }, make("span", {}, tell(option))),
    );
    answers.get(question).tried.forEach((n) => mark(buttons[n], "tried"));
    function choose(n) {
      if (answers.get(question).done) return;
      if (n === question.answer) return right();
      mark(buttons[n], "tried");
      return wrong(n, say("Not this one. Try another, or take the hint."));
    }
    function mark(one, name) {
      one.classList.add(name);
      one.setAttribute("aria-disabled", "true");
    }
    return {
      element: make("div", { class: "options" }, ...buttons),
      settle: () => buttons.forEach((one, n) => mark(one, n === question.answer ? "answer" : "other")),
    };
  }

  function numberField() {
    const field = make("input", { type: "text", inputmode: "decimal", autocomplete: "off", "aria-labelledby": id, class: "number-field" });
    const check = button({ class: "main", type: "submit" }, say("Check"));
    const near = make("span", { class: "hint" }, say("± {tolerance} is near enough", { tolerance: nearEnough(question) }));
    const send = (event) => {
      event.preventDefault();
      if (answers.get(question).done) return;
      const value = typed(field.value);
      if (Number.isNaN(value)) {
        feedback.className = "feedback";
        feedback.replaceChildren(say("Type a number, such as 0.5 or −1.2."));
      } else if (Math.abs(value - question.answer) <= question.tolerance + 1e-9) right();
      else wrong(value, compared(value, question.answer));
    };
    const form = make("form", { class: "number-form", onsubmit: send }, field, check, near);
    return {
      element: form,
      settle: () => {
        field.value = written(question.answer, question.digits);
        field.readOnly = true;
        check.remove();
        near.remove();
      },
    };
  }

  return card;
}

const nearEnough = (question) => Number(question.tolerance.toFixed(question.tolerance < 0.1 ? 2 : 1)) || question.tolerance;

/** Friendly words about a number that is not the answer. */
function compared(value, answer) {
  if (answer && Math.abs(value + answer) < 0.05 * Math.abs(answer)) return say("The number is right, but look at the sign.");
  return value < answer ? say("Not yet: it is larger. Try again.") : say("Not yet: it is smaller. Try again.");
}
