// The views of models, in the order in which they are listed; a model has those that its abilities allow.

import { FILL } from "./fill.js";
import { LABORATORY } from "./laboratory.js";
import { ATTENTION } from "./look.js";
import { PREDICT } from "./predict.js";
import { TRANSLATE } from "./translate.js";
import { WORDS } from "./words.js";
import { WORD_VIEWS } from "./word_views.js";
import { WRITE } from "./write.js";

/** Groups of views: what a model is for, and what happens inside it. */
export const GROUPS = {
  "Use": [TRANSLATE, FILL, WRITE, PREDICT, WORDS],
  "Look inside": [ATTENTION, ...LABORATORY, ...WORD_VIEWS],
};

const ALL = Object.values(GROUPS).flat();

/** The views of a model. */
export const viewsOf = (model) => ALL.filter((view) => model.can.includes(view.ability));

/** The model and the view that an address means; the first ones where it names none that is here. */
export function resolve({ model: name, view: id }, models) {
  const able = (model) => viewsOf(model).find((view) => view.id === id);
  const model = models.find((one) => one.id === name) ?? models.find(able) ?? models[0];
  return { model, view: able(model) ?? viewsOf(model)[0] };
}
