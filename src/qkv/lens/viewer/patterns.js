// Heads that follow a known pattern.

import { about, button, make } from "./dom.js";
import { percent } from "./numbers.js";
import { partName, patternName } from "./parts.js";
import { say } from "./language.js";

const SHOWN = 8; // heads per pattern that are listed at once

export function patternsPanel(attention, show) {
  const panel = make("div", {}, about(
      say("Some heads follow one simple pattern. These were found in this text; the number is the share of the head's attention that follows it."),
    ));
  const kinds = [...new Set(attention.patterns.map((pattern) => pattern.pattern))];
  for (const kind of kinds) {
    const found = attention.patterns.filter((pattern) => pattern.pattern === kind);
    const heads = found.map((pattern) => headLink(attention, pattern, show));
    const about = make("p", { class: "about" }, found[0].says);
    const section = make("section", { class: "patterns" }, make("h3", {}, patternName(kind)), about);
    section.append(make("div", { class: "line" }, ...heads.slice(0, SHOWN)));
    const more = heads.slice(SHOWN);
    const label = make("summary", {}, `and ${more.length} more`);
    if (more.length) section.append(make("details", {}, label, make("div", { class: "line" }, ...more)));
    panel.append(section);
  }
  if (!kinds.length) panel.append(make("p", {}, "No head follows a known pattern. A longer text shows more."));
  return panel;
}

function headLink(attention, pattern, show) {
  const one = attention.maps.find((map) => map.name === pattern.map);
  const where = attention.kind === "translator" ? `${partName(attention, one.part)}, layer ` : "Layer ";
  const link = button({ class: "plain share", onclick: () => show(one, pattern.head) });
  link.append(`${where}${one.layer + 1}, head ${pattern.head + 1} `, make("span", { class: "number" }, percent(pattern.score)));
  link.style.setProperty("--share", pattern.score.toFixed(3));
  return link;
}
