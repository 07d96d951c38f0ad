// Names of the parts of a model and of head patterns.

import { say } from "./language.js";
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
  punctuation: "Punctuation",
  induction: "Induction",
  everywhere: "Everywhere",
};

const TRANSLATOR = {
  encoder: "Reading the source",
  decoder: "Looking back at its own words",
  cross: "From translation to source",
};

export function partName(attention, part) {
  if (part === "rollout") return say("Through all layers");
  if (attention.kind === "generator") return say("Looking back");
  if (attention.kind === "encoder") return say("Within the text");
  return say(TRANSLATOR[part]);
}

export const patternName = (pattern) => (Object.hasOwn(PATTERNS, pattern) ? say(PATTERNS[pattern]) : capital(say(pattern)));
