/** One session: the conversation as it streams, its timeline, its state, and what can be done. */

import { get, post, runPath } from "./api.js";
import { ChunkedList } from "./chunks.js";
import { composer } from "./composer.js";
import { highlight } from "./content.js";
import { h, icon } from "./dom.js";
import { renderEntry } from "./entries.js";
import { connection, hello, now, questions, watchSession } from "./feed.js";
import { findBar } from "./find.js";
import { age, clip, counted, duration, money, tokens } from "./format.js";
import { useKeys } from "./keys.js";
import { MarkdownStream } from "./markdown.js";
import { viewTitle } from "./notify.js";
import { outlinePanel } from "./outline.js";
import { questionCard } from "./question_card.js";
import { computed, effect, onCleanup, signal, untracked } from "./signals.js";
import { timeline } from "./timeline.js";
import { address, attempt, openDialog, recall, remember, stateOf } from "./ui.js";
import { fork, whyPanel } from "./why.js";

/** @typedef {import("./session_view.js").SessionView} SessionView */
/** @typedef {import("./session_view.js").Head} Head */

const BOTTOM_PX = 90;

/** @param {string} session @param {number} seq the record to go to; 0 for the end */
export function runView(session, seq) {
  const { view, release } = watchSession(session);
  onCleanup(release);
  const why = signal(seq);
  const isOutlined = signal(false);
  /** @param {number} record */
  const showRecord = (record) => {
    why.set(record);
    if (record) isOutlined.set(false);
    history.replaceState(null, "", record ? address("run", session, record) : address("run", session));
  };
  const conversation = conversationList(view, { why: showRecord, start: seq });
  const onHash = () => {
    const record = Number(location.hash.split("/")[3]) || 0;
    if (record && record !== why.peek()) {
      why.set(record);
      conversation.goTo(record);
    }
  };
  addEventListener("hashchange", onHash);
  onCleanup(() => removeEventListener("hashchange", onHash));
  const toggleOutline = () => {
    if (!isOutlined.peek()) showRecord(0);
    isOutlined.set(!isOutlined.peek());
  };
  const find = findBar(view, { ...conversation.finding, toggleOutline, isOutlined });
  useKeys([
    { key: "j", words: "next entry", act: () => conversation.move(1) },
    { key: "k", words: "previous entry", act: () => conversation.move(-1) },
    { key: "w, Enter", words: "why this record", act: () => { const at = conversation.current(); if (at) showRecord(at); } },
    { key: "G, End", words: "to the latest", act: () => conversation.toEnd() },
    { key: "/", words: "find in this run", act: find.focus },
    { key: "n", words: "next match", act: () => find.nextMatch(1) },
    { key: "N", words: "previous match", act: () => find.nextMatch(-1) },
    { key: "q", words: "next question", act: () => find.nextOf("questions") },
    { key: "e", words: "next error", act: () => find.nextOf("errors") },
    { key: "d", words: "next change", act: () => find.nextOf("changes") },
    { key: "z", words: "fold or unfold calls", act: () => conversation.finding.foldAll(!conversation.finding.isUnfolded()) },
    { key: "o", words: "outline", act: toggleOutline },
    { key: "c", words: "write to the run", act: focusBox },
    { key: "p", words: "pause or resume", act: () => void pauseOrResume(view) },
    { key: "x", words: "cancel the run", act: () => { if (isOpenRun(view) && may("start")) cancelDialog(view); } },
    { key: "Escape", words: "close the panel", act: () => { showRecord(0); isOutlined.set(false); } },
  ]);
  effect(() => {
    view.version();
    viewTitle.set(firstWords(view));
  });
  onCleanup(() => viewTitle.set(""));
  const top = h("div", { class: "run-top" }, runHead(view), timeline(view, (record) => { showRecord(record); conversation.goTo(record); }), find.element);
  const shown = h("div", { class: "run", hidden: () => view.isMissing() }, top,
    h("div", { class: () => ["run-columns", (why() > 0 || isOutlined()) && "with-why"] },
      h("div", { class: "run-main" }, conversation.element, runFoot(view, conversation)),
      whyPanel(session, why, { close: () => showRecord(0), show: (record) => { showRecord(record); conversation.goTo(record); } }),
      outlinePanel(view, { isOpen: isOutlined, goTo: conversation.goTo, close: () => isOutlined.set(false) })));
  keepHeightOf(top, shown);
  return [
    () => (view.isMissing() ? h("div", { class: "empty" }, h("h2", null, "There is no such session"),
      h("p", null, "It was deleted, it belongs to someone else, or the link is wrong: ", h("code", null, session)),
      h("p", null, h("a", { href: "#/" }, "To the sessions"))) : null),
    shown,
  ];
}

