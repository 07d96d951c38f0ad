// The state of a view as the part of an address after #, so that a link restores it: tab=attention&head=["decoder.0.cross",1]

/** Write a plain object; entries that are null are left out. */
export function writeState(state) {
  const said = Object.entries(state).filter(([, value]) => value !== null && value !== undefined);
  return new URLSearchParams(said.map(([name, value]) => [name, isPlain(value) ? value : JSON.stringify(value)])).toString();
}

/** Read what `writeState` wrote, with or without # before it. */
export function readState(text) {
  const found = new URLSearchParams(text.replace(/^#/, ""));
  return Object.fromEntries([...found].map(([name, value]) => [name, isPlain(value) ? value : JSON.parse(value)]));
}

/** Whether a value is a string that cannot be taken for another value. */
function isPlain(value) {
  if (typeof value !== "string") return false;
  try {
    JSON.parse(value);
    return false;
  } catch {
    return true;
  }
}
