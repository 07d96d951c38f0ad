// A heat map as a small picture, which follows the colours of the page.

import { make } from "./dom.js";

/**
 * A small heat map; the quantile `full` of the numbers and all above it have the full colour. `numbers` is a matrix or a function
 * that returns it, which is called when the picture is first seen.
 */
export function picture(numbers, element, full = 1) {
  const canvas = make("canvas", { class: "heat", "aria-hidden": "true" });
  const read = typeof numbers === "function" ? numbers : () => numbers;
  canvas.paint = () => paint(canvas, read(), element, full);
  seen.observe(canvas);
  return canvas;
}

function paint(canvas, matrix, element, full) {
  canvas.width = matrix[0].length;
  canvas.height = matrix.length;
  const style = getComputedStyle(element);
  const [ink, against] = ["--ink", "--other"].map((name) => style.getPropertyValue(name).trim().split(/\s+/).map(Number));
  const flat = matrix.flat();
  const most = quantile(flat, full) || 1;
  const image = new ImageData(canvas.width, canvas.height);
  flat.forEach((value, n) => {
    const [r, g, b] = value < 0 ? against : ink;
    image.data.set([r, g, b, Math.round(255 * Math.min(1, Math.pow(Math.abs(value) / most, 0.8)))], 4 * n);
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
  canvas.dataset.painted = "yes";
}

function quantile(numbers, full) {
  if (full === 1) return numbers.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  return numbers.map(Math.abs).sort((a, b) => a - b)[Math.floor(full * (numbers.length - 1))];
}

const WAITING = new Set(); // pictures that were seen and are not painted yet
const PART = 24; // milliseconds of painting at once

const later = window.requestIdleCallback || ((work) => setTimeout(work, 1));

function work() {
  const begun = performance.now();
  for (const canvas of WAITING) {
    WAITING.delete(canvas);
    if (canvas.isConnected) canvas.paint();
    if (performance.now() - begun > PART) break;
  }
  if (WAITING.size) later(work);
}

/** Paint pictures, a few at a time. */
function paintLater(canvases) {
  if (!WAITING.size) later(work);
  canvases.forEach((canvas) => WAITING.add(canvas));
}

const seen = new IntersectionObserver((entries) => {
  const found = entries.filter((entry) => entry.isIntersecting).map((entry) => entry.target);
  found.forEach((canvas) => {
    seen.unobserve(canvas);
    canvas.classList.add("seen");
  });
  if (found.length) paintLater(found);
}, { rootMargin: "200px" });

const repaint = () => paintLater([...document.querySelectorAll("canvas.heat.seen")].filter((canvas) => canvas.paint));

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);

new MutationObserver(repaint).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
