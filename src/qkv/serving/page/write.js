// Continuing a text, streamed.

import { button, make } from "../viewer/dom.js";
import { say } from "../viewer/language.js";
import { events } from "./api.js";
import { attentionLink } from "./look.js";

const LENGTHS = ["20", "60", "200", "500"]; // tokens
const TEMPERATURES = ["0", "0.7", "1", "1.3"];

export const WRITE = {
  id: "write",
  ability: "complete",
  name: "Continue",
  lead: "The model continues your text token by token; each token is drawn from the model's probabilities.",
  action: "Continue",
  busy: "Writing…",
  typing: { pause: 800, stoppable: true },
  fields: () => [
    { name: "text", label: say("Beginning of the text") },
    { name: "tokens", kind: "choice", label: say("Up to"), value: "60", options: LENGTHS.map((n) => [n, say("{count} tokens", { count: n })]) },
    { name: "temperature", kind: "choice", label: say("Sampling"), value: "0.7", options: TEMPERATURES.map((t) => [t, t === "0" ? say("always the most probable") : say("temperature {value}", { value: t })]) },
  ],
  buttons: (panel) => [
    button({ class: "again", onclick: () => panel.runNow() }, say("Once more")),
    button({ class: "stop", onclick: () => stop(panel) }, say("Stop")),
  ],
  build(panel) {
    [panel.given, panel.made] = [make("span", { class: "given" }), make("span", { class: "made" })];
    const values = () => ({ text: panel.given.textContent, target: panel.made.textContent });
    return [make("p", { class: "sheet written", dir: "auto" }, panel.given, panel.made), attentionLink(panel, "See its attention", values)].filter(Boolean);
  },
  run(panel, { text, tokens, temperature }, signal) {
    panel.show();
    panel.given.textContent = text; // without a space at its end, which would be a token of its own
    panel.made.textContent = "";
    const request = { model: panel.model.id, prompt: text, max_tokens: Number(tokens), temperature: Number(temperature), stream: true };
    return write(request, panel.made, signal);
  },
};

function stop(panel) {
  panel.runner.stop();
  panel.first.focus({ preventScroll: true });
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
  return reason === "stop" ? say("The model ended the text here.") : say("Ended after {count} tokens, the limit.", { count: request.max_tokens });
}
