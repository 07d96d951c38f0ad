// Words as buttons, shaded by weights.

import { button, make, roving } from "./dom.js";
import { say } from "./language.js";
import { MARKS } from "./texts.js";

function chip(item, attributes) {
  const classes = `chip${item.mark ? " mark" : ""}${item.inside ? " inside" : ""}`;
  const title = Object.hasOwn(MARKS, item.text) ? say(MARKS[item.text]) : null;
  const all = { class: classes, dir: "auto", title, ...attributes };
  return attributes ? button(all, item.text) : make("span", all, item.text);
}

/** Colour a word by a share from 0 to 1; words with a large one are underlined too. */
export function shade(element, share, against) {
  element.style.setProperty("--share", share.toFixed(3));
  element.classList.toggle("strong", share > 0.55);
  element.classList.toggle("against", Boolean(against));
}

/** Mark one of several words as chosen, or none. */
export function press(chips, chosen) {
  chips.forEach((one, n) => one.setAttribute("aria-pressed", String(n === chosen)));
}

/** The words; `choose(n)` is called when one of them is pointed at, focused or clicked. */
export function wordChips(items, choose) {
  return items.map((item, n) => {
    const chosen = () => choose(n);
    return chip(item, choose && { "aria-pressed": "false", onclick: chosen, onmouseenter: chosen, onfocus: chosen });
  });
}

export function wordLine(items, label, choose) {
  const chips = wordChips(items, choose);
  const line = make("div", { class: "line", role: "group", "aria-label": label }, ...chips);
  if (choose) roving(line, chips);
  return { line, chips };
}
