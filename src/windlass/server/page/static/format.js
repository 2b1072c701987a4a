/** Figures and times in words, and characters that must not hide. Pure functions. */

import { h } from "./dom.js";

/**
 * Money in US dollars. Not known is not zero.
 * @param {string | number | null | undefined} usd
 */
export function money(usd) {
  if (usd === null || usd === undefined) return "unknown";
  const value = Number(usd);
  if (!Number.isFinite(value)) return "unknown";
  if (value === 0) return "$0";
  if (Math.abs(value) < 0.0001) return "<$0.0001";
  if (Math.abs(value) < 0.1) return `$${value.toPrecision(2)}`;
  return `$${value.toFixed(2)}`;
}

/** @param {number | null | undefined} count */
export function tokens(count) {
  if (count === null || count === undefined) return "unknown";
  if (count < 1000) return String(count);
  if (count < 100_000) return `${(count / 1000).toFixed(1)}k`;
  if (count < 1_000_000) return `${Math.round(count / 1000)}k`;
  return `${(count / 1_000_000).toFixed(1)}M`;
}

/**
 * A duration in seconds, with two units at most.
 * @param {number} seconds
 */
export function duration(seconds) {
  const s = Math.max(0, seconds);
  if (s < 0.0995) return `${Math.max(s > 0 ? 1 : 0, Math.round(s * 1000))} ms`;
  if (s < 9.95) return `${s.toFixed(1)} s`;
  if (s < 59.5) return `${Math.round(s)} s`;
  const minutes = Math.round(s / 60);
  if (s < 3570) {
    const rest = Math.round(s) % 60;
    return rest && s < 600 ? `${Math.floor(s / 60)} min ${rest} s` : `${minutes} min`;
  }
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 && hours < 10 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return `${Math.round(hours / 24)} days`;
}

/**
 * How long ago something was, in one unit.
 * @param {number} at @param {number} now
 */
export function age(at, now) {
  const s = Math.max(0, now - at);
  if (s < 5) return "now";
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h`;
  if (s < 86_400 * 14) return `${Math.floor(s / 86_400)} d`;
  return new Date(at * 1000).toISOString().slice(0, 10);
}

/** @param {number} at @param {number} now */
export function ago(at, now) {
  const words = age(at, now);
  return words === "now" ? "just now" : /^\d{4}-/.test(words) ? words : `${words} ago`;
}

/** @param {number} at seconds since the epoch */
export function clockTime(at) {
  return new Date(at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
}

/** @param {number} at seconds since the epoch */
export function dateTime(at) {
  return new Date(at * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" });
}

/** @param {number} count @param {string} noun @param {string} [plural] */
export function counted(count, noun, plural = `${noun}s`) {
  return `${count} ${count === 1 ? noun : plural}`;
}

/** @param {string} text @param {number} length */
export function clip(text, length) {
  const line = text.slice(0, length * 10).replace(/\s+/g, " ").trim();
  return line.length > length ? `${line.slice(0, length - 1)}…` : line;
}

/** @param {unknown} value */
export function prettyJson(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

/** @param {string} text @returns {unknown} undefined if it is not JSON */
export function parseJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

// Letters and marks of which nothing is seen, and everything that is neither letter, mark, number,
// punctuation, symbol nor an ordinary space: such a character must not be approved unseen.
const UNSEEN = /[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\ufe00-\ufe0f\u{16fe4}\u{e0100}-\u{e01ef}]|(?![ \n\t])[\p{C}\p{Z}]/gu;

/**
 * A text that a person decides about: each character that cannot be seen is shown as its code.
 * @param {string} text
 * @returns {(string | HTMLElement)[]}
 */
export function reveal(text) {
  /** @type {(string | HTMLElement)[]} */
  const parts = [];
  let last = 0;
  for (const found of text.matchAll(UNSEEN)) {
    if (found.index > last) parts.push(text.slice(last, found.index));
    const code = (found[0].codePointAt(0) ?? 0).toString(16).padStart(4, "0");
    parts.push(h("span", { class: "unseen", title: "a character that cannot be seen" }, `\\u${code}`));
    last = found.index + found[0].length;
  }
  if (last < text.length) parts.push(text.slice(last));
  return parts;
}
