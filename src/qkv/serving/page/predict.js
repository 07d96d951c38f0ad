// A fine-tuned model's prediction: a label, tags, an answer or a number.

import { make } from "../viewer/dom.js";
import { say } from "../viewer/language.js";
import { post } from "./api.js";
import { bar } from "./bars.js";
import { attentionLink } from "./look.js";
import { percent } from "./names.js";

const NONE = "O"; // the tag of words outside any entity

/** Labels of the fields, by the model's input. */
const FIELDS = {
  text: ["Text"],
  pair: ["First text", "Second text"],
  words: ["Words"],
  question: ["Question", "Passage that contains the answer"],
};

export const PREDICT = {
  id: "predict",
  ability: "predict",
  name: "Predict",
  lead: "This model was fine-tuned on labelled examples: it predicts a label, tags, a number or an answer for your text.",
  action: "Predict",
  busy: "Predicting…",
  fields: (model) => FIELDS[model.takes].map((label, number) => ({ name: ["text", "second"][number], label: say(label) })),
  build(panel) {
    panel.prediction = make("div", { class: "card prediction", "aria-live": "polite" });
    const values = () => ({ text: panel.values().text, target: panel.values().second ?? "" });
    return [panel.prediction, attentionLink(panel, "See its attention", values)].filter(Boolean);
  },
  async run(panel, { text, second }, signal) {
    const { predictions } = await post("predict", { model: panel.model.id, texts: [second ? [text, second] : text] }, signal);
    panel.show();
    panel.prediction.replaceChildren(...shown(predictions[0], text));
  },
};

const hint = (text) => make("p", { class: "hint" }, say(text));

function shown(prediction, text) {
  if ("label" in prediction) return labelled(prediction);
  if ("tags" in prediction) return tagged(prediction.tags, text.split(/\s+/));
  if ("value" in prediction) return [hint("The predicted value"), make("p", { class: "verdict" }, String(prediction.value ?? say("none")))];
  return [hint("The answer, a span of the passage"), make("p", { class: "verdict", dir: "auto" }, prediction.text || say("No answer found."))];
}

function labelled({ label, probability }) {
  const line = make("p", { class: "sure" }, bar(probability), make("span", { class: "score" }, percent(probability)));
  return [hint("The most probable label, and its probability"), make("p", { class: "verdict", dir: "auto" }, label), line];
}

function tagged(tags, words) {
  const marked = words.map((word, index) => {
    const tag = tags[index] ?? NONE;
    return tag === NONE ? make("span", {}, word) : make("mark", { class: "tagged" }, word, make("small", {}, tag));
  });
  const line = make("p", { class: "tags", dir: "auto" }, ...marked.flatMap((word) => [word, " "]));
  const some = tags.some((tag) => tag !== NONE);
  return [hint(some ? "The model tags the marked words" : "The model tags none of these words"), line];
}
