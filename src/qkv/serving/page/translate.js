// Translation: the best few translations, and the alignment of each with the source.

import { showAlignment } from "../viewer/viewer.js";
import { post } from "./api.js";
import { make } from "./dom.js";
import { offerLook } from "./look.js";

const MORE = 3; // translations beside the best

export function translatePanel(panel) {
  const output = panel.section.querySelector("output");
  const labels = [panel.form.querySelector("label[for=translate-text]"), document.getElementById("translate-target")];
  const sheets = [panel.form.elements.text, output];

  function nameLanguages() {
    const codes = panel.model.languages ?? ["", ""];
    labels.forEach((label, side) => (label.textContent = codes[side] ? languageName(codes[side]) : ["Text", "Translation"][side]));
    sheets.forEach((sheet, side) => (sheet.lang = codes[side]));
  }
  panel.select.addEventListener("change", nameLanguages);
  nameLanguages();

  panel.onSubmit(async (signal) => {
    const text = panel.text("text");
    const [source, target] = panel.model.languages ?? ["auto", null];
    const found = await post("translate", { q: text, source, target, alternatives: MORE, model: panel.model.id }, signal);
    const all = [found.translatedText, ...found.alternatives].map((one, rank) => ({ text: one, score: found.scores[rank] }));
    panel.result.hidden = false;
    let looking = new AbortController();
    const choose = (one) => {
      looking.abort();
      looking = new AbortController();
      output.value = one.text;
      return align(panel, text, one.text, AbortSignal.any([signal, looking.signal]));
    };
    offer(panel, all, choose);
    panel.say("Aligning words…");
    await choose(all[0]);
  });
}

function languageName(code) {
  try {
    const name = new Intl.DisplayNames(["en"], { type: "language" }).of(code);
    return name.charAt(0).toUpperCase() + name.slice(1);
  } catch {
    return code;
  }
}

/** List the translations; the chosen one is shown in full, with its alignment. */
function offer(panel, all, choose) {
  const list = panel.section.querySelector(".choices");
  const rows = all.map((one, rank) => {
    const radio = make("input", { type: "radio", name: "translation", checked: rank === 0 });
    radio.addEventListener("change", () => choose(one));
    const score = make("span", { className: "score" }, one.score.toFixed(2).replace("-", "−"));
    return make("li", {}, make("label", {}, radio, make("span", { dir: "auto", lang: panel.model.languages?.[1] ?? "" }, one.text), score));
  });
  list.replaceChildren(...rows);
  panel.section.querySelector("#best").hidden = all.length < 2;
}

/** Show the alignment of words; an error appears in its place, and the translation stays. */
async function align(panel, text, target, signal) {
  const card = panel.section.querySelector("#alignment");
  card.hidden = !panel.model.can.includes("look");
  if (card.hidden) return;
  const place = card.querySelector(".links");
  offerLook(panel, panel.model, text, target);
  try {
    const attention = await post("look", { model: panel.model.id, text, target }, signal);
    if (attention.alignment) showAlignment(place, attention);
    else place.replaceChildren("This model has no attention between the two texts that could be shown.");
  } catch (error) {
    if (error.name === "AbortError") return;
    place.replaceChildren(error.message);
  }
}
