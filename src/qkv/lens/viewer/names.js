// Changes, attentions and layers in words.

import { say } from "./language.js";

const PARTS = { encoder: "Self-attention of the encoder", decoder: "Self-attention of the decoder", cross: "Cross-attention" };

export const partsOf = (list) => [...new Set(list.map((one) => one.part))];

/** The name of a part of a model's attention. */
export const partTitle = (kind, part) => say(kind === "translator" ? PARTS[part] : "Self-attention");

/** A change in words; layers, heads, tokens and words count from 1. */
export function changeName(one) {
  const head = one.head === null || one.head === undefined ? null : one.head + 1;
  const where = one.attention ? attentionName(one.attention) : say("every attention");
  const place = head === null ? where : say("head {head} of {where}", { head, where });
  const texts = {
    head: () => say("without {place}", { place }),
    layer: () => say("without {place}", { place: attentionName(one.layer) }),
    weight: () => say("in {place}, token {query} attends to token {key} by {value}", { place, query: one.query + 1, key: one.key + 1, value: one.value }),
    temperature: () => say("temperature {value} in {place}", { value: one.value, place }),
    replace: () => say("word {word} is “{text}”", { word: one.word + 1, text: one.text }),
    delete: () => say("without word {word}", { word: one.word + 1 }),
    move: () => say("word {word} becomes word {to}", { word: one.word + 1, to: one.to + 1 }),
  };
  return texts[one.change]();
}

/** The name of an attention, such as decoder.1.cross, or of a layer, such as encoder.0, for people. */
export function attentionName(name) {
  const [part, layer, kind] = name.split(".");
  const names = { self: { encoder: "self-attention of encoder layer {layer}", decoder: "self-attention of decoder layer {layer}" }, cross: { decoder: "cross-attention of layer {layer}" } };
  const text = kind ? names[kind][part] : { encoder: "encoder layer {layer}", decoder: "decoder layer {layer}" }[part];
  return say(text, { layer: Number(layer) + 1 });
}
