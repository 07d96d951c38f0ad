// Numbers of the laboratory: aligned, with a minus sign of the width of a digit.

/** A number with so many decimals; a hidden one, which JSON has as null, is minus infinity. */
export function fixed(value, digits = 3) {
  if (value === null) return "−∞";
  const text = value.toFixed(digits);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "−");
}

/** A number with its sign. */
export const signed = (value, digits = 3) => (Number(value.toFixed(digits)) > 0 ? "+" : "") + fixed(value, digits);

/** A number as wide as a negative one, for columns. */
export const padded = (value, digits = 2) => (value < 0 && Number(value.toFixed(digits)) < 0 ? "" : "\u2007") + fixed(value, digits);

/** The largest size of some numbers; 1 where all are 0, so that it can divide. */
export function largest(values) {
  return values.reduce((most, value) => Math.max(most, value === null ? 0 : Math.abs(value)), 0) || 1;
}

/** The numbers of the `count` largest values, in their order. */
export function leading(values, count) {
  const order = values.map((_, n) => n).sort((a, b) => values[b] - values[a]);
  return order.slice(0, count).sort((a, b) => a - b);
}
