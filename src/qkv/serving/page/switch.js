// The switches between light and dark colours and between languages, and the texts of the page around its views.

import { language, say } from "../viewer/language.js";

const system = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";

/** Say the page's own texts in the reader's language, and make the switches work. */
export function bindSwitches() {
  document.documentElement.lang = language() === "zh" ? "zh-Hans" : "en";
  for (const one of document.querySelectorAll("[data-say]")) translate(one);
  for (const one of document.querySelectorAll("[data-say-label]")) one.ariaLabel = say(one.ariaLabel);
  bindTheme(document.getElementById("theme"));
  bindLanguage(document.getElementById("language"));
}

/** Say an element's text in the reader's language; an element that stands among English says so of its own text. */
function translate(element) {
  const text = say(element.textContent);
  if (text !== element.textContent) element.lang = document.documentElement.lang;
  element.textContent = text;
}

function bindTheme(button) {
  const show = () => button.setAttribute("aria-checked", String(isDark()));
  button.addEventListener("click", () => {
    const chosen = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = chosen;
    show();
    keep("qkv-theme", chosen);
  });
  system.addEventListener("change", show);
  show();
}

/** The button names the other language; the page is loaded again in it, at the same address. */
function bindLanguage(button) {
  const other = language() === "zh" ? ["en", "English", "en"] : ["zh", "中文", "zh-Hans"];
  [, button.textContent, button.lang] = other;
  button.addEventListener("click", () => {
    keep("qkv-language", other[0]);
    location.reload();
  });
}

function keep(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // Storage is blocked: the choice lasts until the page is left.
  }
}
