// The page of the API: each form sends its request, and shows the status and the answer as they come.

import { authorization, hasKey, useKey } from "./api.js";
import { make } from "./dom.js";
import { bindTheme } from "./switch.js";

const SHOWN = 20000; // characters of an answer

document.querySelectorAll("form[data-path]").forEach(bindForm);
bindTheme(document.getElementById("theme"));
document.querySelectorAll("form[data-key]").forEach(bindKey);

/** The form for a key, there if the service needs it. */
function bindKey(form) {
  form.hidden = hasKey(`qkv-${form.id}`);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    useKey(form.elements.key.value.trim(), `qkv-${form.id}`);
    form.hidden = true;
  });
}

/** The id of the form for the key that a request needs. */
const keyOf = (form) => (form.dataset.path.startsWith("/admin/") ? "admin-key" : "key");

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
    const status = await show(form.nextElementSibling, path, { ...options, signal: running.signal });
    if (status === 401) askForKey(form, message);
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

/** Show the field for the key that a request lacks, and say where it is. */
function askForKey(form, message) {
  const keyForm = document.getElementById(keyOf(form));
  if (!keyForm) return;
  keyForm.hidden = false;
  message.replaceChildren(make("a", { href: `#${keyForm.id}` }, "Give the key"), " and try again.");
}

/** What is missing in a form; undefined if nothing is. */
function missing(form) {
  const empty = [...form.elements].find((one) => one.required && !one.value.trim());
  empty?.focus();
  return empty && (empty.type === "file" ? "Choose a file first." : `Fill in ${empty.name} first.`);
}

/** The path, with its parameters filled in, and the options of fetch; or what is wrong with the form. */
function requestOf(form) {
  const { method, body } = form.dataset;
  const problem = missing(form);
  if (problem) return { problem };
  const options = { method, headers: authorization(`qkv-${keyOf(form)}`) };
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
  return form.dataset.path.slice(1).replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(form.elements[name].value || name.toUpperCase()));
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
    const name = `${response.status} ${response.statusText}`.trim();
    tell(name);
    await read(response, place);
    tell(name);
    return response.status;
  } catch (error) {
    status.classList.add("failed");
    tell(error.name === "AbortError" ? "Stopped" : "The server does not answer");
    return 0;
  }
}

/** Show a response: events as they come, JSON with indentation, all other text as it is, and files as links. */
async function read(response, place) {
  const type = response.headers.get("Content-Type") ?? "";
  place.parentElement.querySelector("a")?.remove();
  if (type.startsWith("application/octet-stream")) {
    place.textContent = `${(await response.blob()).size.toLocaleString("en")} bytes`;
    place.after(make("a", { href: response.url, download: "" }, "Download the file"));
    return;
  }
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

/** Link the file that an answer names, and fill its name into the form for downloads. */
function offerDownload(text, place) {
  const url = /"translatedFileUrl": ?"([^"]+)"/.exec(text)?.[1];
  if (!url) return;
  place.after(make("a", { href: new URL(url).pathname.slice(1), download: "" }, "Download the file"));
  document.getElementById("get-download_file-name-name").value = decodeURIComponent(url.slice(url.lastIndexOf("/") + 1));
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
  const { method, body } = form.dataset;
  if (method !== (body === "none" ? "GET" : "POST")) words.splice(1, 0, `-X ${method}`);
  if (hasKey(`qkv-${keyOf(form)}`) || document.getElementById(keyOf(form))) words.push("-H 'Authorization: Bearer KEY'");
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
