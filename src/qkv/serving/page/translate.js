// Translation: the best few translations, and the alignment of each with the source.

import { make } from "../viewer/dom.js";
import { say } from "../viewer/language.js";
import { showAlignment } from "../viewer/viewer.js";
import { post } from "./api.js";
import { attentionLink, lookRequest } from "./look.js";
import { languageName, signed } from "./names.js";

const MORE = 3; // translations beside the best

export const TRANSLATE = {
  id: "translate",
  ability: "translate",
  name: "Translate",
  lead: "The model reads your text and writes its translation token by token.",
  action: "Translate",
  busy: "Translating…",
  fields: (model) => [{ name: "text", label: model.languages ? languageName(model.languages[0]) : say("Text"), lang: model.languages?.[0] }],
  beside(panel) {
    const target = panel.model.languages?.[1];
    panel.output = make("output", { id: "translate-output", class: "sheet", "aria-labelledby": "translate-target", for: "translate-text", dir: "auto", lang: target });
    return make("div", { class: "field" }, make("span", { class: "label", id: "translate-target" }, target ? languageName(target) : say("Translation")), panel.output);
  },
  build(panel) {
    panel.links = make("div", { class: "links" });
    panel.choices = make("ol", { class: "choices" });
    const all = attentionLink(panel, "See all layers and heads", () => ({ text: panel.first.value.trim(), target: panel.output.value }));
    panel.card = make("section", { class: "card", id: "alignment", "aria-label": say("Word by word") }, panel.links, all);
    const hint = make("p", { class: "hint" }, say("The best translations that beam search found. A score is a log-probability: the nearer to 0, the more probable."));
    panel.best = make("fieldset", { class: "card", id: "best" }, make("legend", {}, say("Other translations")), hint, panel.choices);
    return [panel.card, panel.best];
  },
  async run(panel, { text }, signal) {
    const [source, target] = panel.model.languages ?? ["auto", null];
    const found = await post("translate", { q: text, source, target, alternatives: MORE, model: panel.model.id }, signal);
    const all = [found.translatedText, ...found.alternatives].map((one, rank) => ({ text: one, score: found.scores[rank] }));
    let looking = new AbortController();
    const choose = (one) => {
      looking.abort();
      looking = new AbortController();
      panel.output.value = one.text;
      return align(panel, text, one.text, AbortSignal.any([signal, looking.signal]));
    };
    offer(panel, all, choose);
    panel.show();
    await choose(all[0]);
  },
};

/** List the translations; the chosen one is shown in full, with its alignment. */
function offer(panel, all, choose) {
  const rows = all.map((one, rank) => {
    const radio = make("input", { type: "radio", name: "translation", checked: rank ? null : "" });
    radio.addEventListener("change", () => choose(one));
    const score = make("span", { class: "score" }, signed(one.score));
    return make("li", {}, make("label", {}, radio, make("span", { dir: "auto", lang: panel.model.languages?.[1] }, one.text), score));
  });
  panel.choices.replaceChildren(...rows);
  panel.best.hidden = all.length < 2;
}

/** Show the alignment of words; an error appears in its place, and the translation stays. */
async function align(panel, text, target, signal) {
  panel.card.hidden = !panel.model.can.includes("look");
  if (panel.card.hidden) return;
  try {
    const attention = await post("look", lookRequest(panel.model, { text, target }), signal);
    if (attention.alignment) showAlignment(panel.links, attention);
    else panel.links.replaceChildren(say("This model has no attention between the two texts that could be shown."));
  } catch (error) {
    if (error.name === "AbortError") return;
    panel.links.replaceChildren(error.message);
  }
}
