/** The outline of a session: its prompts, steps, calls and sub-agents, each a way to its place. */

import { gist, isBadState, readArguments } from "./calls.js";
import { h, icon } from "./dom.js";
import { watchSession } from "./feed.js";
import { clip } from "./format.js";
import { onCleanup, signal } from "./signals.js";
import { address } from "./ui.js";

/** @typedef {import("./types.js").Entry} Entry */
/** @typedef {import("./session_view.js").SessionView} SessionView */

/**
 * @param {SessionView} view
 * @param {{ isOpen: () => boolean, goTo: (seq: number) => void, close: () => void }} actions
 */
export function outlinePanel(view, actions) {
  return h("aside", { class: "side outline panel", "aria-label": "Outline", hidden: () => !actions.isOpen() },
    h("header", { class: "why-head" }, h("h2", null, "Outline"), h("span", { class: "grow" }),
      h("button", { class: "plain small", "aria-label": "Close the outline", onclick: actions.close }, icon("x"))),
    () => (actions.isOpen() ? outlineList(view, (seq) => `#/run/${encodeURIComponent(view.session)}/${seq}`, actions.goTo) : null));
}

/**
 * @param {SessionView} view
 * @param {(seq: number) => string} hrefOf
 * @param {((seq: number) => void) | null} goTo null if the link alone leads there
 * @returns {HTMLElement}
 */
function outlineList(view, hrefOf, goTo) {
  /** @param {number} seq @param {string} kind @param {import("./dom.js").Child} content */
  const link = (seq, kind, content) => h("a", {
    class: kind, href: hrefOf(seq),
    onclick: goTo === null ? null : (/** @type {Event} */ event) => { event.preventDefault(); goTo(seq); },
  }, content);
  return h("ol", { class: "outline-list" }, () => {
    view.version();
    return view.entries.map((entry) => outlineItem(entry, link));
  });
}

/**
 * @param {Entry} entry
 * @param {(seq: number, kind: string, content: import("./dom.js").Child) => HTMLElement} link
 */
function outlineItem(entry, link) {
  switch (entry.entry) {
    case "prompt": case "steering":
      return h("li", { class: "outline-prompt" }, link(entry.seq, "", clip(entry.parts.map((part) => (part.type === "text" ? part.text : "")).join(" "), 60) || "(no text)"));
    case "failure": return h("li", null, link(entry.seq, "bad", `Attempt ${entry.attempt} failed`));
    case "reply": return replyItem(entry, link);
    case "notice": return entry.fact.type === "RunEnded" ? h("li", null, link(entry.seq, entry.fact.outcome === "completed" ? "good" : "bad", `Run ${entry.run}: ${String(entry.fact.outcome).replaceAll("_", " ")}`)) : null;
    default: return null;
  }
}

/**
 * @param {import("./types.js").ReplyEntry} entry
 * @param {(seq: number, kind: string, content: import("./dom.js").Child) => HTMLElement} link
 */
function replyItem(entry, link) {
  const text = entry.parts.find((part) => part.type === "text" && part.text.trim());
  const words = text?.type === "text" ? clip(text.text, 50) : "";
  return h("li", null, link(entry.seq, "", [entry.step ? h("span", { class: "faint num" }, `${entry.step} `) : null, words || (entry.calls.length ? "calls" : "reply")]),
    entry.calls.length ? h("ol", null, entry.calls.map((call) => h("li", null,
      link(entry.seq, isBadState(call.state) ? "bad" : call.state === "asked" ? "warn" : "soft", [h("span", { class: "mono" }, call.call.name), " ", h("span", { class: "faint" }, clip(gist(readArguments(call)), 36))]),
      call.agents.map(agentItem)))) : null);
}

/** @param {{ agent: string, session: string }} agent @returns {HTMLElement} */
function agentItem(agent) {
  const isOpen = signal(false);
  const details = h("details", { ontoggle: () => isOpen.set(details.open) },
    h("summary", null, icon("chevron"), icon("agent"), agent.agent || "agent"),
    () => {
      if (!isOpen()) return null;
      const { view, release } = watchSession(agent.session);
      onCleanup(release);
      return outlineList(view, (seq) => address("run", agent.session, seq), null);
    });
  return details;
}
