/** One entry of a conversation as a row: prompts, replies with their calls, and quiet notices. */

import { renderCall } from "./calls.js";
import { markdown, promptContent, resultContent } from "./content.js";
import { h, icon } from "./dom.js";
import { clip, clockTime, counted, duration, money, tokens } from "./format.js";

/** @typedef {import("./types.js").Entry} Entry */
/** @typedef {import("./types.js").CallView} CallView */
/**
 * What a row can do and find.
 * @typedef {{ session: string, why: (seq: number) => void, nested: (call: CallView) => HTMLElement | null,
 *   question: (call: CallView) => HTMLElement | null, isOpen: (key: string, byDefault?: boolean) => boolean,
 *   setOpen: (key: string, isOpen: boolean) => void }} RowContext
 */

/** @param {Entry} entry @param {RowContext} context */
export function renderEntry(entry, context) {
  switch (entry.entry) {
    case "prompt": return row(entry, context, "prompt", [who(entry.caller || "You", entry.at), promptContent(entry.parts)]);
    case "steering": return row(entry, context, "prompt steering", [who(`${entry.by || "You"}, during the run`, entry.at), promptContent(entry.parts)]);
    case "earlier": return earlierRow(entry, context);
    case "note": return row(entry, context, "quiet", [h("span", { class: "quiet-icon" }, icon("why")), h("div", null, h("span", { class: "soft" }, "The runtime told the model: "), h("span", { class: "plain-text" }, entry.text))]);
    case "reply": return replyRow(entry, context);
    case "failure": return failureRow(entry, context);
    case "fallback": return quietRow(entry, context, "retry", `${entry.model} is asked instead of ${entry.instead_of}`, "warn");
    case "notice": return noticeRow(entry, context);
  }
}

/** @param {Entry} entry @param {RowContext} context @param {string} kind @param {import("./dom.js").Child[]} children */
function row(entry, context, kind, children) {
  return h("article", { class: ["entry", kind], id: `r${entry.seq}`, tabindex: "-1", dataset: { seq: String(entry.seq) } },
    h("div", { class: "entry-main" }, children), whyLink(entry.seq, context));
}

/** @param {number} seq @param {RowContext} context */
function whyLink(seq, context) {
  return h("a", {
    class: "record-link num", href: `#/run/${encodeURIComponent(context.session)}/${seq}`, title: `Why: record ${seq}`, "aria-label": `Why: record ${seq}`, "data-focus": `why-${seq}`,
    onclick: (/** @type {Event} */ event) => { event.preventDefault(); context.why(seq); },
  }, String(seq));
}

/** @param {string} name @param {number} at */
function who(name, at) {
  return h("div", { class: "who" }, h("strong", null, name), h("time", { class: "faint num" }, clockTime(at)));
}

/** @param {import("./types.js").ReplyEntry} entry @param {RowContext} context */
function replyRow(entry, context) {
  const calls = new Map(entry.calls.map((call) => [call.call.id, call]));
  const callContext = { ...context, seq: entry.seq };
  /** @type {import("./dom.js").Child[]} */
  const parts = [];
  entry.parts.forEach((part, at) => {
    if (part.type === "thinking") parts.push(thinking(part.text, `${entry.seq}.${at}`, context));
    else if (part.type === "text") parts.push(part.text.trim() ? markdown(part.text) : null);
    else {
      const call = calls.get(part.id);
      calls.delete(part.id);
      if (call) parts.push(renderCall(call, callContext));
    }
  });
  for (const call of calls.values()) parts.push(renderCall(call, callContext));
  if (entry.withheld) parts.push(h("p", { class: "soft" }, icon("lock"), " The reply is withheld", entry.verdict?.reason ? `: ${entry.verdict.reason}` : " until the gate has allowed it"));
  const kind = entry.kind === "lookup" || entry.kind === "undo" ? "reply lookup" : entry.kind === "partial" ? "reply partial" : "reply";
  return row(entry, context, kind, [replyHead(entry), parts]);
}

/** @param {import("./types.js").ReplyEntry} entry */
function replyHead(entry) {
  const name = entry.kind === "lookup" ? "Looked up for the prompt" : entry.kind === "undo" ? "Undone, the last one first" : entry.model.split(":").at(-1) || "Model";
  const stop = { length: "cut off at the output limit", refusal: "refused" }[entry.stop] ?? "";
  const usage = entry.charge?.usage;
  return h("div", { class: "who" }, h("strong", { title: entry.model }, name),
    entry.kind === "partial" ? h("span", { class: "chip warn" }, "broke off") : null,
    stop ? h("span", { class: "chip warn" }, stop) : null,
    h("span", { class: "who-figures faint num" },
      entry.step ? `step ${entry.step}` : null,
      usage ? h("span", { title: `${usage.input ?? 0} tokens in (${usage.cache_read ?? 0} from the cache), ${usage.output ?? 0} out` }, `${usage.estimated ? "about " : ""}${tokens((usage.input ?? 0) + (usage.output ?? 0))} tokens`) : null,
      entry.charge ? h("span", null, money(entry.charge.usd)) : null,
      entry.requested_at ? h("span", { title: "from the request to the end of the reply" }, duration(entry.at - entry.requested_at)) : null),
    h("time", { class: "faint num" }, clockTime(entry.at)));
}

