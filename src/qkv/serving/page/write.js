// Going on with a text, shown as it comes.

import { events } from "./ask.js";
import { offerLook } from "./look.js";

export function writePanel(panel) {
  const [given, made, stop] = [".given", ".made", ".stop"].map((name) => panel.section.querySelector(name));
  stop.addEventListener("click", () => {
    panel.stop();
    panel.button.focus();
  });
  panel.onAsk(async (signal) => {
    // Spaces at the end would be pieces of their own, after which models seldom know how to go on.
    const text = panel.form.elements.text.value.trimEnd();
    const model = panel.model;
    const [pieces, temperature] = ["pieces", "daring"].map((name) => Number(panel.form.elements[name].value));
    panel.result.hidden = false;
    given.textContent = text;
    made.textContent = "";
    try {
      return await write({ model: model.id, prompt: text, max_tokens: pieces, temperature, stream: true }, made, signal);
    } finally {
      offerLook(panel, model, text, made.textContent);
    }
  });
}

/** Ask, and put each piece where it belongs; comes back with how it ended. */
async function write(ask, place, signal) {
  let reason = null;
  for await (const event of events("v1/completions", ask, signal)) {
    for (const choice of event.choices) {
      place.append(choice.text);
      reason = choice.finish_reason ?? reason;
    }
  }
  return reason === "stop" ? "The model ended the text here." : `Ended after ${ask.max_tokens} pieces, as many as were asked for.`;
}
