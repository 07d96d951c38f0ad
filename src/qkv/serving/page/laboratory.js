// Views of the laboratory: each asks one endpoint, and the viewer draws the answer.

import { make } from "../viewer/dom.js";
import { say } from "../viewer/language.js";
import { post } from "./api.js";
import { lookRequest } from "./look.js";
import { chosen, showView } from "./shown.js";

const textField = (model) => ({ name: "text", label: model.languages ? say("Text") : say("Text"), lang: model.languages?.[0] });

/** A view of a text: `path` is its endpoint, `choices` are the parts of the viewer's state that the endpoint takes. */
function laboratoryView({ path, choices = [], fields = (model) => [textField(model)], request = lookRequest, ...rest }) {
  return {
    ability: path,
    action: "Show",
    busy: "Computing…",
    fields,
    build: () => [make("div", { class: "card view" })],
    async run(panel, values, signal) {
      const body = request(panel.model, values);
      const view = await postChosen(path, body, chosen(panel, choices), signal);
      panel.show();
      showView(panel, view, (choice) => post(path, { ...body, ...choice }));
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
