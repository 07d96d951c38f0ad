// Word by word: lines between the words of a translation and of its source, which are broken into lines together.

import { bandsOf } from "./bands.js";
import { press, shade, wordChips } from "./chips.js";
import { about, bold, draw, make, roving } from "./dom.js";
import { figure } from "./figure.js";
import { mean, percent } from "./numbers.js";
import { firstUnit, gathered, itemsOf } from "./texts.js";
import { say, sayWith } from "./language.js";

const DRAWN = 0.15; // least share of a word's attention for a line
const LINKED = 0.05; // and for a line of the word under the pointer
const LARGEST = 1.6; // how much larger the words of a short text are
const GAP = 5; // between words, in pixels

/** Links between items of both texts, [source, target, share of the target's attention], from the mean of all heads. */
function linksOf(attention, sides) {
  const across = attention.maps.filter((one) => one.part === "cross").flatMap((one) => one.heads);
  return gathered(mean(across), sides[1], sides[0]).flatMap((row, t) => {
    const sum = row.reduce((a, b) => a + b, 0) || 1;
    return row.map((weight, s) => [s, t, weight / sum]).filter((link) => link[2] >= LINKED);
  });
}

export function alignmentPanel(attention, state, controls = []) {
  const sides = ["source", "target"].map((side) => itemsOf(attention, side, state.unit).filter((item) => !item.mark));
  const says = make("p", { class: "says follows", "aria-live": "polite" });
  const picture = make("div", { class: "alignment" });
  const drawing = alignment(picture, sides, linksOf(attention, sides), says);
  new ResizeObserver(drawing.fit).observe(picture);
  const told = say("Which words of the source the model attended to while it wrote each word. Point at a word: the thicker a line, the more attention.");
  const legend = say("In each pair of lines the source is above and the translation below. Lines are drawn from a share of {share} on; a line to a word in another pair of lines appears when one of its words is chosen.", { share: percent(DRAWN) });
  return make("div", {}, about(told), figure({ title: say("Word by word"), controls, picture: make("div", {}, picture, says), legend, name: "word-by-word" }));
}

function alignment(box, sides, links, says) {
  const lines = draw("svg", { "aria-hidden": "true" });
  const chips = sides.map((items, side) => wordChips(items, (word) => choose(side, word)));
  const labels = [say("Source: choose a word"), say("Translation: choose a word")];
  let [active, bands, width] = [null, [], 0];

  function choose(side, word) {
    active = [side, word];
    const found = links.filter((link) => link[side] === word).sort((a, b) => b[2] - a[2]);
    chips.forEach((list, n) => {
      list.forEach((one) => shade(one, 0));
      press(list, n === side ? word : null);
    });
    found.forEach((link) => shade(chips[1 - side][link[1 - side]], link[2] / found[0][2]));
    const others = found.slice(0, 4).map((link) => `${sides[1 - side][link[1 - side]].text} ${percent(link[2])}`);
    const values = { word: bold(sides[side][word].text), words: others.join(", ") || say("no word in particular") };
    says.replaceChildren(...sayWith(side ? "{word} attended to: {words}" : "{word} was attended to by: {words}", values));
    join();
  }

  /** Draw the lines between the words where they now are. */
  function join() {
    const frame = box.getBoundingClientRect();
    const bandOf = [0, 1].map((side) => (word) => bands.findIndex((band) => band[2 * side] <= word && word < band[2 * side + 1]));
    const lit = (link) => active !== null && link[active[0]] === active[1];
    const near = (link) => bandOf[0](link[0]) === bandOf[1](link[1]);
    lines.setAttribute("width", frame.width);
    lines.setAttribute("height", frame.height);
    const shown = links.filter((link) => lit(link) || (link[2] >= DRAWN && near(link)));
    lines.replaceChildren(...shown.map((link) => line(link, frame, active !== null && !lit(link))));
  }

  function line([source, target, share], frame, faded) {
    const [one, other] = [chips[0][source], chips[1][target]].map((chip) => chip.getBoundingClientRect());
    const upwards = other.top < one.top;
    const [x, y] = [one.left + one.width / 2 - frame.left, (upwards ? one.top : one.bottom) - frame.top];
    const [u, v] = [other.left + other.width / 2 - frame.left, (upwards ? other.bottom : other.top) - frame.top];
    const d = `M${x} ${y}C${x} ${(y + v) / 2} ${u} ${(y + v) / 2} ${u} ${v}`;
    const opacity = faded ? 0.12 : (0.3 + 0.7 * share).toFixed(2);
    return draw("path", { d, "stroke-width": (0.75 + 5 * share).toFixed(2), "stroke-opacity": opacity });
  }

  /** Break both texts into lines that fit. */
  function fit() {
    if (box.clientWidth === width || !box.clientWidth) return;
    width = box.clientWidth;
    const held = document.activeElement;
    box.style.setProperty("--scale", 1);
    box.replaceChildren(make("div", { class: "measure" }, ...chips.flat()));
    const widths = chips.map((list) => list.map((chip) => chip.getBoundingClientRect().width + GAP));
    const longest = Math.max(...widths.map((list) => list.reduce((a, b) => a + b, 0)));
    box.style.setProperty("--scale", Math.max(1, Math.min(LARGEST, (width - 1) / longest)).toFixed(3));
    bands = bandsOf(widths, links, width + GAP);
    const part = (side, [first, end]) =>
      end > first ? make("div", { class: "line", role: "group", "aria-label": labels[side] }, ...chips[side].slice(first, end)) : null;
    box.replaceChildren(lines, ...bands.map((band) => make("div", { class: "band" }, part(0, band.slice(0, 2)), part(1, band.slice(2)))));
    if (box.contains(held)) held.focus();
    join();
  }

  chips.forEach((list) => roving(box, list));
  return { fit };
}

/** The words of a translation and of its source alone, with the lines between them. */
export function showAlignment(element, attention) {
  element.classList.add("qkv-viewer");
  element.replaceChildren(alignmentPanel(attention, { unit: firstUnit(attention) }));
}
