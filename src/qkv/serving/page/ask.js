// Asking the server: answers, pieces of answers as they come, and what is told to people when there is none.

let key = remembered("qkv-key");

export const hasKey = () => Boolean(key);

/** Keep the server's key until the tab is closed. */
export function useKey(given) {
  key = given;
  try {
    sessionStorage.setItem("qkv-key", given);
  } catch {
    // Then it is known until the page is left.
  }
}

function remembered(name) {
  try {
    return sessionStorage.getItem(name) ?? "";
  } catch {
    return "";
  }
}

/** Why there is no answer, in words for whoever asked. */
export class Problem extends Error {
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

/** The events of a streamed answer, until the server says that it is done. */
export async function* events(path, body, signal) {
  const answer = await send(path, asJson(body, signal));
  for await (const line of lines(answer.body)) {
    if (!line.startsWith("data: ")) continue;
    const told = line.slice("data: ".length);
    if (told === "[DONE]") return;
    const event = JSON.parse(told);
    if (event.error) throw new Problem(sentence(event.error.message), 0);
    yield event;
  }
  throw new Problem("The connection ended before the text did. Try again.", 0);
}

async function* lines(stream) {
  const decoder = new TextDecoder();
  const reader = stream.getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await unlessCut(reader.read());
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
  const headers = { ...options.headers, ...(key && { Authorization: `Bearer ${key}` }) };
  const answer = await unlessCut(fetch(path, { ...options, headers }));
  if (!answer.ok) throw await problem(answer);
  return answer;
}

async function unlessCut(waiting) {
  try {
    return await waiting;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The server does not answer. See whether it is still running, then try again.", 0);
  }
}

async function problem(answer) {
  const { status } = answer;
  if (status === 401) return new Problem("The server wants a key, and this one is missing or wrong.", status);
  if (status === 429) return new Problem(`The server is busy. Try again in ${seconds(answer)}.`, status);
  const told = await answer.json().catch(() => ({}));
  const message = told.error?.message ?? told.error;
  if (status < 500 && message) return new Problem(sentence(message), status);
  if (status === 503) return new Problem("The server is stopping. Try again when it is back.", status);
  return new Problem("Something went wrong on the server; its log says where. Try again, or with another text.", status);
}

function seconds(answer) {
  const wait = Number(answer.headers.get("Retry-After")) || 1;
  return wait === 1 ? "a second" : `${wait} seconds`;
}

function sentence(message) {
  return message.charAt(0).toUpperCase() + message.slice(1) + (/[.!?]$/.test(message) ? "" : ".");
}
