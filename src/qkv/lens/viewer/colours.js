// Colours as SVG files write them.

const CHANNELS = /^(rgba?|color)\(\s*(srgb\s+)?([^)]+)\)$/;

/** A computed colour as [hexadecimal colour, opacity]; null for “none” and for references to gradients. */
export function literal(colour) {
  const [, form, , inside] = CHANNELS.exec(colour) || [];
  if (!form) return null;
  const numbers = inside.split(/[\s,/]+/).map((one) => (one.endsWith("%") ? parseFloat(one) / 100 : parseFloat(one)));
  const scale = form === "color" ? 255 : 1;
  const hex = numbers.slice(0, 3).map((one) => Math.round(Math.min(255, one * scale)).toString(16).padStart(2, "0"));
  return [`#${hex.join("")}`, numbers[3] ?? 1];
}
