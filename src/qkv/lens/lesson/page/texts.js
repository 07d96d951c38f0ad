// Texts of a lesson in the reader's language, and numbers as people write them.

import { say } from "../../viewer/language.js";

/** A text of the lesson, {text, values}; a plain string is a word of the user's or a number, and stays as it is. */
export const tell = (one) => (typeof one === "string" ? one : say(one.text, one.values));

/** A number with some digits after the point and a minus sign; -0.00 is 0.00. */
export function written(value, digits = 2) {
  const text = Math.abs(value).toFixed(digits);
  return value < 0 && Number(text) !== 0 ? `−${text}` : text;
}

/** A share as a percentage. */
export const share = (value) => `${(100 * value).toFixed(value < 0.0995 ? 1 : 0)} %`;

/** The number that somebody typed, with a comma or a point, any minus sign, and perhaps a percent sign; NaN if it is none. */
export function typed(text) {
  const plain = text.trim().replace(/[−–—－]/g, "-").replace(/[,，]/g, ".").replace(/\s/g, "");
  const [, number, sign] = /^([+-]?(?:\d+\.?\d*|\.\d+))([%％]?)$/.exec(plain) || [];
  return number === undefined ? NaN : Number(number) / (sign ? 100 : 1);
}

/** The width of a text in a picture whose letters have this size, roughly; Chinese characters are square. */
export function textWidth(text, size) {
  return [...text].reduce((sum, letter) => sum + (letter > "\u2e7f" ? 1.02 : /[mwMW@%—]/.test(letter) ? 0.86 : 0.57), 0) * size;
}

/** A text that fits into a width, with … where it was cut. */
export function cut(text, width, size) {
  if (textWidth(text, size) <= width) return text;
  const letters = [...text];
  while (letters.length > 1 && textWidth(`${letters.join("")}…`, size) > width) letters.pop();
  return `${letters.join("")}…`;
}
