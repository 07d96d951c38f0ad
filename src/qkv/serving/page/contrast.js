// A text with another word, to compare with: from pairs of words that most tokenizers know as one token each.

const PAIRS = "man woman, men women, boy girl, boys girls, he she, his her, king queen, father mother, dog cat, dogs cats, two three, red blue, black white, old young, big small, good bad, first second, day night, summer winter, north south, war peace, England France, London Paris, Mann Frau, Junge Mädchen, er sie, Hund Katze, zwei drei, rot blau, 男人 女人, 猫 狗, 白天 夜晚"
  .split(", ")
  .map((pair) => pair.split(" "));
const SWAPS = new Map(PAIRS.flatMap(([one, two]) => [[one, two], [two, one]]));

/** The text with the first word swapped that has a counterpart; the text itself where none has. */
export function contrast(text) {
  let done = false;
  return text.replace(/[\p{L}\p{M}]+/gu, (word) => {
    const small = word.toLowerCase();
    const found = SWAPS.get(word) ?? SWAPS.get(small);
    if (done || !found) return word;
    done = true;
    return SWAPS.has(word) || word === small ? found : found.charAt(0).toUpperCase() + found.slice(1);
  });
}
