// Pictures as SVG files that need nothing else: colours and fonts are those that the reader sees, written out.

import { literal } from "./colours.js";
import { draw } from "./dom.js";

const COLOURS = ["fill", "stroke", "stop-color"];
const FONT = ["font-family", "font-size", "font-weight", "font-style"];
const KEPT = [
  ...FONT, "text-anchor", "dominant-baseline", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "paint-order",
  "opacity", "visibility", "display",
];
const MARGIN = 12; // around a picture, in pixels

/** The text of an SVG file with what the reader sees in an element: an SVG, or boxes, texts and canvases. */
export function standaloneSvg(element, title) {
  element.classList.add("qkv-saving"); // what follows the reader's scrolling goes back to its place
  const file = svgOf(element, title);
  element.classList.remove("qkv-saving");
  return new XMLSerializer().serializeToString(file);
}

function svgOf(element, title) {
  const frame = element.getBoundingClientRect();
  const [width, height] = [Math.max(frame.width, element.scrollWidth), Math.max(frame.height, element.scrollHeight)];
  const from = { left: frame.left - MARGIN, top: frame.top - MARGIN };
  const box = [width + 2 * MARGIN, height + 2 * MARGIN].map(Math.ceil);
  const paper = draw("rect", { width: "100%", height: "100%", fill: backgroundOf(element)[0] });
  const attributes = { width: box[0], height: box[1], viewBox: `0 0 ${box[0]} ${box[1]}` };
  return draw("svg", attributes, draw("title", {}, title), paper, ...drawn(element, from));
}

/** The first colour behind an element that is not transparent. */
function backgroundOf(element) {
  for (let one = element; one; one = one.parentElement) {
    const found = literal(getComputedStyle(one).backgroundColor);
    if (found && found[1] === 1) return found;
  }
  return ["#ffffff", 1];
}

/** An element and all in it, as SVG elements. */
function drawn(element, from) {
  const style = getComputedStyle(element);
  if (style.display === "none" || style.visibility === "hidden") return [];
  const frame = element.getBoundingClientRect();
  const place = { x: frame.left - from.left, y: frame.top - from.top, width: frame.width, height: frame.height };
  if (element instanceof SVGSVGElement) return [svgCopy(element, place)];
  if (element instanceof HTMLCanvasElement) return [imageOf(element, place)];
  const inside = [...element.childNodes].flatMap((child) => {
    if (child.nodeType === Node.TEXT_NODE) return textLines(child, style, from);
    return child.nodeType === Node.ELEMENT_NODE ? drawn(child, from) : [];
  });
  return [...boxOf(style, place), ...inside];
}

function svgCopy(svg, place) {
  const copy = svg.cloneNode(true);
  const [own, copies] = [svg, copy].map((one) => [one, ...one.querySelectorAll("*")]);
  own.forEach((one, n) => writeStyle(copies[n], getComputedStyle(one)));
  for (const [name, value] of Object.entries(place)) copy.setAttribute(name, value);
  return copy;
}

function writeStyle(copy, style) {
  for (const name of COLOURS) {
    const value = style.getPropertyValue(name);
    const found = literal(value);
    const opacity = name.replace("-color", "") + "-opacity";
    copy.setAttribute(name, found ? found[0] : value);
    if (found) copy.setAttribute(opacity, found[1] * parseFloat(style.getPropertyValue(opacity) || 1));
  }
  for (const name of KEPT) copy.setAttribute(name, style.getPropertyValue(name));
  for (const name of ["style", "class"]) copy.removeAttribute(name);
}

function imageOf(canvas, place) {
  if (canvas.paint) canvas.paint(); // it may not have been on the screen yet
  return draw("image", { ...place, href: canvas.toDataURL(), preserveAspectRatio: "none", "image-rendering": "pixelated" });
}

/** The background and the border of a box. */
function boxOf(style, place) {
  const background = literal(style.backgroundColor);
  const border = literal(style.borderTopColor);
  const width = style.borderTopStyle === "none" ? 0 : parseFloat(style.borderTopWidth);
  const filled = background && background[1] > 0;
  const framed = border && border[1] > 0 && width > 0 && parseFloat(style.borderLeftWidth) > 0;
  if (!(filled || framed) || !place.width || !place.height) return [];
  return [
    draw("rect", {
      ...place,
      rx: parseFloat(style.borderTopLeftRadius) || 0,
      fill: filled ? background[0] : "none",
      "fill-opacity": filled ? background[1] : 1,
      ...(framed ? { stroke: border[0], "stroke-opacity": border[1], "stroke-width": width } : {}),
    }),
  ];
}

/** The lines of a text as the browser broke them. */
function textLines(node, style, from) {
  const lines = [];
  const range = document.createRange();
  for (let n = 0; n < node.length; n += 1) {
    range.setStart(node, n);
    range.setEnd(node, n + 1);
    const found = range.getClientRects()[0];
    if (!found || !found.width || !found.height) continue;
    const last = lines[lines.length - 1];
    if (last && Math.abs(last.top - found.top) < 2) last.text += node.data[n];
    else lines.push({ left: found.left, top: found.top, height: found.height, text: node.data[n] });
  }
  const [colour, opacity] = literal(style.color);
  const font = Object.fromEntries(FONT.map((name) => [name, style.getPropertyValue(name)]));
  return lines.filter((line) => line.text.trim()).map(({ left, top, height, text }) => {
    const y = top - from.top + height / 2;
    const attributes = { x: left - from.left, y, "dominant-baseline": "central", fill: colour, "fill-opacity": opacity };
    return draw("text", { ...attributes, ...font }, text.trim());
  });
}