/** @param {string} text @param {string} key @param {RowContext} context */
function thinking(text, key, context) {
  const details = h("details", { class: "thinking", open: context.isOpen(key), ontoggle: () => context.setOpen(key, details.open) },
    h("summary", { "data-focus": `think-${key}` }, icon("chevron"), `Thinking, ${counted(text.trim().split(/\s+/).length, "word")}`),
    h("div", { class: "plain-text" }, text.trim()));
  return details;
}

/** @param {import("./types.js").FailureEntry} entry @param {RowContext} context */
function failureRow(entry, context) {
  const fault = entry.fact.fault ?? {};
  const again = entry.retried ? ", trying again" : "";
  const wait = again && entry.fact.wait_s ? `${again} after ${duration(entry.fact.wait_s)}` : again;
  const kind = String(fault.kind ?? "failed").replaceAll("_", " ");
  const took = entry.requested_at ? `, ${duration(entry.at - entry.requested_at)}` : "";
  return row(entry, context, "quiet", [h("span", { class: "quiet-icon warn" }, icon("alert")),
    h("div", null, h("strong", { class: "warn" }, `Attempt ${entry.attempt} failed: ${kind}`), h("span", { class: "soft" }, `${took}${wait}`),
      h("div", { class: "soft plain-text" }, clip(String(fault.message ?? ""), 400)),
      entry.fact.partial ? h("details", { class: "thinking" }, h("summary", null, icon("chevron"), "What it had written does not count"), h("div", { class: "plain-text" }, entry.fact.partial)) : null)]);
}

/** @param {Entry} entry @param {RowContext} context @param {string} name @param {string} words @param {string} [kind] */
function quietRow(entry, context, name, words, kind = "") {
  return row(entry, context, "quiet", [h("span", { class: ["quiet-icon", kind] }, icon(name)), h("div", { class: "soft" }, words)]);
}

/** @type {Record<string, { icon: string, kind: string }>} */
const NOTICES = {
  RunResumed: { icon: "retry", kind: "warn" }, ContextCompacted: { icon: "layers", kind: "" }, Allotted: { icon: "coins", kind: "" },
  KnowledgeRecalled: { icon: "search", kind: "" }, CallLate: { icon: "clock", kind: "warn" }, SessionImported: { icon: "file", kind: "warn" },
  RunPaused: { icon: "pause", kind: "warn" }, RunContinued: { icon: "play", kind: "" }, RunReleased: { icon: "retry", kind: "" },
  BudgetAwaited: { icon: "pause", kind: "" }, BudgetWaitEnded: { icon: "play", kind: "" },
  LimitsRaised: { icon: "raise", kind: "" }, AnswerForwarded: { icon: "inbox", kind: "" }, MailRefused: { icon: "alert", kind: "warn" },
  ReleaseAsked: { icon: "retry", kind: "" },
};

/** @param {import("./types.js").NoticeEntry} entry @param {RowContext} context */
function noticeRow(entry, context) {
  if (entry.fact.type === "RunEnded") return endRow(entry, context);
  const look = NOTICES[entry.fact.type] ?? { icon: "why", kind: "" };
  return quietRow(entry, context, look.icon, entry.words, look.kind);
}

/** @param {import("./types.js").NoticeEntry} entry @param {RowContext} context */
function endRow(entry, context) {
  const outcome = String(entry.fact.outcome ?? "ended");
  const kind = outcome === "completed" ? "good" : outcome === "cancelled" ? "soft" : "bad";
  const name = { good: "check", soft: "stop", bad: "x" }[kind] ?? "x";
  return row(entry, context, "quiet end", [h("span", { class: ["quiet-icon", kind] }, icon(name)),
    h("div", null, h("strong", { class: kind }, `Run ${entry.run} ${outcome === "completed" || outcome === "cancelled" ? outcome : `ended: ${outcome.replaceAll("_", " ")}`}`),
      h("span", { class: "soft" }, entry.words ? ` ${entry.words}` : ""))]);
}

/** @param {import("./types.js").EarlierEntry} entry @param {RowContext} context */
function earlierRow(entry, context) {
  const name = { user: "Earlier: person", assistant: "Earlier: model", tool: "Earlier: results" }[entry.message.role] ?? "Earlier";
  const body = (entry.message.parts ?? []).map((part) => (part.type === "text" ? markdown(part.text) : part.type === "call" ? h("code", null, `${part.name}(${clip(part.arguments ?? "", 200)})`) : null));
  const items = /** @type {{ call: { name: string }, result: import("./types.js").ToolResult }[]} */ (entry.message.items ?? []);
  return row(entry, context, "earlier", [who(name, entry.at), body, items.map((item) => resultContent(item.result.content, item.call.name))]);
}