/**
 * Tell the styles how high the part is that stays, so that nothing is scrolled behind it.
 * @param {HTMLElement} top @param {HTMLElement} run
 */
function keepHeightOf(top, run) {
  const observer = new ResizeObserver(() => {
    const isSticky = getComputedStyle(top).position === "sticky";
    run.style.setProperty("--run-top", `${isSticky ? top.offsetHeight : 0}px`);
  });
  observer.observe(top);
  onCleanup(() => observer.disconnect());
}

/** @param {SessionView} view */
function isOpenRun(view) {
  return view.head.peek()?.run?.outcome === null;
}

/** @param {string} role */
function may(role) {
  const roles = hello()?.caller.roles ?? [];
  return roles.includes("admin") || roles.includes(role);
}

function focusBox() {
  /** @type {HTMLElement | null} */ (document.querySelector(".run-foot textarea"))?.focus();
}

/** @param {SessionView} view */
function firstWords(view) {
  const first = view.entries.find((entry) => entry?.entry === "prompt");
  if (first?.entry !== "prompt") return "";
  return clip(first.parts.map((part) => (part.type === "text" ? part.text : "")).join(" "), 80);
}

/**
 * The rows of a conversation, and the reply that is being written below them.
 * @param {SessionView} view
 * @param {{ why: (seq: number) => void, start: number }} options
 */
