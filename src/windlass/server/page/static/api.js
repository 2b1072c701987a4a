/** Requests to the service. Every change carries a key, so that sending it twice counts once. */

export class ApiError extends Error {
  /** @param {number} status @param {{ code?: string, message?: string, hint?: string }} body */
  constructor(status, body) {
    super(body.message || `The service answered with status ${status}.`);
    this.status = status;
    this.code = body.code ?? "";
    this.hint = body.hint ?? "";
  }
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
  let reply;
  try {
    reply = await fetch(path, {
      method,
      headers,
      body: method === "GET" ? undefined : JSON.stringify(body ?? {}),
      credentials: "same-origin",
      cache: "no-store",
      redirect: "error",
    });
  } catch {
    throw new ApiError(0, { message: "The service cannot be reached.", hint: "It may be restarting; try again." });
  }
  const text = await reply.text();
  let value;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    value = null;
  }
  if (!reply.ok) throw new ApiError(reply.status, value?.error ?? {});
  return value;
}

/** @param {string} path */
export function get(path) {
  return send("GET", path);
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
