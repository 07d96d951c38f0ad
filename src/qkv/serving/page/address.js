// The address of a view: #MODEL/VIEW?name=value&... All of it is behind the #, which browsers keep to themselves.

const WAIT = 400; // ms: browsers refuse pages that change their address too often

let timer = null;
let waiting = null; // the next address, and the one in whose place it goes

/** The model, the view and the values that an address names; each may be missing: `#NAME` alone is one of a model or a view. */
export function readAddress(hash = location.hash) {
  const [path, query = ""] = split(hash.replace(/^#/, ""), "?");
  const names = path.split("/").map(decoded);
  const [model, view] = names.length > 1 ? names : [names[0], names[0]];
  return { model, view, values: Object.fromEntries(new URLSearchParams(query)) };
}

/** The address of a view; empty values are left out. */
export function addressOf(model, view, values = {}) {
  const given = Object.entries(values).filter(([, value]) => value !== "" && value !== undefined);
  const query = new URLSearchParams(given).toString();
  return `#${encodeURIComponent(model)}/${encodeURIComponent(view)}${query && `?${query}`}`;
}

/** Show an address in the browser's bar: as a step that the back button returns from, or soon in place of the last one. */
export function writeAddress(address, isStep) {
  clearTimeout(timer);
  waiting = null;
  if (address === location.hash) return;
  if (isStep) return void history.pushState(null, "", address);
  waiting = { address, last: location.hash };
  timer = setTimeout(flushAddress, WAIT);
}

/** Show the address that waits, if there is one: before the page goes elsewhere. */
export function flushAddress() {
  clearTimeout(timer);
  if (waiting?.last === location.hash) history.replaceState(null, "", waiting.address);
  waiting = null;
}

function split(text, mark) {
  const at = text.indexOf(mark);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}
