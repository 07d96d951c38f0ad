"use strict";
// Shows the claims of the chosen topic and verdict; the choice stands in the address, so that it can be shared.
const chosen = { topic: "", verdict: "" };

function show() {
  let shown = 0;
  const articles = document.querySelectorAll("article");
  for (const article of articles) {
    const fits = Object.entries(chosen).every(([key, value]) => !value || article.dataset[key] === value);
    article.hidden = !fits;
    shown += fits;
  }
  for (const button of document.querySelectorAll("button[data-key]")) {
    button.setAttribute("aria-pressed", String(chosen[button.dataset.key] === button.dataset.value));
  }
  document.querySelector(".count").textContent = `${shown} of ${articles.length} claims`;
}

function choose(key, value) {
  chosen[key] = value;
  const wanted = new URLSearchParams(Object.entries(chosen).filter(([, one]) => one));
  history.replaceState(null, "", `#${wanted}`);
  show();
}

if (document.querySelector(".filters")) {
  for (const [key, value] of new URLSearchParams(location.hash.slice(1))) {
    if (key in chosen) chosen[key] = value;
  }
  for (const button of document.querySelectorAll("button[data-key]")) {
    button.addEventListener("click", () => choose(button.dataset.key, button.dataset.value));
  }
  show();
}
