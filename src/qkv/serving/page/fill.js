// Filling in masked words.

import { post, ApiError } from "./api.js";
import { bar, make, percent } from "./dom.js";
import { offerLook } from "./look.js";

const BLANK = "[MASK]";
const TOP = 6;

export function fillPanel(panel) {
  const area = panel.form.elements.text;
  panel.form.querySelector(".blank").addEventListener("click", () => {
    area.setRangeText(BLANK, area.selectionStart, area.selectionEnd, "end");
    area.focus();
  });
  panel.onSubmit(async (signal) => {
    const text = panel.text("text");
    if (!text.includes(BLANK)) throw new ApiError("There is no blank in the text. Insert one where the model should guess.", 0);
    const model = panel.model;
    const { masks } = await post("fill", { model: model.id, text, top: TOP }, signal);
    panel.result.hidden = false;
    show(panel.section, text.split(BLANK), masks);
    offerLook(panel, model, text);
  });
}

/** Show the text with the best guess in each blank, and the other guesses to choose from. */
function show(section, parts, masks) {
  const slots = masks.map((guesses) => make("mark", {}, guesses[0].word));
  section.querySelector(".filled").replaceChildren(...parts.flatMap((part, index) => (slots[index] ? [part, slots[index]] : [part])));
  const lists = masks.map((guesses, index) => choices(guesses, slots[index], masks.length > 1 ? `Blank ${index + 1}` : "Guesses"));
  section.querySelector(".blanks").replaceChildren(...lists);
}

function choices(guesses, slot, title) {
  const buttons = guesses.map((guess, rank) => {
    const button = make("button", { type: "button", className: "guess", ariaPressed: String(rank === 0) });
    button.append(make("span", { className: "word", dir: "auto" }, guess.word), bar(guess.probability), make("span", { className: "score" }, percent(guess.probability)));
    button.addEventListener("click", () => {
      slot.textContent = guess.word;
      for (const one of buttons) one.ariaPressed = String(one === button);
    });
    return button;
  });
  const items = buttons.map((button) => make("li", {}, button));
  return make("section", { className: "card" }, make("h2", {}, title), make("ol", { className: "guesses" }, ...items));
}
