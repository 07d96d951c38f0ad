// Runs before the page is drawn, so that it does not flash in the wrong colours. Until the user chooses, the system's theme applies.
"use strict";
try {
  const chosen = localStorage.getItem("qkv-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage is blocked: the system's theme applies.
}
