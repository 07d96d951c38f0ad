// Questions of a view to whoever can compute: the service, or the answers that an offline page holds.

import { make } from "./dom.js";
import { say } from "./language.js";

/**
 * A line that tells how a question goes, and a function that asks: `ask(question)` returns a promise of a new view, which `answered`
 * gets. Only the answer to the last question counts.
 */
export function asking(ask, answered) {
  const line = make("p", { class: "lab-asking", role: "status" });
  let last = 0;
  const put = async (question) => {
    const number = (last += 1);
    const waiting = setTimeout(() => line.replaceChildren(say("Computing …")), 300);
    try {
      const found = await ask(question);
      if (number === last && found) answered(found);
      if (number === last) line.replaceChildren();
    } catch (error) {
      if (number === last) line.replaceChildren(make("span", { class: "lab-error" }, error.message));
    } finally {
      clearTimeout(waiting);
    }
  };
  return { line, put };
}

/** A chooser with a name: options are [value, text]. */
export function select(label, options, chosen, choose) {
  const all = options.map(([value, text]) => make("option", { value, selected: String(value) === String(chosen) ? "" : null }, text));
  const one = make("select", { "data-key": label, onchange: () => choose(one.value) }, ...all);
  return make("label", { class: "lab-choice" }, make("span", {}, label), one);
}
