// Views of the laboratory: each asks one endpoint, and the viewer draws the answer.

import { make } from "../viewer/dom.js";
import { say } from "../viewer/language.js";
import { post } from "./api.js";
import { contrast } from "./contrast.js";
import { lookRequest } from "./look.js";
import { chosen, showView } from "./shown.js";

const textField = (model) => ({ name: "text", label: say("Text"), lang: model.languages?.[0] });

/**
 * A view of a text. `ability` is also the name of its endpoint, `choices` are the parts of the viewer's state that the endpoint
 * takes, and `asked` turns what the viewer asks for into fields of a request.
 */
export function laboratoryView({ choices = [], asked = (choice) => choice, request = lookRequest, ...rest }) {
  return {
    action: "Show",
    busy: "Computing…",
    fields: (model) => [textField(model)],
    build: () => [make("div", { class: "card view" })],
    async run(panel, values, signal) {
      const problem = rest.problem?.(values);
      if (problem) return panel.clear(problem);
      const body = request(panel.model, values);
      const view = await postChosen(rest.ability, body, chosen(panel, choices), signal);
      panel.show();
      showView(panel, view, (...choice) => post(rest.ability, { ...body, ...asked(...choice) }));
      return undefined;
    },
    ...rest,
  };
}

/** Ask with a choice, which may not fit a new text: then ask without it. */
async function postChosen(path, body, choice, signal) {
  try {
    return await post(path, { ...body, ...choice }, signal);
  } catch (error) {
    if (error.status !== 400 || !Object.keys(choice).length) throw error;
    return post(path, body, signal);
  }
}

const ARITHMETIC = laboratoryView({
  id: "arithmetic",
  ability: "arithmetic",
  name: "Arithmetic",
  lead: "How an attention weight comes about: the model's own numbers for one head at one position, step by step.",
  choices: ["part", "layer", "head", "position"],
});

const CHANGE = laboratoryView({
  id: "change",
  ability: "change",
  name: "Change something",
  lead: "Switch off a head or a layer, set a weight, or edit a word, and compare the model before and after.",
  choices: ["changes"],
  asked: (changes, maps) => (maps ? { changes, maps } : { changes }),
});

const PATCH = laboratoryView({
  id: "patch",
  ability: "patch",
  name: "Patch",
  lead: "Two texts that differ in a word: which heads and which states carry what follows from it.",
  fields: (model) => [
    textField(model),
    { name: "other", label: say("The same text with another word"), lang: model.languages?.[0], hint: "Both texts need equally many tokens." },
  ],
  complete: contrasted,
  request: (model, { text, other }) => ({ model: model.id, text, other }),
  problem: ({ text, other }) => (text === other ? say("Change a word of the second text.") : null),
});

/** The values with a second text; an example that has none gives way to one that has. */
function contrasted(values, examples) {
  const isExample = examples.some(({ text }) => text === values.text);
  const able = examples.find(({ text }) => contrast(text) !== text);
  const text = isExample && able && contrast(values.text) === values.text ? able.text : values.text;
  return { ...values, text, other: contrast(text ?? "") };
}

const LAYERS = laboratoryView({
  id: "layers",
  ability: "layers",
  name: "After each layer",
  lead: "What the model would say if it stopped after each layer.",
});

const SEARCHES = {
  1: ["greedy", { beam: 1 }],
  3: ["beam of 3", { beam: 3 }],
  5: ["beam of 5", { beam: 5 }],
  cool: ["sampling, temperature 0.7", { sampling: true, temperature: 0.7 }],
  warm: ["sampling, temperature 1", { sampling: true, temperature: 1 }],
};

const STEPS = laboratoryView({
  id: "steps",
  ability: "steps",
  name: "While it writes",
  lead: "The most probable tokens at each step, and the search for the best text as a tree.",
  fields: (model) => [
    textField(model),
    { name: "beam", kind: "choice", label: say("Search"), value: "3", options: Object.entries(SEARCHES).map(([search, [name]]) => [search, say(name)]) },
  ],
  request: (model, { text, beam }) => ({ model: model.id, text, ...(SEARCHES[beam] ?? SEARCHES[3])[1], ...(model.kind === "generator" ? { max_new_tokens: 12 } : {}) }),
});

const TRAINING = laboratoryView({
  id: "training",
  ability: "through_training",
  name: "Through training",
  lead: "The same text at snapshots of the training, from the first step to the last.",
});

const ATTRIBUTION = laboratoryView({
  id: "attribution",
  ability: "attribute",
  name: "What mattered",
  lead: "How much each word of the text contributed to the output.",
  fields: (model) => [
    textField(model),
    { name: "word", kind: "line", optional: true, label: say("Which word of the output, by its number (optional)") },
    { name: "instead", kind: "line", optional: true, label: say("Why that word, and not which other one (optional)") },
  ],
  problem: ({ word, instead }) => {
    if (word && !/^[1-9][0-9]*$/.test(word)) return say("Give the number of a word of the output, from 1.");
    return instead && !word ? say("Give the number of the word as well.") : null;
  },
  request: (model, { word, instead, ...values }) => ({
    ...lookRequest(model, values),
    ...(word ? { word: Number(word) - 1 } : {}),
    ...(instead ? { instead } : {}),
  }),
});

const HEADS = laboratoryView({
  id: "heads",
  ability: "heads",
  name: "Heads",
  lead: "What the model loses without each of its heads, measured on held-out texts.",
  fields: () => [],
  examples: () => [],
  request: (model) => ({ model: model.id }),
});

export const LABORATORY = [ARITHMETIC, CHANGE, PATCH, LAYERS, STEPS, TRAINING, ATTRIBUTION, HEADS];
