// Keys of the API: kept until the tab is closed, and asked for in a dialog when a request needs one.

import { button, make } from "../viewer/dom.js";
import { say } from "../viewer/language.js";

export const API_KEY = "qkv-key";
export const ADMIN_KEY = "qkv-admin-key";

const keys = {}; // by name: that of the API, and that of an administrator
const asking = {}; // promises of the open dialogs, by the key's name

/** The header with a key, if there is one. */
export const authorization = (name = API_KEY) => (keyOf(name) ? { Authorization: `Bearer ${keyOf(name)}` } : {});

export const keyOf = (name = API_KEY) => (keys[name] ??= stored(name));

function stored(name) {
  try {
    return sessionStorage.getItem(name) ?? "";
  } catch {
    return ""; // storage is blocked: the key lasts until the page is left
  }
}

function keep(name, key) {
  keys[name] = key;
  try {
    sessionStorage.setItem(name, key);
  } catch {
    // Storage is blocked: the key lasts until the page is left.
  }
}

/**
 * Send a request until its key is accepted: `send` returns a response, and a status of 401 asks for another key.
 * Return the response; one of 401 if the reader closes the dialog without a key.
 */
export async function withKey(send, name = API_KEY) {
  const used = keyOf(name);
  const response = await send();
  if (response.status !== 401) return response;
  if (keyOf(name) !== used) return withKey(send, name); // given in the meantime, for another request
  asking[name] ??= askForKey(send, name, Boolean(used)).finally(() => delete asking[name]);
  const first = await asking[name];
  if (first.send === send) return first.response ?? response;
  return first.response ? withKey(send, name) : response;
}

/** Show the dialog until a key is accepted or the reader closes it. */
function askForKey(send, name, isWrong) {
  return new Promise((resolve) => {
    const field = make("input", { id: `${name}-field`, name: "key", type: "password", autocomplete: "off", spellcheck: "false", required: "", "aria-describedby": `${name}-wrong ${name}-hint` });
    const wrong = make("p", { class: "message error", id: `${name}-wrong`, role: "alert" });
    const use = make("button", { class: "primary" }, say("Use this key"));
    const close = button({ onclick: () => dialog.close() }, say("Cancel"));
    const title = make("h2", { id: `${name}-title` }, say(QUESTIONS[name]));
    const form = make("form", { method: "dialog" }, title, make("label", { for: field.id }, say("Key")), field, wrong,
      make("p", { class: "hint", id: `${name}-hint` }, say("The key stays in this tab until the tab is closed.")), make("div", { class: "actions" }, use, close));
    const dialog = make("dialog", { class: "key", "aria-labelledby": title.id }, form);
    const refuse = () => {
      wrong.textContent = say("The server does not know this key. Check it, and type it again.");
      field.setAttribute("aria-invalid", "true");
      field.select();
    };
    let answer = null;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (use.disabled) return;
      keep(name, field.value.trim());
      [use.disabled, wrong.textContent] = [true, ""];
      const response = await send().catch(() => null);
      use.disabled = false;
      if (response === null) wrong.textContent = say("The server does not answer. Check that it is still running, then try again.");
      else if (response.status === 401) refuse();
      else {
        answer = response;
        dialog.close();
      }
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve({ send, response: answer });
    });
    document.body.append(dialog);
    dialog.showModal();
    if (isWrong) refuse();
  });
}

const QUESTIONS = {
  [API_KEY]: "This server needs a key",
  [ADMIN_KEY]: "This request needs an administrator's key",
};