export function conversationList(view, options) {
  const rows = h("div", { class: "entries" });
  const isAtEnd = signal(options.start === 0);
  /** @type {Map<string, boolean>} */
  const opened = new Map();
  /** @type {Map<string, HTMLElement>} */
  const nestedViews = new Map();
  const isUnfolded = signal(recall("calls") === "unfolded");
  /** @type {((entry: import("./types.js").Entry) => boolean) | null} */
  let isShown = null;
  /** The entries that the filter shows. */
  let shown = view.entries;
  let selected = -1;
  let isPlaced = false;
  const context = {
    session: view.session,
    why: options.why,
    isOpen: (/** @type {string} */ key, byDefault = false) => opened.get(key) ?? (byDefault || (key.startsWith("call-") && isUnfolded.peek())),
    setOpen: (/** @type {string} */ key, /** @type {boolean} */ isOpen) => { opened.set(key, isOpen); },
    nested: (/** @type {import("./types.js").CallView} */ call) => nested(call),
    question: (/** @type {import("./types.js").CallView} */ call) => openQuestion(view.session, call),
  };
  const list = new ChunkedList(rows, (/** @type {import("./types.js").Entry} */ entry) => renderEntry(entry, context));

  /** @param {import("./types.js").CallView} call */
  function nested(call) {
    if (!call.agents.length) return null;
    return h("div", { class: "nested-agents" }, call.agents.map((agent) => {
      const known = nestedViews.get(agent.session) ?? nestedAgent(agent, call.ended_at === null);
      nestedViews.set(agent.session, known);
      return known;
    }));
  }
  const onEntries = (/** @type {number[]} */ changed, /** @type {boolean} */ isReset) => {
    shown = isShown ? view.entries.filter(isShown) : view.entries;
    if (isReset || !isPlaced || isShown) list.reset(shown);
    else list.update(shown, changed);
    if (!isPlaced && view.entries.length) {
      isPlaced = true;
      isAtEnd.set(options.start === 0);
      if (options.start > 0) requestAnimationFrame(() => goTo(options.start));
      else requestAnimationFrame(() => toEnd());
    } else if (isAtEnd.peek()) requestAnimationFrame(toEnd);
  };
  view.listeners.add(onEntries);
  onCleanup(() => view.listeners.delete(onEntries));
  if (view.entries.length) onEntries([], true);

  const onScroll = () => isPlaced && isAtEnd.set(innerHeight + scrollY >= document.documentElement.scrollHeight - BOTTOM_PX);
  addEventListener("scroll", onScroll, { passive: true });
  onCleanup(() => removeEventListener("scroll", onScroll));
  effect(() => {
    view.liveVersion();
    if (isAtEnd.peek() && isPlaced) requestAnimationFrame(toEnd);
  });

  function toEnd() {
    if (options.start < 0) return;
    scrollTo({ top: document.documentElement.scrollHeight });
  }
  /** @param {number} seq */
  function goTo(seq) {
    select(view.indexOfRecord(seq), "center");
  }
  /** @param {number} index of the entry in the session @param {ScrollLogicalPosition} [block] */
  function select(index, block = "nearest") {
    const entry = view.entries[index];
    const row = entry && list.rowAt(shown === view.entries ? index : shown.indexOf(entry));
    if (!row) return;
    // A reader who looks at a record is not taken to the end by the next one.
    if (block === "center") isAtEnd.set(false);
    rows.querySelector(".entry.selected")?.classList.remove("selected");
    row.classList.add("selected");
    selected = index;
    row.scrollIntoView({ block });
    row.focus({ preventScroll: true });
  }
  return {
    element: h("div", { class: "conversation" }, rows, pendingRows(view), liveReply(view)),
    isAtEnd, toEnd, goTo,
    current: () => view.entries[selected]?.seq ?? 0,
    move,
    finding: {
      goToIndex: (/** @type {number} */ index) => select(index, "center"),
      selected: () => selected,
      show,
      isUnfolded,
      foldAll,
    },
  };

  /** @param {number} step */
  function move(step) {
    const entry = view.entries[selected];
    const at = entry ? shown.indexOf(entry) : -1;
    const next = shown[at < 0 ? shown.length - 1 : Math.min(shown.length - 1, Math.max(0, at + step))];
    if (next) select(view.entries.indexOf(next));
  }
  /** @param {typeof isShown} filter shows these entries alone; null shows all */
  function show(filter) {
    if (isShown === null && filter === null) return;
    isShown = filter;
    shown = isShown ? view.entries.filter(isShown) : view.entries;
    if (isPlaced) list.reset(shown);
  }
  /** @param {boolean} isOpen */
  function foldAll(isOpen) {
    isUnfolded.set(isOpen);
    remember("calls", isOpen ? "unfolded" : "");
    for (const key of [...opened.keys()]) if (key.startsWith("call-")) opened.delete(key);
    for (const details of rows.querySelectorAll("details.call-fold")) /** @type {HTMLDetailsElement} */ (details).open = isOpen;
  }
}

/**
 * A question of this session's own call, to be answered where it stands.
 * @param {string} session @param {import("./types.js").CallView} call
 */
function openQuestion(session, call) {
  if (call.state !== "asked") return null;
  return h("div", { class: "inline-question" }, () => {
    const open = questions()?.find((one) => one.session === session && one.call_id === call.call.id);
    return open ? questionCard(open, { isInline: true }) : h("p", { class: "soft" }, "Loading the question…");
  });
}

/** @param {{ agent: string, session: string }} agent @param {boolean} isRunning */
function nestedAgent(agent, isRunning) {
  const isOpen = signal(isRunning);
  const details = h("details", { class: "nested", open: isOpen(), ontoggle: () => isOpen.set(details.open) },
    h("summary", null, icon("chevron"), h("span", { class: "chip agent" }, icon("agent"), agent.agent || "agent"), h("span", { class: "faint mono" }, agent.session)),
    () => {
      if (!isOpen()) return null;
      const { view, release } = watchSession(agent.session);
      onCleanup(release);
      const inner = conversationList(view, { why: (seq) => { location.hash = address("run", agent.session, seq); }, start: -1 });
      return h("div", { class: "nested-body" }, inner.element, h("a", { href: address("run", agent.session) }, "Open on its own"));
    });
  return details;
}

