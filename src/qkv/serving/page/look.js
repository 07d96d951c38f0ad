// Attention: all layers and heads, drawn by the viewer.

import { make } from "../viewer/dom.js";
import { say } from "../viewer/language.js";
import { post } from "./api.js";
import { showView } from "./shown.js";

const SECOND = {
  translator: "Translation (optional; else the model's own)",
  encoder: "Second text (optional)",
  generator: "Continuation (optional)",
};
const TREE = '{"text": "good dogs", "heads": [2, 0]}'; // for models that read trees

export const ATTENTION = {
  id: "attention",
  ability: "look",
  name: "Attention",
  lead: "How much each token takes from every other token, in each head of each layer.",
  action: "Show",
  busy: "Computing attention…",
  fields: (model) => [
    { name: "text", label: model.trees ? say("Text, such as {example}", { example: TREE }) : say("Text"), lang: model.languages?.[0] },
    { name: "target", label: say(SECOND[model.kind] ?? "Second text (optional)"), lang: model.languages?.[1], optional: true },
  ],
  build: () => [make("div", { class: "card view" })],
  async run(panel, values, signal) {
    const attention = await post("look", lookRequest(panel.model, values), signal);
    panel.show();
    showView(panel, attention);
  },
};

/** The body of a request for a text, perhaps with a second one. */
export function lookRequest(model, values) {
  const read = (given) => (model.trees ? withHeads(given) : { text: given });
  const { text: target, heads } = read(values.target ?? "");
  const more = target ? (heads ? { target, target_heads: heads } : { target }) : {};
  return { model: model.id, ...read(values.text), ...more };
}

/** Read text and heads from a JSON object; anything else is sent unchanged, and the server explains the format. */
function withHeads(given) {
  try {
    const { text, heads } = JSON.parse(given);
    return heads === undefined ? { text: given } : { text, heads };
  } catch {
    return { text: given };
  }
}

/** A link to a model's attention on a text; nothing if the model has none to show. */
export function attentionLink(panel, words, values) {
  if (!panel.model.can.includes("look")) return null;
  const link = make("a", { class: "to-look", href: "#" }, say(words));
  link.addEventListener("click", (event) => {
    event.preventDefault();
    panel.go("attention", values());
  });
  return make("p", {}, link);
}
