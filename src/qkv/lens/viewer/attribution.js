// What mattered: how much each word contributed to the output.

import { shade, wordLine } from "./chips.js";
import { about, bold, make, small } from "./dom.js";
import { itemsOf } from "./texts.js";
import { say } from "./language.js";

export function attributionPanel(attention, state) {
  const found = attention.attribution;
  const source = itemsOf(attention, "source", state.unit);
  const sum = (values, positions) => positions.reduce((total, position) => total + values[position], 0);
  const line = wordLine(source, "Words of the source");
  const says = make("p", { class: "says", "aria-live": "polite" });
  const paint = (values, of) => {
    const shares = source.map((item) => sum(values, item.positions));
    const most = Math.max(...shares.map(Math.abs)) || 1;
    line.chips.forEach((one, n) => {
      shade(one, Math.abs(shares[n]) / most, shares[n] < 0);
      one.title = `${source[n].text}: ${shares[n].toFixed(3)}`;
    });
    const ranked = source.map((item, n) => [item.text, shares[n]]).sort((a, b) => b[1] - a[1]);
    const some = (list) => list.slice(0, 3).map(([text, value]) => `${text} (${value.toFixed(2)})`).join(", ") || "nothing";
    const above = ranked.filter(([, value]) => value > 0);
    const below = ranked.filter(([, value]) => value < 0).reverse();
    says.replaceChildren(`For ${of}: `, bold(some(above)), ". Against it: ", bold(some(below)), ".");
  };
  const panel = make("div", {}, about(
      say("How much each word contributed to the output (gradient × input). Blue words support it, orange ones oppose it."),
    ));
  if (found.each) {
    const target = itemsOf(attention, "target", state.unit);
    const whole = { text: "all of it", mark: true, positions: attention.target.map((_, position) => position) };
    const items = [whole, ...target];
    const choose = (n) => {
      chooser.chips.forEach((one, m) => one.setAttribute("aria-pressed", String(n === m)));
      const values = attention.source.map((_, s) => items[n].positions.reduce((total, t) => total + found.each[t][s], 0));
      paint(values, n ? `“${items[n].text}”` : found.of);
    };
    const chooser = wordLine(items, "Words that were written: choose one", choose);
    panel.append(make("div", { class: "pointing" }, small("For writing"), chooser.line));
    panel.append(make("div", { class: "pointing" }, small("these contributed"), line.line));
    choose(0);
  } else {
    panel.append(make("p", {}, `Attributed output: ${found.of}.`), line.line);
    paint(found.values, found.of);
  }
  panel.append(says);
  return panel;
}
