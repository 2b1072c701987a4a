/**
 * The one stream that the page lives on: sessions, questions and the sessions that are looked at.
 *
 * A browser allows six connections for a host, so all of it shares one. What arrives is applied once
 * for each frame. The stream opens itself again with the places that were seen, and says so.
 */

import { ApiError, openStream, whenSignedOut } from "./api.js";
import { readEvents } from "./event_stream.js";
import { whenSignedInElsewhere } from "./page_key.js";
import { SessionView } from "./session_view.js";
import { batch, signal } from "./signals.js";

/** @typedef {import("./types.js").SessionSummary} SessionSummary */
/** @typedef {import("./types.js").Question} Question */
/** @typedef {{ state: "connecting" | "live" | "lost" | "signed-out", since: number }} Connection */

export const connection = signal(/** @type {Connection} */ ({ state: "connecting", since: Date.now() }));
export const hello = signal(/** @type {import("./types.js").Hello | null} */ (null));
export const sessions = signal(/** @type {Map<string, SessionSummary>} */ (new Map()));
/** The latest sessions as the stream brought them first; null until they came. */
export const latest = signal(/** @type {{ sessions: SessionSummary[], cursor: string | null } | null} */ (null));
export const questions = signal(/** @type {Question[] | null} */ (null));
/** Seconds since the epoch by the clock of the service, once a second. */
export const now = signal(Date.now() / 1000);

let clockSkew = 0;
let retryMs = 500;
/** @type {AbortController | null} */
let source = null;
/** @type {[string, string][]} */
let queue = [];
let isScheduled = false;
/** @type {Map<string, { view: SessionView, users: number }>} */
const watched = new Map();
/** @type {ReturnType<typeof setTimeout> | undefined} */
let reopening;

const EVENTS = new Set(["hello", "latest", "session", "questions", "view", "missing"]);

export function startFeed() {
  setInterval(() => now.set(Date.now() / 1000 + clockSkew), 1000);
  addEventListener("online", () => openSoon(0));
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && connection.peek().state === "lost") openSoon(0);
  });
  whenSignedOut(close);
  whenSignedInElsewhere(reopenFeed);
  void open();
}

/** Open the stream again at once, for a browser that has just signed in. */
export function reopenFeed() {
  setState("connecting");
  openSoon(0);
}

/**
 * Keep a session up to date for as long as somebody looks at it.
 * @param {string} session
 * @returns {{ view: SessionView, release: () => void }}
 */
export function watchSession(session) {
  const known = watched.get(session) ?? { view: new SessionView(session), users: 0 };
  watched.set(session, known);
  known.users += 1;
  if (known.users === 1) openSoon(10);
  let isOver = false;
  return {
    view: known.view,
    release() {
      if (isOver) return;
      isOver = true;
      known.users -= 1;
      if (known.users === 0) {
        watched.delete(session);
        openSoon(200);
      }
    },
  };
}

/** @param {number} delayMs */
function openSoon(delayMs) {
  clearTimeout(reopening);
  if (connection.peek().state === "signed-out") return;
  reopening = setTimeout(() => void open(), delayMs);
}

async function open() {
  clearTimeout(reopening);
  source?.abort();
  const stream = new AbortController();
  source = stream;
  const isOurs = () => stream === source;
  const query = new URLSearchParams();
  for (const [session, { view }] of watched) query.append("watch", `${view.seq}:${view.epoch}:${session}`);
  try {
    await readEvents(await openStream(`/page/feed?${query}`, stream.signal), (name, data) => {
      if (isOurs() && EVENTS.has(name)) enqueue(name, data);
    });
  } catch (error) {
    if (isOurs() && error instanceof ApiError && error.status === 403) close();
  }
  if (!isOurs()) return;
  setState("lost");
  openSoon(retryMs * (0.5 + Math.random() / 2));
  retryMs = Math.min(retryMs * 2, 5000);
}

/** Stop until the person has signed in: the service does not let this browser watch. */
function close() {
  clearTimeout(reopening);
  source?.abort();
  source = null;
  setState("signed-out");
}

/** @param {Connection["state"]} state */
function setState(state) {
  if (connection.peek().state !== state) connection.set({ state, since: Date.now() });
}

/** @param {string} name @param {string} data */
function enqueue(name, data) {
  queue.push([name, data]);
  if (isScheduled) return;
  isScheduled = true;
  // A hidden page has no frames, and its title must still tell what waits.
  if (document.hidden) setTimeout(flush, 200);
  else requestAnimationFrame(flush);
}

function flush() {
  const events = queue;
  queue = [];
  isScheduled = false;
  batch(() => {
    /** @type {Map<string, SessionSummary> | null} */
    let list = null;
    for (const [name, text] of events) {
      const data = JSON.parse(text);
      if (name === "hello") applyHello(data);
      else if (name === "questions") questions.set(data.questions);
      else if (name === "view") watched.get(data.session)?.view.apply(data);
      else if (name === "missing") watched.get(data.session)?.view.isMissing.set(true);
      else if (name === "latest") {
        // A session that is not among them may have been deleted while nobody told.
        list = new Map(data.sessions.map((/** @type {SessionSummary} */ one) => [one.session, one]));
        latest.set(data);
      } else if (name === "session") {
        list ??= new Map(sessions.peek());
        for (const summary of data.sessions) list.set(summary.session, summary);
      }
    }
    if (list) sessions.set(list);
  });
}

/** @param {import("./types.js").Hello} data */
function applyHello(data) {
  retryMs = 500;
  clockSkew = data.now - Date.now() / 1000;
  hello.set(data);
  setState("live");
}

/**
 * Add sessions that a request brought.
 * @param {SessionSummary[]} page
 */
export function mergeSessions(page) {
  const list = new Map(sessions.peek());
  for (const summary of page) {
    const known = list.get(summary.session);
    if (!known || known.seq <= summary.seq) list.set(summary.session, { ...known, ...summary });
  }
  sessions.set(list);
}
