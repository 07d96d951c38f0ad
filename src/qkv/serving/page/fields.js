// The fields of a form, from what a view says of them.
//
// A field has `name`, `label`, perhaps `hint`, `lang`, `optional`, `value` (its default), `missing` (what to say when it is empty),
// and a `kind`: "text" (several lines), "line" or "choice" (of `options`, [value, label]).

import { make } from "../viewer/dom.js";
import { say } from "../viewer/language.js";

const ROWS = 2; // of a field at least: it grows with its text

/** The form's elements: texts side by side, then choices in one row. */
export function fieldElements(panel) {
  const among = (test) => panel.fields.filter(test);
  const texts = among((field) => field.kind !== "choice" && !field.optional).map((field) => textField(panel, field));
  const optional = among((field) => field.optional).map((field) => make("details", { class: "more" }, make("summary", {}, field.label), textField(panel, field)));
  const choices = among((field) => field.kind === "choice").map((field) => choiceField(panel, field));
  const shown = panel.view.beside?.(panel);
  if (shown) texts.push(shown);
  const settings = choices.length ? [make("div", { class: "settings" }, ...choices)] : [];
  const across = { 2: " two", 3: " three" }[texts.length] ?? "";
  return [texts.length ? make("div", { class: `fields${across}` }, ...texts) : null, ...optional, ...settings].filter(Boolean);
}

function textField(panel, field) {
  const id = `${panel.view.id}-${field.name}`;
  const common = { id, name: field.name, dir: "auto", lang: field.lang, spellcheck: "false", "aria-describedby": field.hint ? `${id}-hint` : null };
  const input = field.kind === "line"
    ? make("input", { ...common, autocomplete: "off", autocapitalize: "off" })
    : make("textarea", { ...common, rows: String(field.rows ?? ROWS), "aria-label": field.optional ? field.label : null });
  const hint = field.hint ? make("span", { class: "hint", id: `${id}-hint` }, say(field.hint)) : null;
  return make("div", { class: "field" }, field.optional ? null : make("label", { for: id }, field.label), input, hint);
}

function choiceField(panel, field) {
  const options = field.options.map(([value, label]) => make("option", { value }, label));
  return make("label", { class: "setting" }, field.label, " ", make("select", { name: field.name, id: `${panel.view.id}-${field.name}` }, ...options));
}

export const readField = (panel, field) => panel.form.elements[field.name].value.trim();

export function writeField(panel, field, value) {
  const element = panel.form.elements[field.name];
  if (element.value !== value) element.value = value;
  if (field.optional && value) element.closest("details").open = true;
  if (element.tagName === "SELECT" && element.selectedIndex < 0) element.value = field.value;
}
