// Attention weights in the short form of pages: 16 bits each, in base64, read when a head is drawn first.

const DIGITS = 1e4;

/** Replace short forms in the values of a view by rows of numbers, each read at its first use. */
export function unpack(values) {
  if (values === null || typeof values !== "object") return values;
  for (const [name, value] of Object.entries(values)) {
    if (value && typeof value.packed === "string") readLater(values, name, value);
    else unpack(value);
  }
  return values;
}

function readLater(holder, name, { packed, columns }) {
  const get = () => {
    const value = rowsOf(packed, columns);
    Object.defineProperty(holder, name, { value, enumerable: true });
    return value;
  };
  Object.defineProperty(holder, name, { get, enumerable: true, configurable: true });
}

function rowsOf(packed, columns) {
  const bytes = Uint8Array.from(atob(packed), (char) => char.charCodeAt(0));
  const numbers = new DataView(bytes.buffer);
  const value = (n) => numbers.getUint16(2 * n, true) / DIGITS;
  return Array.from({ length: bytes.length / 2 / columns }, (_, t) => Array.from({ length: columns }, (_, s) => value(t * columns + s)));
}
