// What a fine-tuned model says of a text: a label, tags, an answer or a number.

import { post } from "./ask.js";
import { bar, make, percent } from "./dom.js";
import { offerLook } from "./look.js";

const NONE = "O"; // the tag of words that are nothing in particular

// What the two fields are for, by what a model reads.
const FIELDS = {
  text: ["Text", null],
  pair: ["First text", "Second text"],
  words: ["Words", null],
  question: ["Question", "Passage that has the answer"],
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
  panel.onAsk((signal) => predict(panel, panel.text("text"), second.disabled ? "" : panel.text("second"), signal));
}

async function predict(panel, text, second, signal) {
  const model = panel.model;
  const { predictions } = await post("predict", { model: model.id, texts: [second ? [text, second] : text] }, signal);
  panel.result.hidden = false;
  panel.section.querySelector(".said").replaceChildren(...shown(predictions[0], text));
  offerLook(panel, model, text, second);
}

function shown(said, text) {
  if ("label" in said) return labelled(said);
  if ("tags" in said) return tagged(said.tags, text.split(/\s+/));
  if ("value" in said) return [make("p", { className: "hint" }, "The model's number"), make("p", { className: "verdict" }, said.value ?? "none")];
  return [make("p", { className: "hint" }, "The answer, taken from the passage"), make("p", { className: "verdict", dir: "auto" }, said.text || "No answer found.")];
}

function labelled({ label, probability }) {
  const line = make("p", { className: "sure" }, bar(probability), make("span", { className: "score" }, percent(probability)));
  return [make("p", { className: "hint" }, "The likeliest label, and how sure the model is"), make("p", { className: "verdict", dir: "auto" }, label), line];
}

function tagged(tags, words) {
  const marked = words.map((word, place) => {
    const tag = tags[place] ?? NONE;
    return tag === NONE ? make("span", {}, word) : make("mark", { className: "tagged" }, word, make("small", {}, tag));
  });
  const line = make("p", { className: "tags", dir: "auto" }, ...marked.flatMap((word) => [word, " "]));
  const some = tags.some((tag) => tag !== NONE);
  const about = some ? "Marked are the words that the model has a name for" : "The model has a name for none of these words";
  return [make("p", { className: "hint" }, about), line];
}
