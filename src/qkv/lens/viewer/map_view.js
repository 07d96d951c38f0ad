// Words in a plane by PCA or t-SNE: a search that finds a word, and the neighbours of a chosen one.

import { about, button, choice, make } from "./dom.js";
import { figure } from "./figure.js";
import { say } from "./language.js";
import { search } from "./plane.js";
import { WordMap } from "./word_map.js";

const NAMES = { pca: "PCA", tsne: "t-SNE" };

export function showMap(element, view, { state = {}, onState = () => {} } = {}) {
  const methods = Object.fromEntries(Object.keys(NAMES).filter((name) => view.points[name]).map((name) => [name, NAMES[name]]));
  const chosen = { method: state.method in methods ? state.method : Object.keys(methods).at(-1), word: state.word ?? null };
  const near = make("div", { class: "near-words", "aria-live": "polite" });
  const map = new WordMap({ words: view.words, neighbours: view.neighbours, groups: view.groups, choose: (n) => select(n, false) });
  const found = make("div", { class: "found-words", role: "group", "aria-label": say("Words found") });
  const field = make("input", { type: "search", class: "word-search", "aria-label": say("Search a word"), placeholder: say("Search a word"), spellcheck: "false" });

  function select(number, centre) {
    chosen.word = number === null ? null : view.words[number];
    map.mark(number, centre);
    near.replaceChildren(...nearest(view, number, (other) => select(other, true)));
    onState({ ...chosen });
  }

  function find() {
    const numbers = search(view.words, field.value, 8);
    found.replaceChildren(...numbers.map((n) => button({ class: "chip", onclick: () => select(n, true) }, view.words[n])));
    if (field.value.trim() && !numbers.length) found.replaceChildren(say("No word of this map has these letters."));
    return numbers;
  }

  function switchTo(method) {
    chosen.method = method;
    methodChoice.replaceChildren(choice(say("Projection"), methods, method, switchTo));
    map.show(view.points[method]);
    if (chosen.word !== null) map.mark(view.words.indexOf(chosen.word), true);
    onState({ ...chosen });
  }

  field.addEventListener("input", find);
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    const [first] = find();
    if (first !== undefined) select(first, true);
  });
  const methodChoice = make("span", {}, choice(say("Projection"), methods, chosen.method, switchTo));
  const zoom = (name, text, act) => button({ class: "plain", "aria-label": say(name), title: say(name), onclick: act }, text);
  const tools = [
    field,
    Object.keys(methods).length > 1 ? methodChoice : null,
    zoom("Zoom in", "+", () => map.zoom(1.4)),
    zoom("Zoom out", "−", () => map.zoom(1 / 1.4)),
    button({ class: "plain", onclick: () => map.showAll() }, say("Show all")),
  ].filter(Boolean);
  const hint = say("Words in similar contexts have similar vectors. A plane shows only part of their distances: neighbours, with their cosines, are those of all dimensions.");
  const title = say("A map of {count} words", { count: view.words.length.toLocaleString() });
  element.classList.add("qkv-viewer");
  element.replaceChildren(about(hint), figure({ title, controls: tools, picture: map.canvas, legend: make("div", {}, found, near), name: "words" }));
  map.show(view.points[chosen.method]);
  const number = view.words.indexOf(chosen.word);
  if (number >= 0) select(number, true);
}

/** The neighbours of a word, as buttons that choose them. */
function nearest(view, number, select) {
  if (number === null) return [];
  const count = view.counts ? say(" (occurs {count} times)", { count: view.counts[number].toLocaleString() }) : "";
  const line = view.neighbours[number].map(([n, cosine]) =>
    button({ class: "chip", onclick: () => select(n) }, view.words[n], make("span", { class: "cosine" }, cosine.toFixed(2))),
  );
  return [make("p", {}, say("Nearest to “{word}”", { word: view.words[number] }) + count), make("div", { class: "line" }, ...line)];
}
