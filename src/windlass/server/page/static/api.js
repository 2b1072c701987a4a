/** Requests to the service. Every change carries a key, so that sending it twice counts once. */

import { pageKey } from "./page_key.js";

export class ApiError extends Error {
  /** @param {number} status @param {{ code?: string, message?: string, hint?: string }} body */
  constructor(status, body) {
    super(body.message || `The service answered with status ${status}.`);
    this.status = status;
    this.code = body.code ?? "";
    this.hint = body.hint ?? "";
  }
}

/** Where the service is: this module is in its folder `page/`, whatever prefix a proxy adds. */
const SERVICE = new URL("..", import.meta.url);

let tellSignedOut = () => {};

/**
 * Call a function when the service no longer knows this browser.
 * @param {() => void} act
 */
export function whenSignedOut(act) {
  tellSignedOut = act;
}

/**
 * Send a request and return what the service answers.
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @returns {Promise<any>}
 */
export async function send(method, path, body) {
  /** @type {Record<string, string>} */
  const headers = { Accept: "application/json" };
  if (method !== "GET") {
    headers["Content-Type"] = "application/json";
    headers["Idempotency-Key"] = newKey();
  }
  const sent = method === "GET" ? undefined : JSON.stringify(body ?? {});
  const reply = await ask(path, { method, headers, body: sent });
  return parse(await reply.text());
}

/**
 * Open a stream of events, until `signal` aborts it.
 * @param {string} path @param {AbortSignal} signal
 * @returns {Promise<ReadableStream<Uint8Array>>}
 */
export async function openStream(path, signal) {
  const reply = await ask(path, { headers: { Accept: "text/event-stream" }, signal });
  if (!reply.body) throw new ApiError(reply.status, {});
  return reply.body;
}

/**
 * Make a request as the person who is signed in. Throws ApiError unless it succeeds.
 * @param {string} path @param {RequestInit & { headers: Record<string, string> }} options
 */
async function ask(path, options) {
  const key = pageKey();
  const headers = key ? { ...options.headers, "Windlass-Page-Key": key } : options.headers;
  let reply;
  try {
    reply = await fetch(new URL(`.${path}`, SERVICE), { ...options, headers, credentials: "same-origin", cache: "no-store", redirect: "error" });
  } catch {
    throw new ApiError(0, { message: "The service cannot be reached.", hint: "It may be restarting; try again." });
  }
  if (reply.ok) return reply;
  const error = new ApiError(reply.status, parse(await reply.text())?.error ?? {});
  // Another tab may have signed in while the request was under way.
  if (error.code === "token_needed" && pageKey() === key) tellSignedOut();
  throw error;
}

/** @param {string} text */
function parse(text) {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return null;
  }
}

/** @param {string} path */
export function get(path) {
  return send("GET", path);
}

/**
 * Read a text as it is.
 * @param {string} path
 */
export async function getText(path) {
  return (await ask(path, { headers: { Accept: "text/plain" } })).text();
}

/** @param {string} path @param {unknown} [body] */
export function post(path, body) {
  return send("POST", path, body);
}

/**
 * The path of a session. Its name may have any character.
 * @param {string} session @param {string} [rest]
 */
export function runPath(session, rest = "") {
  return `/runs/${encodeURIComponent(session)}${rest}`;
}

export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