/** @param {SessionView} view */
function pendingRows(view) {
  return () => (view.head()?.pending ?? []).map((entry) => h("div", { class: "entry prompt steering pending" }, h("div", { class: "entry-main" },
    h("div", { class: "who" }, h("strong", null, entry.by || "You"), h("span", { class: "chip" }, "the model sees it before its next step")),
    entry.parts.map((part) => (part.type === "text" ? h("div", { class: "plain-text" }, part.text) : null)))));
}

/** @param {SessionView} view */
function liveReply(view) {
  const box = h("div", { class: "entry reply live", hidden: true, "aria-live": "off" });
  /** @type {[string, string][]} */
  let chunks = [];
  let shown = 0;
  /** @type {{ kind: string, write: (text: string) => void } | null} */
  let open = null;
  const drafts = h("div");
  effect(() => {
    view.liveVersion();
    const head = view.head();
    const reply = head?.reply;
    box.hidden = !reply || (!view.chunks.length && !reply.calls.length);
    if (view.chunks !== chunks) {
      chunks = view.chunks;
      shown = 0;
      open = null;
      box.replaceChildren(drafts);
      drafts.replaceChildren();
    }
    for (; shown < chunks.length; shown += 1) {
      const [kind, text] = chunks[shown] ?? ["text", ""];
      if (open?.kind !== kind) open = openPart(box, drafts, kind);
      open.write(text);
    }
    drafts.replaceChildren(...(reply?.calls ?? []).map((call) => h("div", { class: "call draft" }, h("header", { class: "call-head" }, icon("tool"), h("span", { class: "call-name mono" }, call.name), h("span", { class: "call-gist mono faint" }, clip(call.arguments, 160))))));
  });
  return box;
}

/** @param {HTMLElement} box @param {HTMLElement} before @param {string} kind */
function openPart(box, before, kind) {
  if (kind === "thinking") {
    const text = h("div", { class: "plain-text" });
    box.insertBefore(h("details", { class: "thinking", open: true }, h("summary", null, icon("chevron"), "Thinking"), text), before);
    return { kind, write: (/** @type {string} */ more) => text.append(more) };
  }
  const prose = h("div", { class: "prose" });
  box.insertBefore(prose, before);
  const reader = new MarkdownStream(prose, highlight);
  return { kind, write: (/** @type {string} */ more) => reader.write(more) };
}

/** @param {SessionView} view */
function runHead(view) {
  const state = () => (isAway(view) ? { words: "not connected", dot: "lost", chip: "bad" } : headState(view.head()));
  return h("header", { class: "run-head" },
    h("div", { class: "run-title" }, h("h1", null, () => { view.version(); return firstWords(view) || view.session; }),
      h("div", { class: "run-facts" },
        h("span", { class: () => ["chip", state().chip] }, () => [h("span", { class: `dot ${state().dot}` }), state().words]),
        () => view.head()?.parent && h("a", { class: "chip agent", href: address("run", view.head()?.parent ?? "") }, icon("agent"), "works for another session"),
        () => view.head()?.agent && h("span", { class: "soft" }, view.head()?.agent),
        () => view.head()?.model && h("span", { class: "soft mono" }, view.head()?.model),
        () => { const head = view.head(); return head && h("span", { class: "soft num" }, `${counted(head.steps, "step")}  ·  ${head.usage ? `${tokens((head.usage.input ?? 0) + (head.usage.output ?? 0))} tokens` : "no tokens"}  ·  ${money(head.usd)}`); },
        () => troubles(view.head()),
        h("span", { class: "faint mono session-name" }, view.session))),
    runActions(view));
}

/**
 * The buttons are replaced only when others are needed: not under a finger that presses one.
 * @param {SessionView} view
 */
function runActions(view) {
  const need = computed(() => {
    const run = view.head()?.run;
    return run ? `${run.outcome} ${run.pause !== null} ${isAway(view)} ${hello()?.caller.roles.join(" ")}` : "";
  });
  return h("div", { class: "run-actions" }, () => need() && untracked(() => runButtons(view)));
}

