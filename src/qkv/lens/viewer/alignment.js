// Word by word: lines between the words of a translation and of its source.

import { shade, wordLine } from "./chips.js";
import { about, bold, draw, make } from "./dom.js";
import { mean, percent } from "./numbers.js";
import { firstUnit, gathered, itemsOf } from "./texts.js";
import { say } from "./language.js";

const DRAWN = 0.15; // least share of a word's attention for a line
const LINKED = 0.05; // and for a line of the word under the pointer

/** Links between items of both texts, [source, target, share of the target's attention], from the mean of all heads. */
function linksOf(attention, sides) {
  const across = attention.maps.filter((one) => one.part === "cross").flatMap((one) => one.heads);
  return gathered(mean(across), sides[1], sides[0]).flatMap((row, t) => {
    const sum = row.reduce((a, b) => a + b, 0) || 1;
    return row.map((weight, s) => [s, t, weight / sum]).filter((link) => link[2] >= LINKED);
  });
}

export function alignmentPanel(attention, state) {
  const box = make("div", { class: "alignment" });
  const sides = ["source", "target"].map((side) => itemsOf(attention, side, state.unit).filter((item) => !item.mark));
  const links = linksOf(attention, sides);
  const lines = draw("svg", { "aria-hidden": "true" });
  const says = make("p", { class: "says", "aria-live": "polite" });
  let active = null;
  const choose = (side, word) => {
    active = [side, word];
    const found = links.filter((link) => link[side] === word).sort((a, b) => b[2] - a[2]);
    rows.forEach((row, n) =>
      row.chips.forEach((one, m) => {
        shade(one, 0);
        one.setAttribute("aria-pressed", String(n === side && m === word));
      }),
    );
    found.forEach((link) => shade(rows[1 - side].chips[link[1 - side]], link[2] / found[0][2]));
    const others = found.slice(0, 4).map((link) => `${sides[1 - side][link[1 - side]].text} ${percent(link[2])}`);
    const said = side ? " attended to: " : " was attended to by: ";
    says.replaceChildren(bold(sides[side][word].text), said + (others.join(", ") || "no word in particular"));
    join();
  };
  const rows = sides.map((items, side) =>
    wordLine(items, side ? "Translation: choose a word" : "Source: choose a word", (n) => choose(side, n)),
  );
  const end = (one, first, frame, down) => {
    const r = one.getBoundingClientRect();
    if (down) return [(first ? r.right : r.left) - frame.left, r.top + r.height / 2 - frame.top];
    return [r.left + r.width / 2 - frame.left, (first ? r.bottom : r.top) - frame.top];
  };
  const join = () => {
    const frame = box.getBoundingClientRect();
    const down = box.classList.contains("down");
    lines.setAttribute("width", frame.width);
    lines.setAttribute("height", frame.height);
    const lit = (link) => active !== null && link[active[0]] === active[1];
    const paths = links.filter((link) => lit(link) || link[2] >= DRAWN).map((link) => {
      const [a, b] = end(rows[0].chips[link[0]], true, frame, down);
      const [c, d] = end(rows[1].chips[link[1]], false, frame, down);
      const bend = down ? `${(a + c) / 2} ${b} ${(a + c) / 2} ${d}` : `${a} ${(b + d) / 2} ${c} ${(b + d) / 2}`;
      const faded = active !== null && !lit(link);
      const width = (0.5 + 5 * link[2]).toFixed(2);
      const opacity = faded ? 0.12 : (0.2 + 0.8 * link[2]).toFixed(2);
      return draw("path", { d: `M${a} ${b}C${bend} ${c} ${d}`, "stroke-width": width, "stroke-opacity": opacity });
    });
    lines.replaceChildren(...paths);
  };
  const fit = () => {
    box.classList.remove("down");
    box.classList.toggle("down", rows.some((row) => row.line.scrollWidth > row.line.clientWidth + 1));
    join();
  };
  box.append(rows[0].line, lines, rows[1].line);
  new ResizeObserver(fit).observe(box);
  return make("div", {}, about(
      say("Which words of the source the model attended to while it wrote each word. Point at a word: the thicker a line, the more attention."),
    ), box, says);
}

/** The words of a translation and of its source alone, with the lines between them. */
export function showAlignment(element, attention) {
  element.classList.add("qkv-viewer");
  element.replaceChildren(alignmentPanel(attention, { unit: firstUnit(attention) }));
}
