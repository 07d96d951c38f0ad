// The page of the API: each form sends its request, and shows the status and the answer as they come.

import { authorization, hasKey, useKey } from "./api.js";
import { make } from "./dom.js";
import { bindTheme } from "./switch.js";

const SHOWN = 20000; // characters of an answer

document.querySelectorAll("form[data-path]").forEach(bindForm);
bindTheme(document.getElementById("theme"));
const keyForm = document.getElementById("key"); // there if the service needs a key
if (keyForm) {
  keyForm.hidden = hasKey();
  keyForm.addEventListener("submit", (event) => {
    event.preventDefault();
    useKey(keyForm.elements.key.value.trim());
    keyForm.hidden = true;
  });
}

function bindForm(form) {
  const button = form.querySelector(".primary");
  const message = form.querySelector(".message");
  let running = null;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (running) return running.abort();
    const { path, options, problem } = requestOf(form);
    message.textContent = problem ?? "";
    message.classList.toggle("error", Boolean(problem));
    if (problem) return undefined;
    running = new AbortController();
    button.textContent = "Stop";
    await show(form.nextElementSibling, path, { ...options, signal: running.signal });
    running = null;
    button.textContent = "Try";
    return undefined;
  });
  form.querySelector(".curl").addEventListener("click", async () => {
    message.classList.remove("error");
    try {
      await navigator.clipboard.writeText(curlOf(form));
      message.textContent = "Copied.";
    } catch {
      message.textContent = curlOf(form);
    }
  });
}

/** The path, with its parameters filled in, and the options of fetch; or what is wrong with the form. */
function requestOf(form) {
  const { method, body } = form.dataset;
  const options = { method, headers: authorization() };
  if (body === "json") {
    options.body = form.elements.body.value;
    options.headers["Content-Type"] = "application/json";
    try {
      JSON.parse(options.body);
    } catch (error) {
      return { problem: `This is not JSON: ${error.message}` };
    }
  }
  if (body === "form") {
    options.body = new FormData(form);
    [...options.body.entries()].forEach(([name, value]) => value === "" && options.body.delete(name));
  }
  return { path: pathOf(form), options };
}

function pathOf(form) {
  return form.dataset.path.slice(1).replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(form.elements[name].value));
}

async function show(answer, path, options) {
  const status = answer.querySelector(".status");
  const place = answer.querySelector("pre");
  const started = performance.now();
  answer.hidden = false;
  status.className = "status";
  status.textContent = "Waiting…";
  place.textContent = "";
  const tell = (text) => (status.textContent = `${text}, ${Math.round(performance.now() - started)} ms`);
  try {
    const response = await fetch(path, options);
    status.classList.toggle("failed", !response.ok);
    if (response.status === 401 && keyForm) keyForm.hidden = false;
    const name = `${response.status} ${response.statusText}`.trim();
    tell(name);
    await read(response, place);
    tell(name);
  } catch (error) {
    status.classList.add("failed");
    tell(error.name === "AbortError" ? "Stopped" : "The server does not answer");
  }
}

/** Show a response: events as they come, JSON with indentation, all else as it is. */
async function read(response, place) {
  const type = response.headers.get("Content-Type") ?? "";
  if (!type.startsWith("text/event-stream")) {
    const text = await response.text();
    place.textContent = shorten(type.startsWith("application/json") ? pretty(text) : text);
    offerDownload(text, place);
    return;
  }
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    place.textContent = (place.textContent + decoder.decode(value, { stream: true })).slice(-SHOWN);
    place.scrollTop = place.scrollHeight;
  }
}

/** Link the file that an answer names. */
function offerDownload(text, place) {
  place.parentElement.querySelector("a")?.remove();
  const url = /"translatedFileUrl": ?"([^"]+)"/.exec(text)?.[1];
  if (url) place.after(make("a", { href: new URL(url).pathname.slice(1), download: "" }, "Download the file"));
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function shorten(text) {
  return text.length > SHOWN ? `${text.slice(0, SHOWN)}\n… ${(text.length - SHOWN).toLocaleString("en")} characters more` : text;
}

function curlOf(form) {
  const words = ["curl", new URL(pathOf(form), document.baseURI).href];
  const key = authorization().Authorization;
  if (key) words.push("-H 'Authorization: Bearer KEY'");
  if (form.dataset.body === "json") {
    words.push("-H 'Content-Type: application/json'", `-d '${compact(form.elements.body.value).replaceAll("'", "'\\''")}'`);
  }
  if (form.dataset.body === "form") {
    for (const [name, value] of new FormData(form)) {
      if (value !== "") words.push(`-F '${name}=${value instanceof File ? `@${value.name || "FILE"}` : value}'`);
    }
  }
  return words.join(" ");
}

function compact(text) {
  try {
    return JSON.stringify(JSON.parse(text));
  } catch {
    return text;
  }
}
