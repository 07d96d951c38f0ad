// The pictures of a lesson: each is drawn for the width that it has, and again when something in it is uncovered.

import { wordLine } from "../../viewer/chips.js";
import { make } from "../../viewer/dom.js";
import { figure } from "../../viewer/figure.js";
import { say } from "../../viewer/language.js";
import { layersPicture, unitsPicture } from "./layers.js";
import { barsPicture, scoresPicture } from "./scores.js";
import { searchPicture } from "./search.js";
import { tell } from "./texts.js";
import { vectorsPicture } from "./vectors.js";

const DRAWN = {
  vectors: vectorsPicture,
  scores: scoresPicture,
  units: unitsPicture,
  layers: layersPicture,
  bars: barsPicture,
  search: searchPicture,
};
const BUILT = { tokens, result };

/** A picture: its element, and `update` after an answer; `fixed` is a width in pixels, else the page's. */
export function picture(one, known, fixed = null) {
  const box = make("div", { class: "drawing" });
  let width = fixed;
  const paint = () => {
    if (one.kind in BUILT) box.replaceChildren(BUILT[one.kind](one, known));
    else if (width) box.replaceChildren(DRAWN[one.kind](one, width, known));
  };
  if (!fixed && one.kind in DRAWN) {
    new ResizeObserver(() => {
      const letter = parseFloat(getComputedStyle(box).fontSize) / 16; // pictures grow with the letters of the page
      const found = Math.floor(box.clientWidth / letter);
      if (!found || found === width) return;
      width = found;
      paint();
    }).observe(box);
  }
  paint();
  const title = tell(one.title);
  const plain = fixed || one.kind in BUILT; // texts are no pictures to download
  const whole = plain ? make("div", { class: "printed" }, make("h3", {}, title), box) : figure({ title, picture: box, name: one.name });
  return { element: whole, update: paint };
}

/** The tokens of the sentence. */
function tokens(one) {
  const items = one.tokens.map((token) => ({ text: token.text, mark: token.mark }));
  const line = wordLine(items, say("Tokens"));
  line.chips.forEach((chip, n) => chip.classList.add("token", n === one.chosen ? "chosen" : "plain-token"));
  return line.line;
}

/** The sentence and what the model made of it. */
function result(one, known) {
  const output = known(one.after) ? one.output : say("(after the first question)");
  return make(
    "p",
    { class: "result" },
    make("span", { dir: "auto" }, one.text),
    make("span", { class: "arrow", "aria-hidden": "true" }, " → "),
    make("b", { dir: "auto", class: known(one.after) ? null : "covered" }, output),
  );
}
