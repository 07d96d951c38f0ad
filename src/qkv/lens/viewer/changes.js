// Changes of a model or of its text as plain objects, as the service takes them.

/** A change without what only people read, and without what it leaves open. */
export function plainChange({ says, ...change }) {
  return Object.fromEntries(Object.entries(change).filter(([, value]) => value !== null && value !== undefined));
}

const same = (a, b) => JSON.stringify(Object.entries(a).sort()) === JSON.stringify(Object.entries(b).sort());

/** The changes with one more, or without it where it is there. */
export function toggled(changes, change) {
  const rest = changes.filter((one) => !same(one, change));
  return rest.length < changes.length ? rest : [...changes, change];
}

export const has = (changes, change) => changes.some((one) => same(one, change));

/** The changes with a temperature of all attention, which 1 takes away. */
export function withTemperature(changes, value) {
  const rest = changes.filter((one) => !(one.change === "temperature" && one.attention === undefined));
  return value === 1 ? rest : [...rest, { change: "temperature", value }];
}

/** The temperature of all attention. */
export const temperatureOf = (changes) => (changes.find((one) => one.change === "temperature" && one.attention === undefined) || { value: 1 }).value;

/** The changes with a weight set for a head; null takes it away. */
export function withWeight(changes, { attention, head, query, key }, value) {
  const place = ["weight", attention, head, query, key].join();
  const rest = changes.filter((one) => [one.change, one.attention, one.head, one.query, one.key].join() !== place);
  return value === null ? rest : [...rest, { change: "weight", attention, query, key, value, head }];
}

/** The words of a text after edits of words: [word, whether it is new]. */
export function editedWords(words, changes) {
  const found = words.map((word) => [word, false]);
  for (const one of changes) {
    if (!["replace", "delete", "move"].includes(one.change)) continue;
    const [word] = found.splice(one.word, 1);
    if (one.change === "replace") found.splice(one.word, 0, [one.text, true]);
    if (one.change === "move") found.splice(one.to, 0, [word[0], true]);
  }
  return found;
}
