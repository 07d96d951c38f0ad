// Names of the parts of a model and of head patterns.

import { capital } from "./numbers.js";

const PATTERNS = {
  previous: "The token before",
  next: "The token after",
  self: "Itself",
  first: "The first token",
  separator: "The end of the text",
  "in order": "In order",
  "same word": "The same word",
  repeated: "Repetition",
};

const TRANSLATOR = {
  encoder: "Reading the source",
  decoder: "Looking back at its own words",
  cross: "From translation to source",
};

export function partName(attention, part) {
  if (part === "rollout") return "Through all layers";
  if (attention.kind === "generator") return "Looking back";
  if (attention.kind === "encoder") return "Within the text";
  return TRANSLATOR[part];
}

export const patternName = (pattern) => PATTERNS[pattern] || capital(pattern);
