// Attention weights, drawn by the viewer.

import { show } from "../viewer/viewer.js";
import { post } from "./api.js";

const SECOND = {
  translator: "Translation (optional; by default the model's own)",
  encoder: "Second text (optional)",
  generator: "Continuation (optional)",
};

const EXAMPLE = '{"text": "good dogs", "heads": [2, 0]}'; // for models that read trees

/** Read text and heads from a JSON object; anything else is sent unchanged, and the server explains the format. */
function withHeads(given) {
  try {
    const { text, heads } = JSON.parse(given);
    return heads === undefined ? { text: given } : { text, heads };
  } catch {
    return { text: given };
  }
}

export function lookPanel(panel) {
  const [first, second] = ["text", "target"].map((name) => panel.form.querySelector(`label[for=look-${name}]`));
  const name = () => {
    first.textContent = panel.model.trees ? `Text, such as ${EXAMPLE}` : "Text";
    second.textContent = SECOND[panel.model.kind];
  };
  panel.select.addEventListener("change", name);
  name();
  panel.onSubmit(async (signal) => {
    const read = (name) => (panel.model.trees ? withHeads(panel.text(name)) : { text: panel.text(name) });
    const request = { model: panel.model.id, ...read("text") };
    const { text: target, heads } = read("target");
    const more = target ? (heads ? { target, target_heads: heads } : { target }) : {};
    const attention = await post("look", { ...request, ...more }, signal);
    panel.result.hidden = false;
    show(panel.result.firstElementChild, attention);
    return "Shown below.";
  });
  document.addEventListener("look-at", ({ detail }) => {
    panel.choose(detail.model);
    panel.form.elements.text.value = detail.text;
    panel.form.elements.target.value = detail.target;
    panel.form.requestSubmit();
  });
}

/** Let a link in another panel open this one with its text, if the model's attention can be shown. */
export function offerLook(panel, model, text, target = "") {
  const link = panel.section.querySelector(".to-look");
  link.hidden = !model.can.includes("look");
  link.onclick = () => document.dispatchEvent(new CustomEvent("look-at", { detail: { model: model.id, text, target } }));
}
