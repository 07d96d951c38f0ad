// Looking inside: the weights of attention, drawn by the viewer.

import { post } from "./ask.js";

const SECOND = {
  translator: "Translation (empty: the model's own)",
  encoder: "Second text (may stay empty)",
  generator: "How it goes on (may stay empty)",
};

const EXAMPLE = '{"text": "good dogs", "heads": [2, 0]}'; // for models that read trees

/** The text and the heads of a JSON object; what is none goes as it is, and the server says what is wanted. */
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
  panel.onAsk(async (signal) => {
    const read = (name) => (panel.model.trees ? withHeads(panel.text(name)) : { text: panel.text(name) });
    const ask = { model: panel.model.id, ...read("text") };
    const { text: target, heads } = read("target");
    const more = target ? (heads ? { target, target_heads: heads } : { target }) : {};
    const looked = await post("look", { ...ask, ...more }, signal);
    panel.result.hidden = false;
    window.QkvViewer.show(panel.result.firstElementChild, looked);
    return "Shown below.";
  });
  document.addEventListener("look-at", ({ detail }) => {
    panel.choose(detail.model);
    panel.form.elements.text.value = detail.text;
    panel.form.elements.target.value = detail.target;
    panel.form.requestSubmit();
  });
}

/** Let the link of another panel open ours with a text of its own, where the model can be looked into. */
export function offerLook(panel, model, text, target = "") {
  const link = panel.section.querySelector(".to-look");
  link.hidden = !model.can.includes("look");
  link.onclick = () => document.dispatchEvent(new CustomEvent("look-at", { detail: { model: model.id, text, target } }));
}