/**
 * Whether the service cannot be reached while the run is open: what is shown may be out of date.
 * @param {SessionView} view
 */
function isAway(view) {
  return connection().state === "lost" && view.head()?.run?.outcome === null;
}

/** @param {Head | null} head */
export function headState(head) {
  if (!head) return { words: "loading", dot: "rest", chip: "" };
  const run = head.run;
  if (!run) return { words: "empty", dot: "rest", chip: "" };
  if (run.outcome) return stateOf({ state: run.outcome });
  if (head.status.waits_for === "person") return stateOf({ state: "waiting" });
  if (head.status.waits_for === "budget") return stateOf({ state: "awaiting_budget" });
  if (head.status.waits_for === "continue") return stateOf({ state: "paused", pause: run.pause?.cause ?? "asked" });
  if (run.queued) return stateOf({ state: "queued" });
  return stateOf({ state: "open", released: head.status.waits_for === "driver" });
}

/** @param {Head | null} head */
function troubles(head) {
  const run = head?.run;
  if (!run) return null;
  const words = [run.failures && counted(run.failures, "failed attempt"), run.repairs && counted(run.repairs, "repair"), run.compactions && counted(run.compactions, "compaction"), run.fallbacks && counted(run.fallbacks, "fallback")].filter(Boolean);
  return words.length ? h("span", { class: "faint" }, words.join(", ")) : null;
}

/** @param {SessionView} view */
function runButtons(view) {
  const head = view.head();
  if (!head?.run) return null;
  const isOpen = head.run.outcome === null;
  const isPaused = head.run.pause !== null;
  const disabled = isAway(view);
  return [
    isOpen && may("start") && h("button", { disabled, onclick: () => void pauseOrResume(view) }, icon(isPaused ? "play" : "pause"), isPaused ? "Resume" : "Pause"),
    isOpen && may("admin") && h("button", { disabled, onclick: () => raiseDialog(view) }, icon("raise"), "Raise limit"),
    isOpen && may("start") && h("button", { class: "danger", disabled, onclick: () => cancelDialog(view) }, icon("stop"), "Cancel"),
    may("start") && h("button", { disabled, onclick: () => void fork(view.session, view.seq), title: "A new session with the same records" }, icon("fork"), "Fork"),
    h("button", { disabled, onclick: () => compareDialog(view.session) }, "Compare"),
  ];
}

/** @param {SessionView} view */
async function pauseOrResume(view) {
  const run = view.head.peek()?.run;
  if (!run || run.outcome) return;
  const isPaused = run.pause !== null;
  await attempt(() => post(runPath(view.session, isPaused ? "/resume" : "/pause"), {}), isPaused ? "The run continues." : "The run pauses after its current step.");
}

/** @param {SessionView} view */
function cancelDialog(view) {
  openDialog("Cancel this run?", (close) => h("form", { onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); close(); void attempt(() => post(runPath(view.session, "/cancel"), {}), "The run is cancelled."); } },
    h("p", { class: "soft" }, "What it did stays. Calls that run now are stopped. A cancelled run cannot be resumed; its session can continue with a new prompt."),
    h("div", { class: "actions" }, h("button", { type: "button", onclick: close }, "Keep it running"), h("button", { class: "danger", autofocus: true }, "Cancel the run"))));
}

/** @param {SessionView} view */
function raiseDialog(view) {
  /** @param {string} label @param {string} name @param {string} step */
  const field = (label, name, step) => h("label", { class: "field" }, label, h("input", { name, type: "number", min: "0", step, inputmode: "decimal" }));
  openDialog("Raise the limits of this run", (close) => h("form", {
    onsubmit: (/** @type {SubmitEvent} */ event) => {
      event.preventDefault();
      const form = new FormData(/** @type {HTMLFormElement} */ (event.target));
      /** @type {Record<string, number | string>} */
      const body = {};
      for (const name of ["steps", "tokens", "seconds"]) if (form.get(name)) body[name] = Number(form.get(name));
      if (form.get("usd")) body.usd = String(form.get("usd"));
      if (!Object.keys(body).length) return;
      close();
      void attempt(() => post(runPath(view.session, "/raise"), body), "The limits are raised.");
    },
  }, h("p", { class: "soft" }, "These are new totals for the run, not additions. An empty field stays as it is."),
  field("Money in US dollars", "usd", "0.01"), field("Steps", "steps", "1"), field("Tokens", "tokens", "1000"),
  h("div", { class: "actions" }, h("button", { type: "button", onclick: close }, "Close"), h("button", { class: "primary" }, "Raise"))));
}

