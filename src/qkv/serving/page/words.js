// Words and their nearest neighbours, as lists and as a map.

import { post } from "./api.js";
import { bar, make } from "./dom.js";
import { showMap } from "./map.js";

const [MOST, TOP] = [6, 8]; // words at once, neighbours of each

export function wordsPanel(panel) {
  const [lists, map] = [".neighbours", ".map"].map((name) => panel.section.querySelector(name));
  const goTo = (word) => {
    panel.form.elements.text.value = word;
    panel.form.requestSubmit();
    panel.form.elements.text.focus();
  };
  panel.onSubmit(async (signal) => {
    const words = [...new Set(panel.text("text").split(/[\s,;]+/).filter(Boolean))].slice(0, MOST);
    const model = panel.model.id;
    const groups = await Promise.all(words.map((word) => neighboursOf(word, model, signal)));
    const all = [...new Set(groups.flatMap((group) => [group.word, ...group.found.map((one) => one.word)]))];
    const { points } = await post("map", { model, words: all }, signal);
    panel.result.hidden = false;
    const light = showMap(map, points, groups);
    lists.replaceChildren(...groups.map((group, number) => column(group, number, goTo, light)));
    return "Shown below.";
  });
}

/** Return a word's neighbours; for an unknown word return the reason, so that the others are still shown. */
async function neighboursOf(word, model, signal) {
  try {
    const { neighbours } = await post("neighbours", { model, word, top: TOP }, signal);
    return { word, found: neighbours, reason: null };
  } catch (error) {
    if (error.status !== 400 && error.status !== 404) throw error;
    return { word, found: [], reason: error.message };
  }
}

function column({ word, found, reason }, number, goTo, light) {
  const items = found.map((one) => {
    const button = make("button", { type: "button", className: "guess", title: `Go to ${one.word}` });
    button.append(make("span", { className: "word", dir: "auto" }, one.word), bar(one.similarity), make("span", { className: "score" }, one.similarity.toFixed(2)));
    button.addEventListener("click", () => goTo(one.word));
    for (const event of ["pointerenter", "focus"]) button.addEventListener(event, () => light(one.word));
    for (const event of ["pointerleave", "blur"]) button.addEventListener(event, () => light(null));
    return make("li", {}, button);
  });
  const body = reason ? make("p", { className: "hint" }, reason) : make("ol", { className: "guesses" }, ...items);
  return make("section", { className: `card group-${number}` }, make("h2", { dir: "auto" }, word), body);
}
