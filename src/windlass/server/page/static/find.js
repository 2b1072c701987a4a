/** Finding things in a run: by words, by kind, and from one question, error or change to the next. */

import { isBadState } from "./calls.js";
import { h, icon } from "./dom.js";
import { counted } from "./format.js";
import { computed, effect, signal } from "./signals.js";

/** @typedef {import("./types.js").Entry} Entry */
/** @typedef {import("./types.js").CallView} CallView */
/** @typedef {"said" | "calls" | "questions" | "errors" | "changes"} Kind */

/** @type {readonly { kind: Kind, words: string }[]} */
const KINDS = [
  { kind: "said", words: "Text" }, { kind: "calls", words: "Calls" }, { kind: "questions", words: "Questions" },
  { kind: "errors", words: "Errors" }, { kind: "changes", words: "Changes" },
];
const TYPING_MS = 150;

/** @type {WeakMap<Entry, string>} an entry that changes is another object */
const searchTexts = new WeakMap();

/**
 * Return all text of an entry in small letters, for searching.
 * @param {Entry} entry
 */
export function searchText(entry) {
  let text = searchTexts.get(entry);
  if (text === undefined) {
    /** @type {string[]} */
    const parts = [];
    collectTexts(entry, parts);
    text = parts.join("\n").toLowerCase();
    searchTexts.set(entry, text);
  }
  return text;
}

/** @param {unknown} value @param {string[]} parts */
function collectTexts(value, parts) {
  if (typeof value === "string") parts.push(value);
  else if (Array.isArray(value)) for (const one of value) collectTexts(one, parts);
  else if (value !== null && typeof value === "object") {
    for (const [name, one] of Object.entries(value)) if (name !== "data") collectTexts(one, parts);
  }
}

/**
 * Return whether an entry is of a kind.
 * @param {Entry} entry @param {Kind} kind @param {ReadonlySet<string>} writes names of tools that change something
 */
export function isOfKind(entry, kind, writes) {
  const calls = entry.entry === "reply" ? entry.calls : [];
  switch (kind) {
    case "said":
      return ["prompt", "steering", "earlier"].includes(entry.entry)
        || (entry.entry === "reply" && entry.parts.some((part) => part.type === "text" && part.text.trim() !== ""));
    case "calls": return calls.length > 0;
    case "questions": return calls.some((call) => call.asked_at !== null || call.waits_for !== null);
    case "errors": return isTrouble(entry) || calls.some((call) => isBadState(call.state));
    case "changes": return calls.some((call) => writes.has(call.call.name) && call.started_at !== null);
  }
}

/** @param {Entry} entry */
function isTrouble(entry) {
  if (entry.entry === "failure" || entry.entry === "fallback") return true;
  if (entry.entry === "reply") return entry.kind === "partial" || entry.withheld;
  return entry.entry === "notice" && entry.fact.type === "RunEnded" && !["completed", "cancelled"].includes(String(entry.fact.outcome));
}

/**
 * The bar above a conversation.
 * @param {import("./session_view.js").SessionView} view
 * @param {{ goToIndex: (index: number) => void, selected: () => number, show: (isShown: ((entry: Entry) => boolean) | null) => void,
 *   foldAll: (isOpen: boolean) => void, isUnfolded: () => boolean, toggleOutline: () => void, isOutlined: () => boolean }} actions
 */
export function findBar(view, actions) {
  const words = signal("");
  const kind = signal(/** @type {Kind | ""} */ (""));
  const writes = computed(() => new Set(view.head()?.writes ?? []), (a, b) => a?.size === b.size && [...b].every((name) => a.has(name)));
  /** Indexes of the entries that have the words. */
  const matches = computed(() => {
    view.version();
    const wanted = words().toLowerCase();
    if (!wanted) return [];
    return [...view.entries.keys()].filter((at) => {
      const entry = view.entries[at];
      return entry !== undefined && searchText(entry).includes(wanted);
    });
  }, () => false);
  const place = signal(-1);
  effect(() => {
    const chosen = kind();
    const names = writes();
    actions.show(chosen ? (entry) => isOfKind(entry, chosen, names) : null);
  });

  /** @param {number} step */
  function nextMatch(step) {
    const found = matches();
    if (!found.length) return;
    const at = place.peek() < 0 ? (step > 0 ? 0 : found.length - 1) : (place.peek() + step + found.length) % found.length;
    place.set(at);
    // A match that the filter hides would not be found: words are looked for in everything.
    const entry = view.entries[found[at] ?? 0];
    if (entry && kind.peek() && !isOfKind(entry, /** @type {Kind} */ (kind.peek()), writes())) kind.set("");
    actions.goToIndex(found[at] ?? 0);
  }
  /** @param {Kind} wanted */
  function nextOf(wanted) {
    const from = actions.selected();
    const found = [...view.entries.keys()].filter((at) => {
      const entry = view.entries[at];
      return entry !== undefined && isOfKind(entry, wanted, writes());
    });
    const next = found.find((at) => at > from) ?? found[0];
    if (next === undefined) return;
    if (kind.peek() && kind.peek() !== wanted) kind.set("");
    actions.goToIndex(next);
  }
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let typing;
  const box = h("input", {
    type: "search", placeholder: "Find in this run", "aria-label": "Find in this run",
    oninput: () => {
      clearTimeout(typing);
      typing = setTimeout(() => { place.set(-1); words.set(box.value.trim()); if (box.value.trim()) nextMatch(1); }, TYPING_MS);
    },
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      clearTimeout(typing);
      if (words.peek() !== box.value.trim()) { place.set(-1); words.set(box.value.trim()); }
      nextMatch(event.shiftKey ? -1 : 1);
      box.focus();
    },
  });
  const found = () => {
    if (!words()) return "";
    const count = matches().length;
    return count === 0 ? "nothing found" : place() < 0 ? counted(count, "entry", "entries") : `${place() + 1} of ${count}`;
  };
  const bar = h("div", { class: "find-bar", role: "search", "aria-label": "Find in this run" },
    h("div", { class: "search" }, icon("search"), box),
    h("span", { class: "find-count soft num", role: "status" }, found),
    h("button", { class: "plain small", "aria-label": "Previous match", title: "Previous match (N)", disabled: () => !matches().length, onclick: () => nextMatch(-1) }, "↑"),
    h("button", { class: "plain small", "aria-label": "Next match", title: "Next match (n)", disabled: () => !matches().length, onclick: () => nextMatch(1) }, "↓"),
    h("div", { class: "tabs", role: "group", "aria-label": "Show only" }, KINDS.map((one) =>
      h("button", { class: "tab small", "aria-pressed": () => String(kind() === one.kind), onclick: () => kind.set(kind() === one.kind ? "" : one.kind) }, one.words))),
    h("span", { class: "grow" }),
    h("button", { class: "plain small", "aria-pressed": () => String(actions.isUnfolded()), title: "Open or close all calls (z)", onclick: () => actions.foldAll(!actions.isUnfolded()) }, () => (actions.isUnfolded() ? "Fold calls" : "Unfold calls")),
    h("button", { class: "plain small", "aria-pressed": () => String(actions.isOutlined()), title: "Steps and sub-agents (o)", onclick: actions.toggleOutline }, "Outline"));
  return { element: bar, focus: () => box.focus(), nextMatch, nextOf };
}
