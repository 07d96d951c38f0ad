// What mattered: how much each word contributed to the output.

import { press, shade, wordLine } from "./chips.js";
import { about, bold, make, small } from "./dom.js";
import { figure } from "./figure.js";
import { itemsOf } from "./texts.js";
import { say, sayWith } from "./language.js";

const BARS = 12; // words whose contributions are shown as bars

const METHODS = {
  gradient: "Method: gradient × input. How fast the score changes when the embedding of a word is scaled.",
  integrated: "Method: integrated gradients. The change of the score on the way from an empty text to this one, shared among the words.",
  occlusion: "Method: occlusion. How much the score falls when a word is left out or replaced.",
};

const OUTPUTS = [
  [/^the next token, (?<token>.*)$/s, "the next token, {token}"],
  [/^“(?<word>.*)” instead of “(?<other>.*)”$/s, "“{word}” instead of “{other}”"],
  [/^the prediction “(?<word>.*)” for the first \[MASK\]$/s, "the prediction “{word}” for the first [MASK]"],
];

/** The name of an explained output in the reader's language. */
export function nameOf(output) {
  const [form, text] = OUTPUTS.find(([one]) => one.test(output)) || [];
  return form ? say(text, form.exec(output).groups) : say(output);
}

/** Facts about the method, in sentences. */
function methodOf(attention) {
  const { method, completeness } = attention.attribution;
  const told = [say(METHODS[method])];
  if (attention.replaced_by) told.push(say("Each word was replaced by {token}.", { token: attention.replaced_by }));
  if (completeness) {
    const [sum, difference] = [completeness.sum, completeness.difference].map((one) => one.toFixed(3));
    told.push(say("Completeness: the contributions sum to {sum}; the score differs by {difference} from that of an empty text ({steps} steps).", { sum, difference, steps: completeness.steps }));
    told.push(completeness.complete ? say("They agree, as they must.") : say("They do not agree: read these contributions with care."));
  }
  return told.join(" ");
}

export function attributionPanel(attention, state, controls = []) {
  const found = attention.attribution;
  const source = itemsOf(attention, "source", state.unit);
  const line = wordLine(source, say("Words of the source"));
  const says = make("p", { class: "says follows", "aria-live": "polite" });
  const bars = make("div", { class: "bars" });
  const paint = (values, of) => {
    const shares = source.map((item) => item.positions.reduce((total, position) => total + values[position], 0));
    const most = Math.max(...shares.map(Math.abs)) || 1;
    line.chips.forEach((one, n) => {
      shade(one, Math.abs(shares[n]) / most, shares[n] < 0);
      one.title = `${source[n].text}: ${shares[n].toFixed(3)}`;
    });
    const ranked = source.map((item, n) => [item.text, shares[n]]).sort((a, b) => b[1] - a[1]);
    const some = (list) => bold(list.slice(0, 3).map(([text, value]) => `${text} (${value.toFixed(2)})`).join(", ") || say("nothing"));
    const above = some(ranked.filter(([, value]) => value > 0));
    const below = some(ranked.filter(([, value]) => value < 0).reverse());
    says.replaceChildren(...sayWith("For {output}: {above}. Against it: {below}.", { output: of, above, below }));
    const largest = [...ranked].sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, BARS);
    bars.replaceChildren(...largest.map(([text, value]) => barOf(text, value, most)));
  };
  const picture = make("div", {}, ...chooser(attention, state, paint), make("div", { class: "pointing" }, small(say("these contributed")), line.line), says, bars);
  const told = say("How much each word contributed to the output. Blue words support it, orange ones oppose it.");
  const legend = `${methodOf(attention)} ${say("Bars: the {count} largest contributions; the longest bar is the largest of this text.", { count: Math.min(BARS, source.length) })}`;
  return make("div", {}, about(told), figure({ title: say("What mattered"), controls, picture, legend, name: "what-mattered" }));
}

/** The words that were written, to choose the one that is explained; a sentence where there is but one output. */
function chooser(attention, state, paint) {
  const found = attention.attribution;
  const side = attention.target ? "target" : "source";
  const rowOf = new Map((found.positions || (found.each || []).map((_, n) => n)).map((position, n) => [position, n]));
  const items = found.each && rowOf.size > 1 ? itemsOf(attention, side, state.unit) : [];
  const explained = items.filter((item) => item.positions.some((position) => rowOf.has(position)));
  if (!explained.length) {
    paint(found.values, nameOf(found.of));
    return [make("p", {}, ...sayWith("Explained: {output}.", { output: bold(nameOf(found.of)) }))];
  }
  const all = [{ text: say("all of it"), mark: true, positions: [...rowOf.keys()] }, ...explained];
  const choose = (n) => {
    press(line.chips, n);
    const rows = all[n].positions.filter((position) => rowOf.has(position)).map((position) => found.each[rowOf.get(position)]);
    paint(found.values.map((_, s) => rows.reduce((total, row) => total + row[s], 0)), n ? `“${all[n].text}”` : nameOf(found.of));
  };
  const line = wordLine(all, say("Words that were written: choose one"), choose);
  choose(0);
  return [make("div", { class: "pointing" }, small(say("For writing")), line.line)];
}

/** A word with a bar from the middle: to the right where it supports the output. */
function barOf(text, value, most) {
  const inner = make("span", { class: value < 0 ? "against" : null });
  inner.style.setProperty("--share", (Math.abs(value) / most).toFixed(3));
  const word = make("span", { class: "bar-word", dir: "auto" }, text);
  return make("div", { class: "bar-line" }, word, make("span", { class: "both-ways", "aria-hidden": "true" }, inner), make("span", { class: "number" }, value.toFixed(3)));
}
