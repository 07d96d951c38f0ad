// Requests to the server: JSON responses, streamed events, and error messages for people.

const API_KEY = "qkv-key";
const keys = {}; // by name: that of the API, and on its page that of an administrator

export const hasKey = (name = API_KEY) => Boolean((keys[name] ??= stored(name)));

/** The header with a key, if there is one. */
export const authorization = (name = API_KEY) => (hasKey(name) ? { Authorization: `Bearer ${keys[name]}` } : {});

/** Store a key until the tab is closed. */
export function useKey(given, name = API_KEY) {
  keys[name] = given;
  try {
    sessionStorage.setItem(name, given);
  } catch {
    // Storage is blocked: the key lasts until the page is left.
  }
}

function stored(name) {
  try {
    return sessionStorage.getItem(name) ?? "";
  } catch {
    return "";
  }
}

/** A failed request, with a message for people. */
export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export async function get(path) {
  return (await send(path, {})).json();
}

export async function post(path, body, signal) {
  return (await send(path, asJson(body, signal))).json();
}

/** Yield the events of a streamed response until the server sends [DONE]. */
export async function* events(path, body, signal) {
  const response = await send(path, asJson(body, signal));
  for await (const line of lines(response.body)) {
    if (!line.startsWith("data: ")) continue;
    const data = line.slice("data: ".length);
    if (data === "[DONE]") return;
    const event = JSON.parse(data);
    if (event.error) throw new ApiError(sentence(event.error.message), 0);
    yield event;
  }
  throw new ApiError("The connection broke before the text was complete. Try again.", 0);
}

async function* lines(stream) {
  const decoder = new TextDecoder();
  const reader = stream.getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await checkConnection(reader.read());
    if (done) return;
    const parts = (rest + decoder.decode(value, { stream: true })).split("\n");
    rest = parts.pop();
    yield* parts;
  }
}

function asJson(body, signal) {
  return { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" }, signal };
}

async function send(path, options) {
  const headers = { ...options.headers, ...authorization() };
  const response = await checkConnection(fetch(path, { ...options, headers }));
  if (!response.ok) throw await errorOf(response);
  return response;
}

async function checkConnection(pending) {
  try {
    return await pending;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server does not answer. Check that it is still running, then try again.", 0);
  }
}

async function errorOf(response) {
  const { status } = response;
  if (status === 401) return new ApiError("The server needs a key, and this one is missing or wrong.", status);
  if (status === 429) return new ApiError(`The server is busy. Try again in ${seconds(response)}.`, status);
  const body = await response.json().catch(() => ({}));
  const message = body.error?.message ?? body.error;
  if (status < 500 && message) return new ApiError(sentence(message), status);
  if (status === 503) return new ApiError("The server is stopping. Try again when it is back.", status);
  return new ApiError("Something went wrong on the server; its log says where. Try again, or with another text.", status);
}

function seconds(response) {
  const wait = Number(response.headers.get("Retry-After")) || 1;
  return wait === 1 ? "a second" : `${wait} seconds`;
}

function sentence(message) {
  return message.charAt(0).toUpperCase() + message.slice(1) + (/[.!?]$/.test(message) ? "" : ".");
}
