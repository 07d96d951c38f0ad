// A heat map as a small picture, which follows the colours of the page.

import { make } from "./dom.js";

/** A small heat map; the quantile `full` of the numbers and all above it have the full colour. */
export function picture(matrix, element, full = 1) {
  const canvas = make("canvas", { class: "heat", "aria-hidden": "true" });
  canvas.width = matrix[0].length;
  canvas.height = matrix.length;
  const paint = () => {
    const ink = getComputedStyle(element).getPropertyValue("--ink").trim().split(/\s+/).map(Number);
    const against = getComputedStyle(element).getPropertyValue("--other").trim().split(/\s+/).map(Number);
    const sizes = matrix.flat().map(Math.abs).sort((a, b) => a - b);
    const most = sizes[Math.floor(full * (sizes.length - 1))] || 1;
    const image = new ImageData(canvas.width, canvas.height);
    matrix.flat().forEach((value, n) => {
      const [r, g, b] = value < 0 ? against : ink;
      image.data.set([r, g, b, Math.round(255 * Math.min(1, Math.pow(Math.abs(value) / most, 0.8)))], 4 * n);
    });
    canvas.getContext("2d").putImageData(image, 0, 0);
  };
  whenThemeChanges(element, paint);
  return canvas;
}

let painters = []; // elements on the page, and the functions that repaint them in other colours

function whenThemeChanges(element, paint) {
  painters.push([element, paint]);
  requestAnimationFrame(() => {
    painters = painters.filter(([one]) => one.isConnected);
    paint();
  });
}

const repaint = () => painters.forEach(([, paint]) => paint());

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);

new MutationObserver(repaint).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
