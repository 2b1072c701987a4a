/** All sessions, live, and the box that starts a run. */

import { ApiError, get } from "./api.js";
import { composer } from "./composer.js";
import { h, icon, keyedList, svg } from "./dom.js";
import { connection, hello, latest, mergeSessions, now, sessions } from "./feed.js";
import { age, counted, dateTime, money } from "./format.js";
import { useKeys } from "./keys.js";
import { computed, effect, onCleanup, signal } from "./signals.js";
import { FAILED_STATES, address, recall, remember, stateOf, tell } from "./ui.js";

/** @typedef {import("./types.js").SessionSummary} SessionSummary */

const FILTERS = [
  { name: "all", words: "All", states: [] },
  { name: "queued", words: "Queued", states: ["queued"] },
  { name: "running", words: "Running", states: ["open"] },
  { name: "waiting", words: "Waiting", states: ["waiting", "awaiting_budget", "paused"] },
  { name: "failed", words: "Failed", states: FAILED_STATES },
];

export function homeView() {
  const filter = signal(FILTERS.some((one) => one.name === recall("filter")) ? recall("filter") : "all");
  const mine = signal(recall("mine") === "yes");
  const search = signal("");
  const cursor = signal(/** @type {string | null} */ (null));
  const isLoading = signal(true);
  const selected = signal("");
  /** Sessions up to here are loaded; an older one that is known from elsewhere is not in this list. */
  const horizon = signal(Number.POSITIVE_INFINITY);

  const rows = computed(() => {
    const states = FILTERS.find((one) => one.name === filter())?.states ?? [];
    const words = search().toLowerCase();
    const caller = hello()?.caller.name ?? "";
    return [...sessions().values()]
      .filter((one) => !one.parent && one.updated >= horizon() - 0.001
        && (states.length === 0 || states.includes(one.state)) && (!mine() || one.owner === caller)
        && (!words || `${one.title}\n${one.session}`.toLowerCase().includes(words)))
      .sort((a, b) => b.updated - a.updated || (a.session < b.session ? -1 : 1));
  });

  /** @param {boolean} isMore */
  const load = async (isMore) => {
    isLoading.set(true);
    const asked = `${filter.peek()}\n${mine.peek()}\n${search.peek()}`;
    try {
      const page = await get(`/page/sessions?${listQuery(filter.peek(), mine.peek(), search.peek(), isMore ? cursor.peek() : null)}`);
      if (asked !== `${filter.peek()}\n${mine.peek()}\n${search.peek()}`) return;
      mergeSessions(page.sessions);
      cursor.set(page.cursor);
      horizon.set(page.cursor ? oldest(page.sessions) : 0);
    } catch (error) {
      if (error instanceof ApiError && error.status !== 401) tell(error.message, { hint: error.hint, isBad: true });
    }
    isLoading.set(false);
  };
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let searching;
  effect(() => {
    filter();
    mine();
    const delay = search() ? 200 : 0;
    remember("filter", filter.peek());
    remember("mine", mine.peek() ? "yes" : "");
    // After a reconnect the list is asked for anew: sessions may have been deleted meanwhile.
    if (connection().state !== "live") return;
    clearTimeout(searching);
    const first = latest();
    if (filter() === "all" && !mine() && !search()) {
      if (!first) return;
      cursor.set(first.cursor);
      horizon.set(first.cursor ? oldest(first.sessions) : 0);
      isLoading.set(false);
      return;
    }
    searching = setTimeout(() => void load(false), delay);
  });
  onCleanup(() => clearTimeout(searching));

  const searchBox = h("input", {
    type: "search", placeholder: "Search", "aria-label": "Search sessions",
    oninput: (/** @type {Event} */ event) => search.set(/** @type {HTMLInputElement} */ (event.target).value),
  });
  const box = composer({ mode: "start" });
  useKeys([
    { key: "j, ArrowDown", words: "next session", act: () => move(1) },
    { key: "k, ArrowUp", words: "previous session", act: () => move(-1) },
    { key: "Enter", words: "open the session", act: () => { if (selected.peek()) location.hash = address("run", selected.peek()); } },
    { key: "/", words: "search", act: () => searchBox.focus() },
    { key: "n", words: "new run", act: () => box.querySelector("textarea")?.focus() },
    { key: "f", words: "next filter", act: () => filter.set(FILTERS[(FILTERS.findIndex((one) => one.name === filter.peek()) + 1) % FILTERS.length]?.name ?? "all") },
  ]);
  /** @param {number} step */
  function move(step) {
    const names = rows().map((one) => one.session);
    const at = names.indexOf(selected.peek());
    const next = names[at < 0 ? 0 : Math.min(names.length - 1, Math.max(0, at + step))];
    if (next === undefined) return;
    selected.set(next);
    document.querySelector(`[data-session="${CSS.escape(next)}"] a`)?.scrollIntoView({ block: "nearest" });
  }

  const list = keyedList(h("ul", { class: "sessions panel" }), rows, (one) => one.session, (one) => sessionRow(one, selected));
  return [
    h("h1", { class: "visually-hidden" }, "Sessions"),
    box,
    h("div", { class: "filters" },
      h("div", { class: "tabs", role: "group", "aria-label": "Filter" }, FILTERS.map((one) =>
        h("button", { class: "tab", "aria-pressed": () => String(filter() === one.name), onclick: () => filter.set(one.name) }, one.words)),
        h("button", { class: "tab", "aria-pressed": () => String(mine()), onclick: () => mine.set(!mine()) }, "Mine")),
      h("div", { class: "search" }, icon("search"), searchBox)),
    () => rows().length === 0 && !isLoading() && emptyList(Boolean(search()) || filter() !== "all" || mine()),
    h("div", { hidden: () => rows().length === 0 }, list),
    () => cursor() && h("div", { class: "more" }, h("button", { disabled: () => isLoading(), onclick: () => void load(true) }, "Older sessions")),
  ];
}

