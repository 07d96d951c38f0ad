// What a model is for, what it was trained on and how good it is.

import { make } from "../viewer/dom.js";
import { language, say } from "../viewer/language.js";
import { languageName, rounded, score } from "./names.js";

const ROLES = { generator: "continues texts", encoder: "reads texts", infiller: "fills in and continues texts", vectors: "word vectors" };

/** What a model is for, in a few words. */
export function roleOf(model) {
  if (model.languages) return model.languages.map(languageName).join(" → ");
  if (model.can.includes("predict")) return say("predicts");
  if (model.can.includes("fill") && model.kind === "encoder") return say("fills in blanks");
  return say(ROLES[model.kind] ?? "translates");
}

/** A line with what the model's run has recorded: what it read, for how long, its scores, and last its size. */
export function describe(model) {
  const { architecture, trained_on: read, training_time: time, steps, scores = {}, scored_on: where } = model.description ?? {};
  const trained = read ? say("trained on {texts}", { texts: amount(read) }) : time ? say("trained for {time}", { time: amount(time) }) : null;
  const found = Object.entries(scores).map(([name, value]) => `${say(name)} ${score(value)}`);
  const facts = [
    architecture && make("b", {}, architecture),
    trained && (steps ? say("{trained} in {steps} steps", { trained, steps }) : trained),
    found.length ? make("b", {}, found.join(", ")) : null,
    found.length && where ? say("measured on {texts}", { texts: amount(where) }) : null,
    model.parameters ? say("{count} parameters", { count: rounded(model.parameters) }) : null,
  ].filter(Boolean);
  return make("p", { class: "facts" }, ...facts.flatMap((fact, number) => (number ? [" · ", fact] : [fact])));
}

/** Amounts are recorded in English, such as "28,995 pairs" and "7 min"; other languages have their own words for units. */
function amount(text) {
  if (language() === "en") return text;
  return text.replace(/([\d.,]+) (pairs|texts|tokens|words|documents|lines|sentences|characters|min|h|s)\b/g, (_, count, unit) => say(`{count} ${unit}`, { count }))
    .replace(/\b(test|held-out text)\b/g, (word) => say(word)).replace(", ", "，");
}
