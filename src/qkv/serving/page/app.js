// The page: it asks the server for its models, and shows the view that the address names.

import { button } from "../viewer/dom.js";
import { say } from "../viewer/language.js";
import { addressOf, flushAddress, readAddress, writeAddress } from "./address.js";
import { get } from "./api.js";
import { examplesOf } from "./examples.js";
import { drawNavigation } from "./navigation.js";
import { Panel } from "./panel.js";
import { bindSwitches } from "./switch.js";
import { resolve, viewsOf } from "./views.js";

const [main, nav, note, holder] = ["main", "nav", "note", "view"].map((id) => document.getElementById(id));
const panels = new Map(); // by model and view: a view that was left is shown again as it was
const texts = new Map(); // by model: the text that its views have in common
let models = [];
let here = {}; // the model, the view and its panel

async function start() {
  note.textContent = say("Loading the list of models…");
  try {
    models = (await get("models")).filter((model) => viewsOf(model).length);
  } catch (error) {
    note.replaceChildren(error.message);
    if (error.status === 401) note.append(" ", button({ onclick: start }, say("Give the key")));
    return;
  }
  note.textContent = models.length ? "" : say("This page cannot use any of the server's models; see the API.");
  document.body.classList.add("ready");
  if (models.length) open(false);
}

/** Show what the address names. */
function open(isMoved) {
  const { values, ...names } = readAddress();
  const { model, view } = resolve(names, models);
  const panel = panelOf(model, view);
  const isNew = here.panel !== panel;
  here = { model, view, panel };
  panel.fill(Object.keys(values).length ? values : usual(panel));
  if (isNew) {
    holder.replaceChildren(panel.section);
    drawNavigation(nav, models, here);
    document.title = `${say(view.name)} · ${model.id} · qkv`;
    if (isMoved && !nav.contains(document.activeElement?.closest("select"))) panel.title.focus({ preventScroll: true });
    if (isMoved) scrollTo(0, 0);
  }
  remember(panel.values(), false);
  panel.refresh();
}

function panelOf(model, view) {
  const key = `${model.id}/${view.id}`;
  if (!panels.has(key)) {
    const panel = new Panel(model, view, (values, isStep) => here.panel === panel && remember(values, isStep));
    panel.go = (id, values) => {
      location.hash = addressOf(model.id, id, values);
    };
    panels.set(key, panel);
  }
  return panels.get(key);
}

/** The values of a view that was opened without any: those it had, with the model's text, else the first example. */
function usual(panel) {
  const first = examplesOf(panel.model, panel.view)[0] ?? {};
  const [own, common] = [panel.values(), texts.get(panel.model.id)];
  const isOld = common === undefined || panel.fields.every(({ name }) => !(name in common) || common[name] === own[name]);
  if (panel.shown !== null && isOld) return own;
  const values = { ...first, ...(panel.view.examples ? {} : common) };
  return panel.view.complete?.(values, examplesOf(panel.model, panel.view)) ?? values;
}

/** Keep the values of the view that is shown: in the address, and the text for the model's other views. */
function remember(values, isStep) {
  const { model, view, panel } = here;
  const { text, second } = values;
  if (!view.examples && text) texts.set(model.id, second === undefined ? { text } : { text, second });
  const changed = Object.entries(values).filter(([name, value]) => value !== (panel.fields.find((field) => field.name === name)?.value ?? ""));
  writeAddress(addressOf(model.id, view.id, Object.fromEntries(changed)), isStep);
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("hashchange", () => models.length && open(true));

for (const event of ["click", "change"]) document.addEventListener(event, flushAddress, { capture: true });

bindSwitches();
start();
