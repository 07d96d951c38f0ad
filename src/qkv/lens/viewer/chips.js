// Words as buttons, shaded by weights.

import { button, make, roving } from "./dom.js";
import { MARKS } from "./texts.js";

function chip(item, attributes) {
  const classes = `chip${item.mark ? " mark" : ""}${item.inside ? " inside" : ""}`;
  const all = { class: classes, dir: "auto", title: MARKS[item.text], ...attributes };
  return attributes ? button(all, item.text) : make("span", all, item.text);
}

export function shade(element, share, against) {
  element.style.setProperty("--share", share.toFixed(3));
  element.classList.toggle("strong", share > 0.55);
  element.classList.toggle("against", Boolean(against));
}

export function wordLine(items, label, choose) {
  const line = make("div", { class: "line", role: "group", "aria-label": label });
  const chips = items.map((item, n) => {
    const chosen = () => choose(n);
    return chip(item, choose && { "aria-pressed": "false", onclick: chosen, onmouseenter: chosen, onfocus: chosen });
  });
  line.append(...chips);
  if (choose) roving(line, chips);
  return { line, chips };
}
