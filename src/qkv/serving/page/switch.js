// The switch between light and dark colours.

const system = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";

/** Make a button switch the colours, and remember the choice. */
export function bindTheme(button) {
  const show = () => button.setAttribute("aria-checked", String(isDark()));
  button.addEventListener("click", () => {
    const chosen = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = chosen;
    show();
    try {
      localStorage.setItem("qkv-theme", chosen);
    } catch {
      // Storage is blocked: the choice lasts until the page is left.
    }
  });
  system.addEventListener("change", show);
  show();
}
