// Runs before the page is drawn, so that it does not flash in the wrong colours. Until the user chooses, the system's theme and
// the browser's language apply.
"use strict";
for (const [name, known] of Object.entries({ theme: ["light", "dark"], language: ["en", "zh"] })) {
  try {
    const chosen = localStorage.getItem(`qkv-${name}`);
    if (known.includes(chosen)) document.documentElement.dataset[name] = chosen;
  } catch {
    // Storage is blocked: nothing was chosen.
  }
}
