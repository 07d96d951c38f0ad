// The page of the API: each form sends its request, and shows the status and the answer as they come.

import { make } from "../viewer/dom.js";
import { say } from "../viewer/language.js";
import { authorization, withKey } from "./keys.js";
import { whole } from "./names.js";
import { bindSwitches } from "./switch.js";

const SHOWN = 20000; // characters of an answer

bindSwitches();
document.querySelectorAll("form[data-path]").forEach(bindForm);
addPicker(document.querySelector(".index"));

/** A field to choose an endpoint from, for narrow screens. */
function addPicker(index) {
  const options = [...index.querySelectorAll("a")].map((link) => make("option", { value: link.hash }, link.textContent.replace("/", " /")));
  const select = make("select", { onchange: ({ target }) => (location.hash = target.value) }, ...options);
  index.prepend(make("div", { class: "pickers" }, make("label", {}, make("span", {}, say("Endpoint")), select)));
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
    button.textContent = say("Stop");
    await show(form.nextElementSibling, path, { ...options, signal: running.signal }, form.dataset.key);
    running = null;
    button.textContent = say("Try");
    return undefined;
  });
  form.querySelector(".curl").addEventListener("click", async () => {
    message.classList.remove("error");
    try {
      await navigator.clipboard.writeText(curlOf(form));
      message.textContent = say("Copied.");
    } catch {
      message.textContent = curlOf(form);
    }
  });
}

/** What is missing in a form; undefined if nothing is. */
function missing(form) {
  const empty = [...form.elements].find((one) => one.required && !one.value.trim());
  empty?.focus();
  return empty && (empty.type === "file" ? say("Choose a file first.") : say("Fill in {name} first.", { name: empty.name }));
}

/** The path, with its parameters filled in, and the options of fetch; or what is wrong with the form. */
function requestOf(form) {
  const { method, body } = form.dataset;
  const problem = missing(form);
  if (problem) return { problem };
  const options = { method, headers: {} };
  if (body === "json") {
    options.body = form.elements.body.value;
    options.headers["Content-Type"] = "application/json";
    try {
      JSON.parse(options.body);
    } catch (error) {
      return { problem: say("This is not JSON: {reason}", { reason: error.message }) };
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

/** Send a request, with the key that it needs, and show the answer. */
async function show(answer, path, options, key) {
  const status = answer.querySelector(".status");
  const place = answer.querySelector("pre");
  const started = performance.now();
  answer.hidden = false;
  status.className = "status";
  status.textContent = say("Waiting…");
  place.textContent = "";
  const tell = (text) => (status.textContent = `${text}, ${Math.round(performance.now() - started)} ms`);
  try {
    const send = () => fetch(path, { ...options, headers: { ...options.headers, ...(key && authorization(key)) } });
    const response = await (key ? withKey(send, key) : send());
    status.classList.toggle("failed", !response.ok);
    const name = `${response.status} ${response.statusText}`.trim();
    tell(name);
    await read(response, place);
    tell(name);
  } catch (error) {
    status.classList.add("failed");
    tell(error.name === "AbortError" ? say("Stopped") : say("The server does not answer"));
  }
}

/** Show a response: events as they come, JSON with indentation, all other text as it is, and files as links. */
async function read(response, place) {
  const type = response.headers.get("Content-Type") ?? "";
  place.parentElement.querySelector("a")?.remove();
  if (type.startsWith("application/octet-stream")) {
    place.textContent = say("{count} bytes", { count: whole((await response.blob()).size) });
    place.after(make("a", { href: response.url, download: "" }, say("Download the file")));
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
  place.after(make("a", { href: new URL(url).pathname.slice(1), download: "" }, say("Download the file")));
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
  return text.length > SHOWN ? `${text.slice(0, SHOWN)}\n… ${say("{count} characters more", { count: whole(text.length - SHOWN) })}` : text;
}

function curlOf(form) {
  const words = ["curl", new URL(pathOf(form), document.baseURI).href];
  const { method, body } = form.dataset;
  if (method !== (body === "none" ? "GET" : "POST")) words.splice(1, 0, `-X ${method}`);
  if (form.dataset.key) words.push("-H 'Authorization: Bearer KEY'");
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
