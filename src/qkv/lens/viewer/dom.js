// Elements, rows in which one element has the focus, and radio buttons. No framework: whatever comes from a text or a model
// becomes a text node, never markup, and styles are set one by one, so that a strict content security policy holds.

const SVG = "http://www.w3.org/2000/svg";

export function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function draw(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export const bold = (text) => make("b", { dir: "auto" }, text);

export const words = (text) => make("span", { class: "text", dir: "auto" }, text);

export const small = (text) => make("span", { class: "which" }, text);

export const button = (attributes, ...children) => make("button", { type: "button", ...attributes }, ...children);

export const about = (text) => make("p", { class: "about" }, text);

/** One element of several has the focus; arrow keys, Home and End move it. `columns` gives a table's width. */
export function roving(container, elements, columns) {
  const focus = (position) => {
    if (!elements[position]) return false;
    elements.forEach((element, n) => element.setAttribute("tabindex", n === position ? "0" : "-1"));
    elements[position].focus();
    return true;
  };
  elements.forEach((element, n) => element.setAttribute("tabindex", n ? "-1" : "0"));
  container.addEventListener("keydown", (event) => {
    const here = elements.indexOf(event.target);
    if (here < 0) return;
    const width = columns || elements.length;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns || 1, ArrowUp: -(columns || 1) };
    const ends = { Home: here - (here % width), End: here - (here % width) + width - 1 };
    const position = event.key in steps ? here + steps[event.key] : ends[event.key];
    if (position !== undefined && focus(position)) event.preventDefault();
  });
}

/** A row of radio buttons. */
export function choice(label, names, chosen, choose) {
  const group = make("div", { class: "choice", role: "radiogroup", "aria-label": label });
  const buttons = Object.entries(names).map(([name, text]) => {
    const attributes = { role: "radio", "aria-checked": String(name === chosen), "data-key": `${label} ${name}` };
    const other = () => name !== chosen && choose(name);
    return button({ ...attributes, onclick: other, onfocus: other }, text);
  });
  group.append(...buttons);
  roving(group, buttons);
  buttons.forEach((button) => button.setAttribute("tabindex", button.getAttribute("aria-checked") === "true" ? "0" : "-1"));
  return group;
}
