// Making and changing elements. Text goes in as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element with properties and children; what is not an element becomes text. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.map(asNode));
  return element;
}

/** The same for pictures, whose properties are attributes. */
export function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.map(asNode));
  return element;
}

function asNode(child) {
  return child instanceof Node ? child : document.createTextNode(String(child));
}

/** A bar as long as a share from 0 to 1; numbers beside it tell the same, so it is not read aloud. */
export function bar(share) {
  const inner = make("span");
  inner.style.setProperty("--share", Math.max(0, Math.min(1, share)));
  return make("span", { className: "meter", ariaHidden: "true" }, inner);
}

export function percent(share) {
  if (share > 0 && share < 0.001) return "< 0.1 %";
  return `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
}

/** Numbers of weights for people: 7.6 million. */
export function rounded(count) {
  return new Intl.NumberFormat("en", { notation: "compact", compactDisplay: "long", maximumSignificantDigits: 2 }).format(count);
}
