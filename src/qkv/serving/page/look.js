// Looking inside: the weights of attention, drawn by the viewer.

import { post } from "./ask.js";

const SECOND = {
  translator: "Translation (empty: the model's own)",
  encoder: "Second text (may stay empty)",
  generator: "How it goes on (may stay empty)",
};

export function lookPanel(panel) {
  const label = panel.form.querySelector("label[for=look-target]");
  const name = () => (label.textContent = SECOND[panel.model.kind]);
  panel.select.addEventListener("change", name);
  name();
  panel.onAsk(async (signal) => {
    const ask = { model: panel.model.id, text: panel.text("text") };
    const looked = await post("look", panel.text("target") ? { ...ask, target: panel.text("target") } : ask, signal);
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
