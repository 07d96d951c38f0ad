// What a model loses without a head, where `qkv heads` has measured it.

import { say } from "./language.js";

/** The drop of the score without a head; null if it is not known. */
export function dropOf(attention, name, head) {
  const drops = attention.effects && attention.effects.drops[name];
  return drops && head in drops ? drops[head] : null;
}

export const signed = (number) => `${number < 0 ? "−" : "+"}${Math.abs(number).toFixed(4)}`;

/** A sentence on what the model loses without a head. */
export function effectOf(attention, name, head) {
  const drop = dropOf(attention, name, head);
  if (drop === null) return howToMeasure();
  const { figure, score, texts } = attention.effects;
  const values = { figure: say(figure), before: score.toFixed(4), after: (score - drop).toFixed(4), change: signed(-drop), texts };
  return say("Without this head: {figure} {after} instead of {before} ({change}), measured on {texts} texts.", values);
}

export const howToMeasure = () =>
  say("Where a head looks does not say whether the model needs it. The command “qkv heads RUN DEV” measures what the model loses without each head; then it is shown here.");
