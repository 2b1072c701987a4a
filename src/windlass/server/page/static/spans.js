/** The spans of a session for its timeline: what happened when, and what it cost. Pure. */

import { gist, isBadState, readArguments } from "./calls.js";

/** @typedef {"model" | "tools" | "waiting" | "agents"} Lane */
/**
 * @typedef {{ lane: Lane, from: number, to: number | null, seq: number, words: string, usd: number,
 *   kind: "ok" | "bad" | "open" }} Span
 */

/**
 * @param {readonly import("./types.js").Entry[]} entries
 * @param {import("./session_view.js").Head | null} head
 * @returns {Span[]}
 */
export function findSpans(entries, head) {
  /** @type {Span[]} */
  const spans = [];
  /** @type {Span | null} */
  let pause = null;
  for (const entry of entries) {
    if (entry.entry === "reply") spans.push(...replySpans(entry));
    else if (entry.entry === "failure") {
      const from = entry.requested_at ?? entry.at;
      spans.push({ lane: "model", from, to: entry.at, seq: entry.seq, words: `attempt ${entry.attempt} failed: ${entry.fact.fault?.kind ?? ""}`, usd: Number(entry.fact.charge?.usd ?? 0), kind: "bad" });
    } else if (entry.entry === "notice" && entry.fact.type === "RunPaused") {
      pause = { lane: "waiting", from: entry.at, to: null, seq: entry.seq, words: "paused", usd: 0, kind: "open" };
      spans.push(pause);
    } else if (entry.entry === "notice" && pause && ["RunContinued", "LimitsRaised", "RunEnded"].includes(entry.fact.type)) {
      pause.to = entry.at;
      pause.kind = "ok";
      pause = null;
    }
  }
  const attempt = head?.attempt;
  if (attempt) spans.push({ lane: "model", from: attempt.at ?? 0, to: null, seq: attempt.seq ?? 0, words: `asks ${attempt.model ?? "the model"}`, usd: 0, kind: "open" });
  return spans;
}

/** @type {WeakMap<import("./types.js").ReplyEntry, Span[]>} an entry that changes is another object */
const knownSpans = new WeakMap();

/** @param {import("./types.js").ReplyEntry} entry */
function replySpans(entry) {
  let spans = knownSpans.get(entry);
  if (!spans) {
    spans = entry.calls.flatMap((call) => callSpans(call, entry));
    if (entry.requested_at) spans.unshift({ lane: "model", from: entry.requested_at, to: entry.at, seq: entry.seq, words: `step ${entry.step}, ${entry.model}`, usd: Number(entry.charge?.usd ?? 0), kind: "ok" });
    knownSpans.set(entry, spans);
  }
  return spans;
}

/**
 * @param {import("./types.js").CallView} call @param {import("./types.js").ReplyEntry} entry
 * @returns {Span[]}
 */
function callSpans(call, entry) {
  /** @type {Span[]} */
  const spans = [];
  const words = `${call.call.name} ${call.call.name === "bash" ? (readArguments(call)?.command ?? "") : gist(readArguments(call))}`.slice(0, 120);
  const usd = call.charges.reduce((sum, charge) => sum + Number(charge.usd ?? 0), 0);
  if (call.asked_at !== null) {
    const isOpen = call.answered_at === null && call.ended_at === null;
    spans.push({ lane: "waiting", from: call.asked_at, to: isOpen ? null : (call.answered_at ?? call.ended_at), seq: entry.seq, words: `asks about ${words}`, usd: 0, kind: isOpen ? "open" : "ok" });
  }
  if (call.started_at !== null) {
    const kind = call.ended_at === null ? "open" : isBadState(call.state) ? "bad" : "ok";
    spans.push({ lane: call.agents.length ? "agents" : "tools", from: call.started_at, to: call.ended_at, seq: entry.seq, words, usd, kind });
  } else if (isBadState(call.state)) {
    const at = call.ended_at ?? entry.at;
    spans.push({ lane: "tools", from: at, to: at, seq: entry.seq, words: `${words}: ${call.state}`, usd, kind: "bad" });
  }
  return spans;
}

/**
 * A scale from times to places between 0 and 1. Time in which nothing works is shortened, so that a
 * weekend before an answer does not hide the minutes of work.
 * @param {readonly Span[]} spans @param {number} now
 * @returns {(at: number) => number}
 */
export function timeScale(spans, now) {
  const edges = new Set([now]);
  edges.clear();
  for (const span of spans) {
    edges.add(span.from);
    edges.add(span.to ?? now);
  }
  const times = [...edges].sort((a, b) => a - b);
  const first = times[0] ?? 0;
  if (times.length < 2) return () => 0;
  const busy = mergeBusy(spans, now);
  const total = busy.reduce((sum, [from, to]) => sum + to - from, 0);
  const idleMax = Math.max(total * 0.12, 0.05);
  /** @type {number[]} */
  const places = [0];
  let at = 0;
  let nth = 0;
  for (let index = 1; index < times.length; index += 1) {
    const from = times[index - 1] ?? 0;
    const to = times[index] ?? 0;
    while (nth < busy.length && (busy[nth]?.[1] ?? 0) <= from) nth += 1;
    const isBusy = nth < busy.length && (busy[nth]?.[0] ?? 0) <= from;
    at += isBusy ? to - from : Math.min(to - from, idleMax);
    places.push(at);
  }
  const length = at || 1;
  return (time) => {
    let low = 0;
    let high = times.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((times[middle] ?? 0) <= time) low = middle;
      else high = middle - 1;
    }
    const from = times[low] ?? first;
    const to = times[low + 1] ?? from;
    const share = to > from ? Math.min(1, Math.max(0, (time - from) / (to - from))) : 0;
    const start = places[low] ?? 0;
    return (start + share * ((places[low + 1] ?? start) - start)) / length;
  };
}

/** @param {readonly Span[]} spans @param {number} now @returns {[number, number][]} */
function mergeBusy(spans, now) {
  const list = spans.filter((span) => span.lane !== "waiting").map((span) => /** @type {[number, number]} */ ([span.from, span.to ?? now])).sort((a, b) => a[0] - b[0]);
  /** @type {[number, number][]} */
  const merged = [];
  for (const [from, to] of list) {
    const last = merged.at(-1);
    if (last && from <= last[1]) last[1] = Math.max(last[1], to);
    else merged.push([from, to]);
  }
  return merged;
}

/**
 * Places by cost: the spans stand one after the other, each as wide as it was expensive.
 * @param {readonly Span[]} spans
 * @returns {Map<Span, [number, number]>}
 */
export function costPlaces(spans) {
  const paid = [...spans].sort((a, b) => a.from - b.from);
  const total = paid.reduce((sum, span) => sum + span.usd, 0);
  // What costs nothing keeps a little room, so that it can be seen and clicked.
  const least = total > 0 ? (total / paid.length) * 0.15 : 1;
  const length = paid.reduce((sum, span) => sum + Math.max(span.usd, least), 0) || 1;
  /** @type {Map<Span, [number, number]>} */
  const places = new Map();
  let at = 0;
  for (const span of paid) {
    const width = Math.max(span.usd, least);
    places.set(span, [at / length, (at + width) / length]);
    at += width;
  }
  return places;
}
