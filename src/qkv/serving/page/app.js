// The page: it asks the server what its models can do, and opens a panel for each ability.

import { get, hasKey, useKey } from "./api.js";
import { fillPanel } from "./fill.js";
import { lookPanel } from "./look.js";
import { Panel } from "./panel.js";
import { predictPanel } from "./predict.js";
import { bindTheme } from "./switch.js";
import { translatePanel } from "./translate.js";
import { wordsPanel } from "./words.js";
import { writePanel } from "./write.js";

const PANELS = [
  ["translate", "translate", translatePanel],
  ["fill", "fill", fillPanel],
  ["write", "complete", writePanel],
  ["predict", "predict", predictPanel],
  ["words", "neighbours", wordsPanel],
  ["look", "look", lookPanel],
];
const nav = document.querySelector("nav");
const note = document.getElementById("note");
const keyForm = document.getElementById("key");
const opened = []; // ids of the panels in use
let chosen; // id of the visible panel

async function start() {
  note.textContent = "Loading the list of models…";
  try {
    const settings = await get("frontend/settings");
    if (settings.keyRequired && !hasKey()) {
      note.textContent = "";
      return showKeyForm();
    }
    open(await get("models"));
    keyForm.hidden = true;
  } catch (error) {
    note.textContent = error.message;
    if (error.status === 401) showKeyForm();
  }
}

/** Open the panels that these models have an ability for. */
function open(models) {
  for (const [id, ability, fill] of PANELS) {
    const able = models.filter((model) => model.can.includes(ability));
    if (!able.length || opened.includes(id)) continue;
    fill(new Panel(id, able));
    nav.querySelector(`[href="#${id}"]`).hidden = false;
    opened.push(id);
  }
  note.textContent = opened.length ? "" : "This page cannot use any of the server's models; see the API.";
  show();
}

function show(moved = false) {
  const wanted = location.hash.slice(1);
  chosen = opened.includes(wanted) ? wanted : (chosen ?? opened[0]);
  for (const id of opened) {
    document.getElementById(id).hidden = id !== chosen;
    const link = nav.querySelector(`[href="#${id}"]`);
    if (id === chosen) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (!chosen) return;
  const title = document.querySelector(`#${chosen} h1`);
  document.title = `${title.textContent} · qkv`;
  if (moved) title.focus();
}

function showKeyForm() {
  keyForm.hidden = false;
  keyForm.elements.key.focus();
}

keyForm.addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(keyForm.elements.key.value.trim());
  if (opened.length) keyForm.hidden = true;
  else start();
});
document.addEventListener("key-needed", showKeyForm);
window.addEventListener("hashchange", () => show(true));

bindTheme(document.getElementById("theme"));
start();
