// Formulas such as "a_j = exp(s_j) / Σ exp(s_j)" as HTML: variables, indices and fractions.

import { make } from "./dom.js";

const FRACTION = /^(.*(?:= |\+ ))(.+?) \/ (.+)$/;
const PIECES = /([A-Za-zΣ]+)(?:_(\w+))?|[^A-Za-zΣ]+/g;

/** The pieces of a formula without a fraction: variables of one letter, words, indices, and all between them. */
export function formulaPieces(text) {
  return [...text.matchAll(PIECES)].map(([whole, name, index]) => {
    if (!name) return { kind: "text", text: whole };
    return { kind: name.length === 1 && name !== "Σ" ? "variable" : "text", text: name, index: index || null };
  });
}

function elements(text) {
  return formulaPieces(text).flatMap(({ kind, text: piece, index }) => [
    kind === "variable" ? make("i", {}, piece) : piece,
    ...(index ? [make("sub", {}, index.length === 1 ? make("i", {}, index) : index)] : []),
  ]);
}

/** A formula as an element; those who hear it get its text. */
export function formula(text) {
  const [, before, top, bottom] = text.match(FRACTION) || [];
  const line = make("span", { class: "lab-fraction-line" });
  const fraction = () => make("span", { class: "lab-fraction" }, make("span", {}, ...elements(top)), line, make("span", {}, ...elements(bottom)));
  const inside = top ? [...elements(before), fraction()] : elements(text);
  return make("p", { class: "lab-formula", role: "math", "aria-label": text }, ...inside);
}
