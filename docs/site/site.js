"use strict";
// What the theme leaves out for those who use a keyboard or a screen reader.
document.addEventListener("DOMContentLoaded", () => {
  for (const one of document.querySelectorAll("p.caption[role=heading]")) one.setAttribute("aria-level", "2");
  document.querySelector("aside.sidebar-drawer")?.setAttribute("aria-label", "Site");
  document.querySelector("aside.toc-drawer")?.setAttribute("aria-label", "This page");
  for (const one of document.querySelectorAll("pre, .table-wrapper, article table")) {
    if (one.scrollWidth > one.clientWidth) one.tabIndex = 0;
  }
});

// The gallery of claims: shows those of the chosen topic and verdict; the choice stands in the address, so that it can be shared.
document.addEventListener("DOMContentLoaded", () => {
  const cards = [...document.querySelectorAll(".claims-cards article")];
  const buttons = [...document.querySelectorAll(".claims-filters button")];
  if (!cards.length) return;
  const chosen = { topic: "", verdict: "" };
  for (const [key, value] of new URLSearchParams(location.hash.slice(1))) if (key in chosen) chosen[key] = value;

  function show() {
    for (const card of cards) card.hidden = Object.entries(chosen).some(([key, value]) => value && card.dataset[key] !== value);
    buttons.forEach((button) => button.setAttribute("aria-pressed", String(chosen[button.dataset.key] === button.dataset.value)));
    const shown = cards.filter((card) => !card.hidden).length;
    document.querySelector(".claims-count").textContent = `${shown} of ${cards.length} claims`;
  }

  buttons.forEach((button) =>
    button.addEventListener("click", () => {
      chosen[button.dataset.key] = button.dataset.value;
      history.replaceState(null, "", `#${new URLSearchParams(Object.entries(chosen).filter(([, value]) => value))}`);
      show();
    }),
  );
  show();
});
