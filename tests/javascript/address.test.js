// The address of a view holds all that restores it.

import assert from "node:assert/strict";
import { test } from "node:test";

import { addressOf, readAddress } from "../../src/qkv/serving/page/address.js";

test("what is written is read again", () => {
  const values = { text: "50 % of a & b?\n#1 你好 /x", temperature: "0.7", see: 'tab=attention&head=["decoder.0",1]' };
  const address = addressOf("my model/é", "attention", values);
  assert.deepEqual(readAddress(address), { model: "my model/é", view: "attention", values });
});

test("long texts too", () => {
  const text = "öß 漢 ".repeat(10_000).trim();
  assert.equal(readAddress(addressOf("m", "v", { text })).values.text, text);
});

test("a name alone may be that of a model or of a view", () => {
  assert.deepEqual(readAddress("#gpt"), { model: "gpt", view: "gpt", values: {} });
  assert.deepEqual(readAddress(""), { model: "", view: "", values: {} });
});

test("a broken address does no harm", () => {
  assert.equal(readAddress("#%E0%A4%A/x").model, "%E0%A4%A");
});

test("empty values have no place", () => {
  assert.equal(addressOf("m", "v", { text: "", see: "" }), "#m/v");
});