/** @param {string} filter @param {boolean} mine @param {string} search @param {string | null} cursor */
function listQuery(filter, mine, search, cursor) {
  const query = new URLSearchParams({ limit: "50" });
  for (const state of FILTERS.find((one) => one.name === filter)?.states ?? []) query.append("state", state);
  if (mine) query.set("owner", hello.peek()?.caller.name ?? "");
  if (search) query.set("text", search);
  if (cursor) query.set("cursor", cursor);
  return query;
}

/** @param {SessionSummary[]} page */
function oldest(page) {
  return Math.min(...page.map((one) => one.updated));
}

/** @param {boolean} isFiltered */
function emptyList(isFiltered) {
  if (isFiltered) return h("div", { class: "empty" }, h("h2", null, "No session fits"), h("p", null, "Choose another filter, or search for other words."));
  return h("div", { class: "empty" }, h("h2", null, "No sessions yet"), h("p", null, "Say above what is to be done. The run goes on if you close this page."));
}

/**
 * @param {import("./signals.js").Signal<SessionSummary>} item
 * @param {import("./signals.js").Signal<string>} selected
 */
function sessionRow(item, selected) {
  const { session } = item.peek();
  const state = computed(() => stateOf(item()), (a, b) => a?.words === b.words);
  return h("li", { class: () => ["session", selected() === session && "selected", `is-${state().dot}`], dataset: { session } },
    h("a", { href: address("run", session), class: "session-link" },
      h("span", { class: "session-state" }, h("span", { class: () => ["dot", state().dot] }), h("span", { class: "words" }, () => state().words)),
      h("span", { class: "session-title" }, () => item().title || "(no text)"),
      h("span", { class: "session-more" }, () => [item().agent && h("span", { class: "chip" }, item().agent), item().owner && h("span", { class: "faint" }, item().owner), h("span", { class: "faint mono session-name" }, session)])),
    h("span", { class: "session-spark", "aria-hidden": "true" }, () => spark(item().activity ?? [])),
    h("span", { class: "session-steps num soft" }, () => counted(item().steps, "step")),
    h("span", { class: "session-cost num" }, () => money(item().usd)),
    h("time", { class: "session-age num soft", title: () => dateTime(item().updated) }, () => age(item().updated, now())));
}

/** @param {number[]} counts records in equal spans of time, the newest last */
function spark(counts) {
  const most = Math.max(1, ...counts);
  const bars = counts.map((count, at) => {
    const height = count === 0 ? 1 : 2 + Math.round((count / most) * 14);
    return svg("rect", { x: at * 4, y: 18 - height, width: 3, height, rx: 1, class: count ? "on" : "off" });
  });
  return svg("svg", { class: "spark", viewBox: `0 0 ${Math.max(1, counts.length) * 4} 18`, width: counts.length * 4, height: 18 }, bars);
}
