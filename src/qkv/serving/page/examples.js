// Examples to click: the model's own, which the server lists.

import { button, make } from "../viewer/dom.js";
import { say } from "../viewer/language.js";

const SHOWN = 3;

/** The values of one example of a model: a text, a pair of texts, or a list of words. */
function exampleValues(example, takes) {
  if (!Array.isArray(example)) return { text: example };
  return takes === "words" ? { text: example.join(" ") } : { text: example[0], second: example[1] ?? "" };
}

/** The values of a panel's examples: those that its view makes, else the model's. */
export function examplesOf(model, view) {
  const own = (model.examples ?? []).map((example) => exampleValues(example, model.takes));
  return (view.examples?.(own) ?? own).slice(0, SHOWN);
}

export function exampleRow(panel) {
  const all = examplesOf(panel.model, panel.view);
  if (!all.length) return null;
  const choose = (values) => {
    const others = Object.fromEntries(panel.fields.filter((field) => field.kind === "choice").map(({ name }) => [name, panel.values()[name]]));
    panel.fill({ ...others, ...(panel.view.complete?.(values, []) ?? values) });
    panel.onChange(panel.values(), true);
    panel.runNow();
  };
  const buttons = all.map((values) => {
    const said = Object.values(values).filter(Boolean).join(" · ");
    return button({ class: "example", dir: "auto", title: said, onclick: () => choose(values) }, said);
  });
  return make("div", { class: "examples", role: "group", "aria-label": say("Examples") }, make("span", { class: "hint", "aria-hidden": "true" }, say("Examples")), ...buttons);
}
