// Views of word vectors that the viewer draws: analogies, a map of many words, and neighbours through training.

import { say } from "../viewer/language.js";
import { laboratoryView } from "./laboratory.js";
import { wordsIn } from "./words.js";

const ANALOGIES = [["man", "king", "woman"], ["france", "paris", "germany"], ["good", "better", "bad"]];
const COUNTS = ["200", "500", "1000"];

const ANALOGY = laboratoryView({
  id: "analogy",
  ability: "analogy",
  name: "Analogies",
  lead: "The first word is to the second as the third is to which? The arrows are differences of vectors.",
  fields: () => ["First word", "Second word", "Third word"].map((label, number) => ({ name: ["first", "second", "third"][number], kind: "line", label: say(label) })),
  examples: () => ANALOGIES.map(([first, second, third]) => ({ first, second, third })),
  request: (model, { first, second, third }) => ({ model: model.id, first, second, third }),
});

const MAP = laboratoryView({
  id: "map",
  ability: "projector",
  name: "Map",
  lead: "The most frequent words in a plane: words near each other are used alike.",
  fields: () => [
    { name: "count", kind: "choice", label: say("Words"), value: "500", options: COUNTS.map((count) => [count, count]) },
    { name: "method", kind: "choice", label: say("Projection"), value: "pca", options: [["pca", "PCA"], ["tsne", say("PCA and t-SNE (slower)")]] },
  ],
  examples: () => [],
  request: (model, { count, method }) => ({ model: model.id, count: Number(count), method }),
});

const FOLLOWED = laboratoryView({
  id: "words-training",
  ability: "neighbours_through_training",
  name: "Through training",
  lead: "The nearest neighbours of your words at snapshots of the training.",
  fields: () => [{ name: "text", kind: "line", label: say("Up to six words, with spaces between them") }],
  request: (model, { text }) => ({ model: model.id, words: wordsIn(text) }),
});

export const WORD_VIEWS = [MAP, ANALOGY, FOLLOWED];
