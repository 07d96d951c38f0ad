// The nearest words of some words through training: a slider over its snapshots.

import { about, make } from "./dom.js";
import { figure } from "./figure.js";
import { say } from "./language.js";

export function showNeighbours(element, view, { state = {}, onState = () => {} } = {}) {
  const last = view.snapshots.length - 1;
  const given = Number(state.step);
  const start = state.step !== undefined && given >= 0 && given <= last ? Math.floor(given) : last;
  const slider = make("input", { type: "range", min: "0", max: String(last), step: "1", "aria-label": say("Share of the training"), class: "training-slider" });
  const shown = make("output", { class: "training-share" });
  const picture = make("div", { class: "followed" });
  const draw = () => {
    const step = Number(slider.value);
    const share = `${Number((100 * view.snapshots[step].share).toPrecision(3))} %`;
    shown.textContent = say("{share} of the training", { share });
    slider.setAttribute("aria-valuetext", shown.textContent);
    picture.replaceChildren(...view.words.map((word) => column(view, word, step)));
  };
  slider.value = String(start);
  slider.addEventListener("input", () => {
    draw();
    onState({ step: Number(slider.value) });
  });
  element.classList.add("qkv-viewer");
  const hint = say("The words with the most similar vectors at each snapshot. Those that are there at the end are in colour.");
  const title = say("Neighbours through training");
  element.replaceChildren(about(hint), figure({ title, controls: [slider, shown], picture, name: "neighbours" }));
  draw();
}

function column(view, word, step) {
  const final = new Set(view.snapshots.at(-1).neighbours[word].map((one) => one.word));
  const rows = view.snapshots[step].neighbours[word].map(({ word: near, cosine }) => {
    const bar = make("span", { class: "similarity" });
    bar.style.setProperty("--share", Math.max(0, cosine));
    return make("li", { class: final.has(near) ? "final" : "" }, make("span", { class: "near", dir: "auto" }, near), bar, make("span", { class: "cosine" }, cosine.toFixed(2)));
  });
  return make("section", { "aria-label": word }, make("p", { class: "followed-word", dir: "auto" }, word), make("ol", {}, ...rows));
}
