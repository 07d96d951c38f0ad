// The list of models, with the views of the chosen one; on narrow screens two fields to choose from.

import { make } from "../viewer/dom.js";
import { say } from "../viewer/language.js";
import { addressOf } from "./address.js";
import { roleOf } from "./describe.js";
import { GROUPS, viewsOf } from "./views.js";

/** Draw the navigation for a place, { model, view }. */
export function drawNavigation(nav, models, { model, view }) {
  const hadFocus = nav.querySelector("select:focus")?.name;
  nav.replaceChildren(pickers(models, model, view), modelList(models, model, view));
  nav.querySelector(`select[name=${hadFocus}]`)?.focus();
}

function modelList(models, chosen, view) {
  const items = models.map((model) => {
    const current = model === chosen;
    const link = make("a", { class: "model", href: addressOf(model.id, viewsOf(model)[0].id), "aria-current": current ? "true" : null },
      make("b", {}, model.id), make("span", {}, roleOf(model)));
    return make("li", {}, link, current ? groups(model, view) : null);
  });
  return make("ul", { class: "models" }, ...items);
}

function groups(model, chosen) {
  const lists = groupsOf(model).map(([name, views]) => {
    const links = views.map((view) => make("li", {}, make("a", { href: addressOf(model.id, view.id), "aria-current": view === chosen ? "page" : null }, say(view.name))));
    return make("div", { class: "group" }, make("p", { "aria-hidden": "true" }, say(name)), make("ul", { "aria-label": say(name) }, ...links));
  });
  return make("div", { class: "views" }, ...lists);
}

function groupsOf(model) {
  const own = viewsOf(model);
  return Object.entries(GROUPS).map(([name, views]) => [name, views.filter((view) => own.includes(view))]).filter(([, views]) => views.length);
}

function pickers(models, model, view) {
  const choose = (to) => (location.hash = to);
  const options = models.map((one) => make("option", { value: addressOf(one.id, viewsOf(one)[0].id), selected: one === model ? "" : null }, `${one.id}: ${roleOf(one)}`));
  const grouped = groupsOf(model).map(([name, views]) =>
    make("optgroup", { label: say(name) }, ...views.map((one) => make("option", { value: addressOf(model.id, one.id), selected: one === view ? "" : null }, say(one.name)))));
  const field = (name, label, ...children) => make("label", {}, make("span", {}, label), make("select", { name, onchange: ({ target }) => choose(target.value) }, ...children));
  return make("div", { class: "pickers" }, models.length > 1 ? field("model", say("Model"), ...options) : null, field("view", say("View"), ...grouped));
}
