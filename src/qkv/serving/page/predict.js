// A fine-tuned model's prediction: a label, tags, an answer or a number.

import { post } from "./api.js";
import { bar, make, percent } from "./dom.js";
import { offerLook } from "./look.js";

const NONE = "O"; // the tag of words outside any entity

// Labels of the two fields, by the model's input.
const FIELDS = {
  text: ["Text", null],
  pair: ["First text", "Second text"],
  words: ["Words", null],
  question: ["Question", "Passage that contains the answer"],
};

export function predictPanel(panel) {
  const second = panel.form.elements.second;
  const nameFields = () => {
    const [one, two] = FIELDS[panel.model.takes];
    panel.form.querySelector("label[for=predict-text]").textContent = one;
    panel.form.querySelector("label[for=predict-second]").textContent = two;
    second.parentElement.hidden = second.disabled = two === null;
  };
  panel.select.addEventListener("change", nameFields);
  nameFields();
  panel.onSubmit((signal) => predict(panel, panel.text("text"), second.disabled ? "" : panel.text("second"), signal));
}

async function predict(panel, text, second, signal) {
  const model = panel.model;
  const { predictions } = await post("predict", { model: model.id, texts: [second ? [text, second] : text] }, signal);
  panel.result.hidden = false;
  panel.section.querySelector(".prediction").replaceChildren(...shown(predictions[0], text));
  offerLook(panel, model, text, second);
}

function shown(prediction, text) {
  if ("label" in prediction) return labelled(prediction);
  if ("tags" in prediction) return tagged(prediction.tags, text.split(/\s+/));
  if ("value" in prediction) return [make("p", { className: "hint" }, "The predicted value"), make("p", { className: "verdict" }, prediction.value ?? "none")];
  return [make("p", { className: "hint" }, "The answer, a span of the passage"), make("p", { className: "verdict", dir: "auto" }, prediction.text || "No answer found.")];
}

function labelled({ label, probability }) {
  const line = make("p", { className: "sure" }, bar(probability), make("span", { className: "score" }, percent(probability)));
  return [make("p", { className: "hint" }, "The most probable label, and its probability"), make("p", { className: "verdict", dir: "auto" }, label), line];
}

function tagged(tags, words) {
  const marked = words.map((word, index) => {
    const tag = tags[index] ?? NONE;
    return tag === NONE ? make("span", {}, word) : make("mark", { className: "tagged" }, word, make("small", {}, tag));
  });
  const line = make("p", { className: "tags", dir: "auto" }, ...marked.flatMap((word) => [word, " "]));
  const some = tags.some((tag) => tag !== NONE);
  const about = some ? "The model tags the marked words" : "The model tags none of these words";
  return [make("p", { className: "hint" }, about), line];
}
