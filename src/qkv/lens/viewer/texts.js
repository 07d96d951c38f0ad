// Tokens and words of the texts of a view.

import { say } from "./language.js";
import { MIN_SHARE, mean, percent } from "./numbers.js";

export const MARKS = {
  "<s>": "where a text begins",
  "[CLS]": "where a text begins; often stands for all of it",
  "</s>": "where a text ends",
  "[SEP]": "where a text, or a part of it, ends",
  "[MASK]": "a hidden word, to be predicted",
  "<unk>": "a text that the vocabulary has no token for",
};

export function bare(token) {
  return token.replace(/^(▁|##)/, "") || "␣";
}

/** The words or tokens of a text; special tokens such as <s> are always by themselves. */
export function itemsOf(attention, side, unit) {
  const words = attention[`${side}_words`];
  const list = [];
  attention[side].forEach((token, position) => {
    const word = words[position];
    const last = list[list.length - 1];
    if (unit === "words" && word !== null && last && last.word === word) return void last.positions.push(position);
    const inside = unit === "tokens" && word !== null && position > 0 && words[position - 1] === word;
    const text = word === null ? token : unit === "words" ? attention.words[side][word] : bare(token);
    list.push({ word, text, inside, mark: word === null, positions: [position] });
  });
  return list;
}

const areTokens = (items, count) => items.length === count && items.every((item, n) => item.positions.length === 1 && item.positions[0] === n);

/** Weights between items: the sum over the attended tokens, the mean over the attending ones. */
export function gathered(matrix, rows, columns) {
  if (areTokens(rows, matrix.length) && areTokens(columns, matrix[0].length)) return matrix;
  return rows.map((row) =>
    columns.map((column) => {
      let sum = 0;
      for (const t of row.positions) for (const s of column.positions) sum += matrix[t][s];
      return sum / row.positions.length;
    }),
  );
}

/** Whether some words are several tokens. */
export function inPieces(attention) {
  return ["source", "target"].some((side) => {
    const numbers = (attention[`${side}_words`] || []).filter((word) => word !== null);
    return new Set(numbers).size < numbers.length;
  });
}

export const firstUnit = (attention) => (inPieces(attention) && attention.words.source.length > 2 ? "words" : "tokens");

export function topItems(items, weights) {
  const best = items.map((item, n) => [item.text, weights[n]]).filter(([, weight]) => weight >= MIN_SHARE);
  best.sort((a, b) => b[1] - a[1]);
  return best.slice(0, 4).map(([text, weight]) => `${text} ${percent(weight)}`).join(", ") || say("nothing in particular");
}

const CLOSES = /^[.,;:!?…)\]}%”»。，、！？：；）」]/;
const OPENS = /[([{“«（「]$/;
const SPACELESS = "[\\u3040-\\u30ff\\u3400-\\u9fff]";

/** Words as a sentence: no space before closing punctuation, nor between characters of scripts without spaces. */
export function sentence(list) {
  const ends = new RegExp(`${SPACELESS}$`);
  const begins = new RegExp(`^${SPACELESS}`);
  return list.reduce((text, word) => {
    const close = !text || CLOSES.test(word) || OPENS.test(text) || (ends.test(text) && begins.test(word));
    return text + (close ? "" : " ") + word;
  }, "");
}
