// Heads that follow a known pattern, and what the model loses without them.

import { about, button, make } from "./dom.js";
import { dropOf, howToMeasure, signed } from "./effects.js";
import { figure } from "./figure.js";
import { percent } from "./numbers.js";
import { partName, patternName } from "./parts.js";
import { say } from "./language.js";

const SHOWN = 8; // heads per pattern that are listed at once

export function patternsPanel(attention, show) {
  const panel = make("div", {}, about(
      say("Some heads follow one simple pattern. These were found in this text; the number is the share of the head's attention that follows it."),
    ));
  if (attention.effects) {
    const { figure: of, score, texts } = attention.effects;
    panel.append(about(say("The last column has the change of the score ({figure}, {score} with all heads, on {texts} texts) without the head: below 0 the model needs it.", { figure: say(of), score: score.toFixed(4), texts })));
  } else panel.append(about(howToMeasure()));
  const kinds = [...new Set(attention.patterns.map((pattern) => pattern.pattern))];
  if (!kinds.length) {
    panel.append(make("p", {}, say("No head follows a known pattern. A longer text shows more.")));
    return panel;
  }
  const drops = attention.patterns.map((pattern) => Math.abs(dropOf(attention, pattern.map, pattern.head) || 0));
  const most = Math.max(...drops) || 1;
  const picture = make("div", {}, ...kinds.map((kind) => section(attention, kind, most, show)));
  panel.append(figure({ title: say("Head patterns"), picture, name: "head-patterns" }));
  return panel;
}

function section(attention, kind, most, show) {
  const found = attention.patterns.filter((pattern) => pattern.pattern === kind);
  const lines = found.map((pattern) => headLine(attention, pattern, most, show));
  const heading = make("h3", {}, patternName(kind));
  const more = lines.slice(SHOWN);
  const rest = more.length
    ? make("details", {}, make("summary", {}, say("and {count} more", { count: more.length })), make("div", {}, ...more))
    : null;
  return make("section", { class: "patterns" }, heading, about(say(found[0].says)), ...lines.slice(0, SHOWN), rest);
}

function headLine(attention, pattern, most, show) {
  const one = attention.maps.find((map) => map.name === pattern.map);
  const where = attention.kind === "translator" ? `${partName(attention, one.part)}: ` : "";
  const name = where + say("Layer {layer}, head {head}", { layer: one.layer + 1, head: pattern.head + 1 });
  const drop = dropOf(attention, pattern.map, pattern.head);
  const line = make("div", { class: drop === null ? "pattern-line" : "pattern-line measured" });
  line.append(button({ class: "plain", onclick: () => show(one, pattern.head) }, name), bar(pattern.score), make("span", { class: "number" }, percent(pattern.score)));
  if (drop !== null) line.append(bar(Math.abs(drop) / most, drop > 0), make("span", { class: "number" }, signed(-drop)));
  return line;
}

/** A bar for a share from 0 to 1; the number stands beside it. */
function bar(share, against) {
  const inner = make("span", { class: against ? "against" : null });
  inner.style.setProperty("--share", share.toFixed(3));
  return make("span", { class: "meter", "aria-hidden": "true" }, inner);
}