/** @param {string} session */
function compareDialog(session) {
  openDialog("Compare with another session", (close) => {
    const list = h("select", { name: "other", size: "8", "aria-label": "Session" });
    void attempt(async () => {
      const page = await get("/page/sessions?limit=100");
      const others = /** @type {import("./types.js").SessionSummary[]} */ (page.sessions).filter((one) => one.session !== session);
      list.append(...others.map((one) => h("option", { value: one.session }, `${clip(one.title, 50)}  (${one.session}, ${age(one.updated, now.peek())})`)));
    });
    return h("form", { onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); if (!list.value) return; close(); location.hash = address("compare", session, list.value); } },
      h("div", { class: "field" }, list),
      h("div", { class: "actions" }, h("button", { type: "button", onclick: close }, "Close"), h("button", { class: "primary" }, "Compare")));
  });
}

/** @param {SessionView} view @param {ReturnType<typeof conversationList>} conversation */
function runFoot(view, conversation) {
  const isSteering = () => view.head()?.run?.outcome === null;
  return h("div", { class: "run-foot" },
    h("button", { class: "to-end small", hidden: () => conversation.isAtEnd(), onclick: () => conversation.toEnd() }, "To the latest"),
    h("div", { class: "status-line" }, () => (isAway(view) ? [h("span", { class: "dot lost" }), "The service cannot be reached. This is the last known state; it is updated when the service returns."] : statusWords(view.head()))),
    composer({ mode: "session", session: view.session, isSteering }));
}

/** @param {Head | null} head @returns {import("./dom.js").Child[]} */
export function statusWords(head) {
  if (!head) return [h("span", { class: "dot work" }), "Loading"];
  const { status, run } = head;
  const since = () => duration(Math.max(0, now() - status.since));
  const model = String(head.attempt?.model ?? head.model).split(":").at(-1);
  switch (status.waits_for) {
    case "model": return [h("span", { class: "dot work" }), head.reply?.step && head.reply.chunks ? `${model} answers: ` : `Waits for ${model}: `, since];
    case "tools": return [h("span", { class: "dot work" }), `Runs ${status.tools.join(", ")}: `, since];
    case "retry": return [h("span", { class: "dot wait" }), () => `The model failed; tries again in ${duration(Math.max(0, (status.until ?? 0) - now()))}`];
    case "person": return [h("span", { class: "dot wait" }), h("strong", null, "Waits for your answer: "), since];
    case "continue": return [h("span", { class: "dot wait" }), h("strong", null, run?.pause?.cause === "budget" ? "Its budget is used up" : `Paused${run?.pause?.by ? ` by ${run.pause.by}` : ""}`), run?.pause?.reason ? `: ${run.pause.reason}` : ""];
    case "budget": return [h("span", { class: "dot wait" }), "Others hold the rest of its budget; it continues by itself: ", since];
    case "driver": return [h("span", { class: "dot rest" }), "Its process released it; the service resumes it shortly"];
    case "runtime": return [h("span", { class: "dot work" }), head.driven ? "Works" : "It has no driver now; the service resumes it shortly"];
    default: return run?.outcome ? [h("span", { class: `dot ${stateOf({ state: run.outcome }).dot}` }), `Run ${run.number} ${stateOf({ state: run.outcome }).words}`, run.reason ? `: ${clip(run.reason, 160)}` : "", `, ${duration((run.ended_at ?? head.status.since) - run.started_at)}`] : [h("span", { class: "dot rest" }), "Waits for a prompt"];
  }
}
