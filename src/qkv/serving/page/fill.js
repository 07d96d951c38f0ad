// Filling in masked words.

import { button, make } from "../viewer/dom.js";
import { say } from "../viewer/language.js";
import { ApiError, post } from "./api.js";
import { bar } from "./bars.js";
import { attentionLink } from "./look.js";
import { percent } from "./names.js";

const BLANK = "[MASK]";
const TOP = 6;

export const FILL = {
  id: "fill",
  ability: "fill",
  name: "Fill in",
  lead: "Leave a blank, and the model predicts the word from the words on both sides of it.",
  action: "Guess",
  busy: "Guessing…",
  fields: () => [{ name: "text", label: say("Text with blanks"), hint: "A blank is written [MASK]." }],
  buttons: (panel) => [button({ class: "blank", onclick: () => insertBlank(panel) }, say("Insert a blank"))],
  build(panel) {
    panel.filled = make("p", { class: "sheet filled", dir: "auto", "aria-live": "polite" });
    panel.blanks = make("div", { class: "blanks" });
    return [panel.filled, panel.blanks, attentionLink(panel, "See its attention", () => ({ text: panel.first.value.trim() }))].filter(Boolean);
  },
  async run(panel, { text }, signal) {
    if (!text.includes(BLANK)) throw new ApiError(say("There is no blank in the text. Insert one where the model should guess."));
    const { masks } = await post("fill", { model: panel.model.id, text, top: TOP }, signal);
    panel.show();
    show(panel, text.split(BLANK), masks);
  },
};

function insertBlank(panel) {
  const area = panel.first;
  area.setRangeText(BLANK, area.selectionStart, area.selectionEnd, "end");
  area.focus();
  area.dispatchEvent(new Event("input", { bubbles: true }));
}

/** Show the text with the best guess in each blank, and the other guesses to choose from. */
function show(panel, parts, masks) {
  const slots = masks.map((guesses) => make("mark", {}, guesses[0].word));
  panel.filled.replaceChildren(...parts.flatMap((part, index) => (slots[index] ? [part, slots[index]] : [part])));
  const lists = masks.map((guesses, index) => choices(guesses, slots[index], masks.length > 1 ? say("Blank {number}", { number: index + 1 }) : say("Guesses")));
  panel.blanks.replaceChildren(...lists);
}

function choices(guesses, slot, title) {
  const most = Math.max(...guesses.map((guess) => guess.probability)) || 1;
  const buttons = guesses.map((guess, rank) => {
    const score = make("span", { class: "score" }, percent(guess.probability));
    const one = button({ class: "guess", "aria-pressed": String(rank === 0) }, make("span", { class: "word", dir: "auto" }, guess.word), bar(guess.probability / most), score);
    one.addEventListener("click", () => {
      slot.textContent = guess.word;
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === one));
    });
    return one;
  });
  const items = buttons.map((one) => make("li", {}, one));
  return make("section", { class: "card" }, make("h2", {}, title), make("ol", { class: "guesses" }, ...items));
}
