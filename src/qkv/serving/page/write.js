// Continuing a text, streamed.

import { events } from "./api.js";
import { offerLook } from "./look.js";

export function writePanel(panel) {
  const [given, made, stop] = [".given", ".made", ".stop"].map((name) => panel.section.querySelector(name));
  stop.addEventListener("click", () => {
    panel.stop();
    panel.button.focus();
  });
  panel.onSubmit(async (signal) => {
    // A trailing space would be a token of its own, which models rarely see before a word.
    const text = panel.form.elements.text.value.trimEnd();
    const model = panel.model;
    const [tokens, temperature] = ["tokens", "temperature"].map((name) => Number(panel.form.elements[name].value));
    panel.result.hidden = false;
    given.textContent = text;
    made.textContent = "";
    try {
      return await write({ model: model.id, prompt: text, max_tokens: tokens, temperature, stream: true }, made, signal);
    } finally {
      offerLook(panel, model, text, made.textContent);
    }
  });
}

/** Send the request and append each piece of text; return how it ended. */
async function write(request, place, signal) {
  let reason = null;
  for await (const event of events("v1/completions", request, signal)) {
    for (const choice of event.choices) {
      place.append(choice.text);
      reason = choice.finish_reason ?? reason;
    }
  }
  return reason === "stop" ? "The model ended the text here." : `Ended after ${request.max_tokens} tokens, the limit.`;
}
