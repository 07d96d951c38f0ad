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
    { class: "qkv-figure", "aria-label": title },
    make("div", { class: "qkv-figure-head" }, make("h2", {}, title), tools),
    controls.length ? make("div", { class: "qkv-figure-controls" }, ...controls) : null,
    make("div", { class: "qkv-figure-picture" }, picture),
    legend ? make("figcaption", {}, legend) : null,
  );
}

/** A button that fills the screen with its figure; null where the browser does not allow it. */
function fullScreenButton() {
  if (!document.fullscreenEnabled) return null;
  const toggle = ({ currentTarget }) => {
    const own = currentTarget.closest(".qkv-figure");
    if (document.fullscreenElement === own) return document.exitFullscreen();
    own.onfullscreenchange = () => {
      one.textContent = document.fullscreenElement === own ? say("Leave full screen") : say("Full screen");
    };
    return own.requestFullscreen();
  };
  const one = button({ class: "plain", onclick: toggle }, say("Full screen"));
  return one;
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
