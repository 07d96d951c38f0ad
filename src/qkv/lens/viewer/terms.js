// What a step of the arithmetic is made of: its inputs, the numbers of each key so far, and the terms of a score.

const SHOWS_INPUT = new Set([
  "norm_before", "query", "norm", "norm_feedforward", "feedforward_norm", "feedforward_inner", "feedforward_gated", "embedding_norm",
  "embedding_projection", "final_norm", "logits", "logits_masked", "scale_embedding",
]);
const GROUPS = [
  ["Input", /^(token|scale_embedding|segment|task|position_|embedding_|layers_below|self_attention_before|norm_before|input_feeding|convolution$)/],
  ["Query, keys, values", /^(query|keys|values|rotate|state$)/],
  ["Scores", /^(dot|divide|bias_|mask_|score_)/],
  ["Weights and their sum", /^(softmax|weighted_|sum_scaled|heads_joined|project|readout)/],
  ["The rest of the layer", /^(residual|norm$|cross_attention_after|norm_feedforward|feedforward)/],
  ["Output", /./],
];

/** The steps by what they are for: [name, numbers of the steps]. */
export function stepGroups(steps) {
  const found = [];
  steps.forEach((step, number) => {
    const [name] = GROUPS.find(([, pattern]) => pattern.test(step.name));
    const last = found[found.length - 1];
    if (last && last[0] === name) last[1].push(number);
    else found.push([name, [number]]);
  });
  return found;
}

const values = (step, kind) => step.values.filter((one) => one.kind === kind);

/** The last numbers of a kind, and of a name if one is given, before a step or in it. */
export function latest(view, index, kind, name = null) {
  for (let n = index; n >= 0; n -= 1) {
    const found = values(view.steps[n], kind).filter((one) => name === null || one.name === name);
    if (found.length) return found[found.length - 1];
  }
  return null;
}

/** The vector that a step starts from, where it is worth showing. */
export function cameIn(view, index) {
  const { name } = view.steps[index];
  if (!SHOWS_INPUT.has(name)) return null;
  for (let n = index - 1; n >= 0; n -= 1) {
    const found = values(view.steps[n], "vector").filter((one) => ["x", "token", "output", "c"].includes(one.name));
    if (found.length && view.steps[n].name !== "project") return found[found.length - 1].values;
  }
  return null;
}

/** Numbers of each key up to a step: [label, values], without a mask that hides nothing. */
export function columnsUpTo(view, index) {
  const found = [];
  view.steps.slice(0, index + 1).forEach((step) => {
    if (step.name === "mask_none" && step !== view.steps[index]) return;
    values(step, "keys").forEach((one) => found.push([one.label, one.values, step.name]));
  });
  return found;
}

const add = (a, b) => a.map((value, n) => value + b[n]);

/** What a score is a sum of, for one key: [name, numbers] of the factors, and the products; null for a step without scores. */
export function termsOf(view, index, key) {
  const step = view.steps[index];
  if (!/^(dot|dot_content|dot_distance|dot_segment|score_additive|score_dot|score_general)$/.test(step.name)) return null;
  const score = values(step, "keys").find((one) => one.name === "dot").values[key];
  const own = values(step, "matrix")[0];
  const q = latest(view, index, "vector", "q").values;
  const k = (own || latest(view, index, "matrix", "k")).values[key];
  if (step.name === "score_additive") {
    const v = values(step, "vector")[0].values;
    const squashed = add(q, k).map(Math.tanh);
    return { factors: [["q", q], ["k", k], ["tanh(q + k)", squashed], ["v", v]], products: squashed.map((one, n) => one * v[n]), score, sign: "v · tanh(q + k)" };
  }
  const added = values(step, "vector")[0];
  const left = added ? add(q, added.values) : q;
  const names = [added ? "q + " + { content: "u", distance: "v", segment: "w" }[step.name.slice(4)] : "q", own ? own.label : "k"];
  return { factors: [[names[0], left], [names[1], k]], products: left.map((one, n) => one * k[n]), score, sign: `${names[0]} · ${names[1]}` };
}

/** The values of all keys, each multiplied with its weight. */
export function weighted(view, index) {
  const weights = latest(view, index, "keys", "weights").values;
  return latest(view, index, "matrix", "v").values.map((row, key) => row.map((value) => value * weights[key]));
}

/** Exponentials of scores, of which the largest is taken off first, so that they are 1 at most. */
export function exponentials(scores) {
  const most = scores.reduce((best, score) => (score === null ? best : Math.max(best, score)), -Infinity);
  return scores.map((score) => (score === null ? 0 : Math.exp(score - most)));
}
