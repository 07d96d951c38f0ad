// Requests to the server: JSON responses, streamed events, and error messages for people.

import { say } from "../viewer/language.js";
import { authorization, withKey } from "./keys.js";

/** A failed request, with a message for people. */
export class ApiError extends Error {
  constructor(message, status = 0) {
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
    if (event.error) throw new ApiError(sentence(event.error));
    yield event;
  }
  throw new ApiError(say("The connection broke before the text was complete. Try again."));
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
  const attempt = () => checkConnection(fetch(path, { ...options, headers: { ...options.headers, ...authorization() } }));
  const response = await withKey(attempt);
  if (options.signal?.aborted) throw options.signal.reason; // while the dialog for the key was open
  if (!response.ok) throw await errorOf(response);
  return response;
}

async function checkConnection(pending) {
  try {
    return await pending;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(say("The server does not answer. Check that it is still running, then try again."));
  }
}

async function errorOf(response) {
  const { status } = response;
  if (status === 401) return new ApiError(say("The server needs a key. Try again, and give it."), status);
  if (status === 429) return new ApiError(say("The server is busy. Try again in {seconds} s.", { seconds: response.headers.get("Retry-After") || 1 }), status);
  const body = await response.json().catch(() => ({}));
  const error = typeof body.error === "object" ? body.error : { message: body.error, code: body.code };
  if (status < 500 && error?.message) return new ApiError(sentence(error), status);
  if (status === 503) return new ApiError(say("The server is stopping. Try again when it is back."), status);
  return new ApiError(say("Something went wrong on the server; its log says where. Try again, or with another text."), status);
}

/** What each code means, for readers of other languages than the server's. */
const CODES = {
  text_too_long: "The text is too long for this server or model.",
  time_limit: "The answer took too long. Send a shorter text, or try again later.",
  unsuitable: "The model cannot use this text or these options.",
  too_many_masks: "The text has too many blanks.",
  too_many_marks: "A letter with so many marks on it cannot be read.",
  invalid_value: "The server cannot use one of these values.",
};

/** An error of the server as a sentence: its own in English, with what its code means before it in another language. */
function sentence({ message, code }) {
  const own = message.charAt(0).toUpperCase() + message.slice(1) + (/[.!?]$/.test(message) ? "" : ".");
  const meaning = CODES[code] ?? "";
  return say(meaning) === meaning ? own : `${say(meaning)} (${own})`;
}
