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

/** Return a text in the reader's language; {name} in it becomes values.name. */
export function say(text, values = {}) {
  const table = TABLES[language()];
  const found = (table && table[text]) || text;
  return found.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? values[name] : whole));
}
