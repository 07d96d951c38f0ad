// Creating elements. Text is always inserted as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

/** Create an element with properties and children; a child that is not a node becomes text. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.map(asNode));
  return element;
}

/** Create an SVG element with attributes and children. */
export function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.map(asNode));
  return element;
}

function asNode(child) {
  return child instanceof Node ? child : document.createTextNode(String(child));
}

/** Create a bar for a share from 0 to 1; hidden from screen readers, which read the number beside it. */
export function bar(share) {
  const inner = make("span");
  inner.style.setProperty("--share", Math.max(0, Math.min(1, share)));
  return make("span", { className: "meter", ariaHidden: "true" }, inner);
}

export function percent(share) {
  if (share > 0 && share < 0.001) return "< 0.1 %";
  return `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
}

/** Format a number of parameters: 7.6 million. */
export function rounded(count) {
  return new Intl.NumberFormat("en", { notation: "compact", compactDisplay: "long", maximumSignificantDigits: 2 }).format(count);
}
