// Runs before the page is drawn, so that it does not flash in the other colours. Until someone chooses, the system decides.
"use strict";
try {
  const chosen = localStorage.getItem("qkv-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // A browser that keeps nothing: the system goes on deciding.
}
