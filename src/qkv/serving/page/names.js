// Names and numbers in the reader's language.

import { language } from "../viewer/language.js";

const locale = () => (language() === "zh" ? "zh-Hans" : "en");

/** The name of a language from its code. */
export function languageName(code) {
  try {
    const name = new Intl.DisplayNames([locale()], { type: "language" }).of(code);
    return name.charAt(0).toUpperCase() + name.slice(1);
  } catch {
    return code;
  }
}

/** A whole number with its thousands apart: 28,995. */
export const whole = (count) => new Intl.NumberFormat(locale()).format(count);

/** A large number in words: 7.6 million. */
export const rounded = (count) => new Intl.NumberFormat(locale(), { notation: "compact", compactDisplay: "long", maximumSignificantDigits: 2 }).format(count);

/** A number with two decimals, and a minus as wide as a plus. */
export const signed = (value) => value.toFixed(2).replace("-", "−");

/** A score with as many decimals as tell something. */
export const score = (value) => value.toFixed(Math.abs(value) >= 10 ? 1 : Math.abs(value) >= 1 ? 2 : 3).replace("-", "−");

/** A share as a percentage; tiny ones are said to be so. */
export function percent(share) {
  if (share > 0 && share < 0.001) return "< 0.1 %";
  return `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
}
