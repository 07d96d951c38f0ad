// Words and their nearest neighbours, as lists and as a map.

import { button, make } from "../viewer/dom.js";
import { say } from "../viewer/language.js";
import { post } from "./api.js";
import { bar } from "./bars.js";
import { showMap } from "./map.js";
import { signed } from "./names.js";

const [MOST, TOP] = [6, 8]; // words at once, neighbours of each

export const WORDS = {
  id: "words",
  ability: "neighbours",
  name: "Neighbours",
  lead: "Each word has a vector, learned from the contexts of the word. Words in similar contexts have similar vectors.",
  action: "Compare",
  busy: "Comparing…",
  fields: () => [{ name: "text", kind: "line", label: say("Up to six words, with spaces between them") }],
  examples: (own) => (own.length > 1 ? [{ text: own.map(({ text }) => text).join(" ") }, ...own] : own),
  build(panel) {
    panel.map = make("div", { class: "map" });
    panel.lists = make("div", { class: "neighbours" });
    const about = say("Your words and their nearest neighbours, projected to two dimensions. Words near each other are used alike, but the projection loses much.");
    return [
      make("section", { class: "card", "aria-label": say("Map") }, make("p", { class: "hint" }, about), panel.map),
      make("p", { class: "hint" }, say("The nearest neighbours of each word, with their cosine similarity. Choose one to see its own neighbours.")),
      panel.lists,
    ];
  },
  async run(panel, { text }, signal) {
    const words = wordsIn(text);
    const model = panel.model.id;
    const groups = [];
    for (const word of words) groups.push(await neighboursOf(word, model, signal)); // one after the other, as every request
    const all = [...new Set(groups.flatMap((group) => [group.word, ...group.found.map((one) => one.word)]))];
    const { points } = await post("map", { model, words: all }, signal);
    panel.show();
    const light = showMap(panel.map, points, groups);
    panel.lists.replaceChildren(...groups.map((group, number) => column(panel, group, number, light)));
  },
};

/** The words of a text, each once. */
export const wordsIn = (text) => [...new Set(text.split(/[\s,;，、；]+/).filter(Boolean))].slice(0, MOST);

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

function goTo(panel, word) {
  panel.fill({ text: word });
  panel.onChange(panel.values(), true);
  panel.runNow();
  panel.first.focus();
}

function column(panel, { word, found, reason }, number, light) {
  const most = Math.max(...found.map((one) => one.similarity), 0) || 1;
  const items = found.map((one) => {
    const score = make("span", { class: "score" }, signed(one.similarity));
    const go = button({ class: "guess", title: say("Go to {word}", { word: one.word }), onclick: () => goTo(panel, one.word) },
      make("span", { class: "word", dir: "auto" }, one.word), bar(one.similarity / most), score);
    for (const event of ["pointerenter", "focus"]) go.addEventListener(event, () => light(one.word));
    for (const event of ["pointerleave", "blur"]) go.addEventListener(event, () => light(null));
    return make("li", {}, go);
  });
  const body = reason ? make("p", { class: "hint" }, reason) : make("ol", { class: "guesses" }, ...items);
  return make("section", { class: `card group-${number}` }, make("h2", { dir: "auto" }, word), body);
}
