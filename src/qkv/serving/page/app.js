// The page: finds out what the server's models can do, and opens a panel for each of these things.

import { get, hasKey, useKey } from "./ask.js";
import { fillPanel } from "./fill.js";
import { lookPanel } from "./look.js";
import { Panel } from "./panel.js";
import { predictPanel } from "./predict.js";
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
const opened = []; // ids of panels that there is something to do in
let chosen; // the one that is shown

async function start() {
  note.textContent = "Asking the server what it can do…";
  try {
    const settings = await get("frontend/settings");
    if (settings.keyRequired && !hasKey()) {
      note.textContent = "";
      return askForKey();
    }
    open(await get("models"));
    keyForm.hidden = true;
  } catch (error) {
    note.textContent = error.message;
    if (error.status === 401) askForKey();
  }
}

/** Make the panels that these models have something to do in. */
function open(models) {
  for (const [id, ability, fill] of PANELS) {
    const able = models.filter((model) => model.can.includes(ability));
    if (!able.length || opened.includes(id)) continue;
    fill(new Panel(id, able));
    nav.querySelector(`[href="#${id}"]`).hidden = false;
    opened.push(id);
  }
  note.textContent = opened.length ? "" : "None of the models that are served can do anything on this page; see the API.";
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

function askForKey() {
  keyForm.hidden = false;
  keyForm.elements.key.focus();
}

keyForm.addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(keyForm.elements.key.value.trim());
  if (opened.length) keyForm.hidden = true;
  else start();
});
document.addEventListener("key-wanted", askForKey);
window.addEventListener("hashchange", () => show(true));

const theme = document.getElementById("theme");
const system = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";

function tellTheme() {
  theme.setAttribute("aria-checked", String(isDark()));
}

theme.addEventListener("click", () => {
  const chosen = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = chosen;
  tellTheme();
  try {
    localStorage.setItem("qkv-theme", chosen);
  } catch {
    // Then it is so until the page is left.
  }
});
system.addEventListener("change", tellTheme);
tellTheme();
start();
