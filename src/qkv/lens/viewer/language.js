// The reader's language: texts are written in English where they are used, and `say` returns them in the reader's language.

import { CHINESE } from "./chinese.js";

const TABLES = { zh: CHINESE };

/** The language: that of `data-language` on <html> if it is set, else the first of the browser's that we have, else English. */
export function language() {
  const set = document.documentElement.dataset.language;
  const wanted = set ? [set] : navigator.languages || [navigator.language];
  const known = wanted.map((one) => one.slice(0, 2).toLowerCase()).find((one) => one === "en" || one in TABLES);
  return known || "en";
}

function inLanguage(text) {
  const table = TABLES[language()];
  return table && Object.hasOwn(table, text) ? table[text] : text;
}

/** Return a text in the reader's language; {name} in it becomes values.name. */
export function say(text, values = {}) {
  return inLanguage(text).replace(/\{(\w+)\}/g, (whole, name) => (Object.hasOwn(values, name) ? values[name] : whole));
}

/** Return a text in the reader's language as a list of texts and elements; {name} in it becomes the element values.name. */
export function sayWith(text, values) {
  const parts = inLanguage(text).split(/\{(\w+)\}/);
  return parts.map((part, n) => (n % 2 ? values[part] ?? `{${part}}` : part)).filter((part) => part !== "");
}
