// The frame around every picture: title, controls in one row, the picture, a legend; full screen, and files to download.

import { button, make } from "./dom.js";
import { say } from "./language.js";
import { standaloneSvg } from "./standalone.js";

const PNG_WIDTH = 2000; // least width of a PNG file, in pixels

/**
 * A figure. `picture` is an element, an <svg> where it can be; one with a method `toSvg()` returns the text of an SVG file itself.
 * `legend` is an element or a text below the picture; `name` becomes the name of the files.
 */
export function figure({ title, controls = [], picture, legend = null, name }) {
  const file = () => (picture.toSvg ? picture.toSvg() : standaloneSvg(picture, title));
  const tools = make(
    "div",
    { class: "qkv-figure-tools", role: "group", "aria-label": say("Picture: {title}", { title }) },
    fullScreenButton(),
    button({ class: "plain", title: say("Download as a picture"), onclick: () => savePng(file(), name) }, "PNG"),
    button({ class: "plain", title: say("Download as a drawing that scales"), onclick: () => saveSvg(file(), name) }, "SVG"),
  );
  return make(
    "figure",
    { class: "qkv-figure", "aria-label": title, "data-name": name },
    make("div", { class: "qkv-figure-head" }, make("h2", {}, title), tools),
    controls.length ? make("div", { class: "qkv-figure-controls" }, ...controls) : null,
    make("div", { class: "qkv-figure-picture" }, picture),
    legend ? make("figcaption", {}, legend) : null,
  );
}

/** A button that fills the screen with its figure; null where the browser does not allow it. */
function fullScreenButton() {
  if (!document.fullscreenEnabled) return null;
  return button({ class: "plain full-screen", onclick: ({ currentTarget }) => toggleFullScreen(currentTarget.closest(".qkv-figure")) }, say("Full screen"));
}

/**
 * The viewer fills the screen, and all but one figure is hidden, so that a view which is drawn anew stays there: then the figure
 * that is new is shown, such as the head that was opened, or the one of the same name, or the first.
 */
function toggleFullScreen(figure) {
  const viewer = figure.closest(".qkv-viewer");
  if (document.fullscreenElement) return document.exitFullscreen();
  const figures = () => [...viewer.querySelectorAll(".qkv-figure")];
  const nameOf = (one) => one.dataset.name;
  let [names, shown] = [figures().map(nameOf), nameOf(figure)];
  const mark = (chosen) => {
    figures().forEach((one) => {
      one.classList.toggle("full", one === chosen);
      one.querySelector(".full-screen").textContent = one === chosen ? say("Leave full screen") : say("Full screen");
    });
    if (chosen) [names, shown] = [figures().map(nameOf), nameOf(chosen)];
  };
  const follow = () => {
    const found = figures();
    if (!found.length || found.map(nameOf).join() === names.join() && found.some((one) => one.matches(".full"))) return;
    mark(found.find((one) => !names.includes(nameOf(one))) || found.find((one) => nameOf(one) === shown) || found[0]);
  };
  const watching = new MutationObserver(follow);
  viewer.onfullscreenchange = () => {
    if (document.fullscreenElement === viewer) return;
    watching.disconnect();
    mark(null);
  };
  mark(figure);
  watching.observe(viewer, { childList: true, subtree: true });
  return viewer.requestFullscreen();
}

function save(url, name) {
  make("a", { href: url, download: name }).click();
}

function saveSvg(text, name) {
  const url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  save(url, `${name}.svg`);
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

async function savePng(text, name) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const scale = Math.max(2, PNG_WIDTH / image.width);
  const canvas = make("canvas", { width: Math.round(image.width * scale), height: Math.round(image.height * scale) });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  save(canvas.toDataURL("image/png"), `${name}.png`);
}
