/** A call: what it does, who allowed it, what came of it, what it cost. */

import { hasEscapes, terminalText } from "./ansi.js";
import { getText } from "./api.js";
import { h, icon } from "./dom.js";
import { attachment, clamp, markdown, resultContent } from "./content.js";
import { diffLines, renderDiff } from "./diff.js";
import { now } from "./feed.js";
import { clip, clockTime, duration, money, parseJson, prettyJson, reveal } from "./format.js";
import { attempt } from "./ui.js";

/** @typedef {import("./types.js").CallView} CallView */

/** @type {Record<string, { words: string, icon: string, kind: string }>} */
const STATES = {
  proposed: { words: "proposed", icon: "clock", kind: "rest" },
  asked: { words: "waits for your answer", icon: "inbox", kind: "wait" },
  cleared: { words: "may run", icon: "clock", kind: "work" },
  running: { words: "running", icon: "clock", kind: "work" },
  waiting: { words: "its agent waits", icon: "inbox", kind: "wait" },
  interrupted: { words: "interrupted", icon: "alert", kind: "wait" },
  done: { words: "done", icon: "check", kind: "done" },
  failed: { words: "failed", icon: "x", kind: "fail" },
  denied: { words: "denied", icon: "lock", kind: "fail" },
  invalid: { words: "invalid call", icon: "x", kind: "fail" },
  timed_out: { words: "timed out", icon: "clock", kind: "fail" },
  cancelled: { words: "cancelled", icon: "stop", kind: "rest" },
  unknown: { words: "outcome unknown", icon: "alert", kind: "fail" },
};

/**
 * A call that failed or waits is open; any other shows one line until it is opened.
 * @param {CallView} call
 * @param {import("./entries.js").RowContext & { seq: number }} context
 */
export function renderCall(call, context) {
  const state = STATES[call.state] ?? { words: call.state, icon: "tool", kind: "rest" };
  const args = readArguments(call);
  const question = context.question(call);
  const key = `call-${call.call.id}`;
  const body = question ? null : h("div", { class: "call-body" }, isGist(call.call.name, args) ? null : showArguments(call.call.name, args, call.call.arguments ?? "", false), showResult(call, context.session));
  const head = [
    body ? icon("chevron") : null,
    h("span", { class: "call-state", title: state.words }, icon(state.icon, state.words)),
    h("span", { class: "call-name mono" }, call.call.name),
    h("span", { class: "call-gist mono faint" }, gist(args)),
    h("span", { class: "grow" }),
    shortRule(call),
    callFigures(call, state.words)];
  const details = body ? h("details", { class: "call-fold", open: context.isOpen(key, ["fail", "wait"].includes(state.kind)), ontoggle: () => context.setOpen(key, details?.open ?? false) },
    h("summary", { class: "call-head", "data-focus": key }, head), body) : null;
  return h("div", { class: ["call", `is-${state.kind}`], role: "group", "aria-label": `${call.call.name}, ${state.words}`, dataset: { call: call.call.id } },
    details ?? h("header", { class: "call-head" }, head),
    decision(call),
    progress(call),
    question,
    context.nested(call));
}

/** @param {string} state of a call */
export function isBadState(state) {
  return STATES[state]?.kind === "fail";
}

/** @param {CallView} call @returns {Record<string, any> | null} */
export function readArguments(call) {
  const value = parseJson(call.arguments ?? call.call.arguments ?? "{}");
  return value !== null && typeof value === "object" && !Array.isArray(value) ? /** @type {Record<string, any>} */ (value) : null;
}

/**
 * Whether the head of the call shows all of its arguments. A command is always shown as it would be typed.
 * @param {string} tool @param {Record<string, any> | null} args
 */
function isGist(tool, args) {
  const values = Object.values(args ?? {});
  return tool !== "bash" && values.length === 1 && typeof values[0] === "string" && values[0] === gist(args);
}

/** @param {CallView} call @param {string} words */
function callFigures(call, words) {
  const spent = call.charges.reduce((sum, charge) => sum + Number(charge.usd ?? 0), 0);
  const isBad = isBadState(call.state);
  return h("span", { class: "call-figures num" },
    isBad ? h("strong", { class: "bad" }, words) : call.state === "done" ? null : h("span", { class: "soft" }, words),
    spent > 0 ? h("span", { class: "soft", title: "paid to models by this call" }, money(spent)) : null,
    call.started_at === null ? null : h("span", { class: "faint", title: `started ${clockTime(call.started_at)}` },
      call.ended_at === null ? () => duration(now() - (call.started_at ?? 0)) : duration(call.ended_at - call.started_at)));
}

/**
 * The one thing that tells most about a call, in one line.
 * @param {Record<string, any> | null} args
 */
export function gist(args) {
  if (!args) return "";
  const first = args.command ?? args.path ?? args.url ?? args.pattern ?? args.query ?? args.task ?? Object.values(args)[0];
  if (first === undefined) return "";
  return clip(typeof first === "string" ? first : JSON.stringify(first), 90);
}

/**
 * The rule that allowed a call, if there is nothing else to say about the decision.
 * @param {CallView} call
 */
function shortRule(call) {
  const isPlain = call.answer === null && (call.verdict?.verdict === "allow" || call.verdict?.verdict === "ask");
  return isPlain && call.verdict?.rule ? h("span", { class: "rule mono only-wide", title: "the rule that decided" }, clip(call.verdict.rule, 60)) : null;
}

/** @param {CallView} call */
function decision(call) {
  /** @type {import("./dom.js").Child[]} */
  const lines = [];
  const rule = call.answer?.rule || call.verdict?.rule || "";
  if (call.answer) {
    const waited = call.asked_at !== null && call.answered_at !== null ? ` after ${duration(call.answered_at - call.asked_at)}` : "";
    const what = { allow: "allowed", deny: "denied", modify: "allowed with other arguments" }[call.answer.verdict] ?? call.answer.verdict;
    for (const given of call.answers.filter((one) => one.by !== call.answered_by)) lines.push(h("span", null, `${given.by || "A person"} agreed`));
    lines.push(h("span", { class: call.answer.verdict === "deny" ? "bad" : "", title: call.person?.origin ?? "" }, `${call.answered_by || "A person"} ${what}${waited}`), call.answer.reason ? h("q", null, call.answer.reason) : null);
  } else if (call.verdict?.verdict === "deny") lines.push(h("span", { class: "bad" }, `Denied: ${call.verdict.reason ?? ""}`));
  else if (call.verdict?.verdict === "modify") lines.push(h("span", null, `The gate changed the arguments: ${call.verdict.reason ?? ""}`));
  if (rule && rule !== "person" && lines.length) lines.push(h("span", { class: "rule mono", title: "the rule that decided" }, clip(rule, 80)));
  for (const change of call.changes) lines.push(h("span", { class: "repair" }, icon("tool"), `repaired ${change.path}: ${change.what}`));
  if (call.starts > 1) lines.push(h("span", { class: "repair" }, icon("retry"), `started ${call.starts} times under one key`));
  if (call.call.origin) lines.push(h("span", { class: "repair" }, `found as text: ${call.call.origin}`));
  return lines.length ? h("div", { class: "call-decision soft" }, lines) : null;
}

/** @param {CallView} call */
function progress(call) {
  return call.progress ? h("div", { class: "call-progress soft mono" }, clip(call.progress, 300)) : null;
}

/** @param {CallView} call @param {string} session */
function showResult(call, session) {
  if (!call.result) return null;
  const isBad = call.result.kind !== "value";
  // What a sub-agent answers is text of a model, and reads like one.
  const content = call.agents.length && !isBad ? call.result.content.map((part) => (part.type === "text" ? markdown(part.text) : attachment(part))) : resultContent(call.result.content, call.call.name);
  return h("div", { class: ["call-result", isBad && "failed"] }, content,
    call.clipped ? h("p", { class: "faint" }, `${call.clipped.toLocaleString()} more characters: see the record`) : null,
    (call.result.artifacts ?? []).map((artifact) => wholeResult(session, artifact)));
}

/**
 * A result that was shortened for the model, and a button that shows all of it.
 * @param {string} session @param {string} artifact
 */
function wholeResult(session, artifact) {
  const box = h("div", { class: "whole-result" }, h("p", { class: "faint" }, "Shortened for the model. ",
    h("button", { class: "small plain", onclick: () => void attempt(async () => {
      const text = await getText(`/runs/${encodeURIComponent(session)}/artifacts/${encodeURIComponent(artifact)}`);
      box.replaceChildren(h("pre", { class: "result-text whole", tabindex: "0", role: "group", "aria-label": "the whole result" }, hasEscapes(text) ? terminalText(text) : text));
    }) }, "Show the whole result")));
  return box;
}

/**
 * The arguments, so that a person sees exactly what happens.
 * @param {string} tool
 * @param {Record<string, any> | null} args null if they are not an object
 * @param {string} raw
 * @param {boolean} isWhole nothing is folded: for a question
 */
export function showArguments(tool, args, raw, isWhole) {
  if (!args) return raw ? clampUnless(isWhole, h("pre", { class: "result-text", tabindex: "0", role: "group", "aria-label": "arguments" }, reveal(raw)), raw) : null;
  const { command, edits, ...rest } = args;
  /** @type {import("./dom.js").Child[]} */
  const parts = [];
  if (typeof command === "string") {
    parts.push(clampUnless(isWhole, h("pre", { class: "terminal command", tabindex: "0", role: "group", "aria-label": "command" }, h("span", { class: "prompt-sign", "aria-hidden": "true" }, "$ "), reveal(command)), command));
  } else if (command !== undefined) rest.command = command;
  const changes = readEdits(edits);
  if (edits !== undefined && !changes) rest.edits = edits;
  const isFile = tool === "write" && typeof rest.content === "string" && typeof rest.path === "string";
  const content = isFile ? rest.content : null;
  if (isFile) delete rest.content;
  if (Object.keys(rest).length) parts.push(argumentTable(rest, isWhole));
  for (const change of changes ?? []) {
    if (change.replace_all) parts.push(h("p", { class: "warn" }, "everywhere in the file:"));
    parts.push(clampUnless(isWhole, renderDiff(diffLines(change.old, change.new), isWhole), change.old + change.new));
  }
  if (content !== null) parts.push(h("p", { class: "soft" }, "The file will hold exactly this:"), clampUnless(isWhole, renderDiff(diffLines("", content), true), content));
  return parts.length ? h("div", { class: "arguments" }, parts) : h("p", { class: "faint" }, "no arguments");
}

/** @param {boolean} isWhole @param {HTMLElement} block @param {string} text */
function clampUnless(isWhole, block, text) {
  return isWhole ? block : clamp(block, text);
}

/** @param {unknown} edits @returns {{ old: string, new: string, replace_all?: boolean }[] | null} */
function readEdits(edits) {
  if (!Array.isArray(edits)) return null;
  const known = new Set(["old", "new", "replace_all"]);
  // A difference would hide what it does not show: anything else is shown as it is.
  const isPlain = edits.every((one) => one !== null && typeof one === "object" && typeof one.old === "string" && typeof one.new === "string"
    && (one.replace_all === undefined || typeof one.replace_all === "boolean") && Object.keys(one).every((key) => known.has(key)));
  return isPlain ? edits : null;
}

/** @param {Record<string, any>} args @param {boolean} isWhole */
function argumentTable(args, isWhole) {
  return h("dl", { class: "argument-table" }, Object.entries(args).map(([name, value]) => {
    const text = prettyJson(value);
    const isBlock = text.includes("\n") || text.length > 120;
    const shown = h(isBlock ? "pre" : "code", isBlock ? { class: "result-text", tabindex: "0", role: "group", "aria-label": name } : null, reveal(text));
    return [h("dt", { class: "mono" }, reveal(name)), h("dd", null, isBlock ? clampUnless(isWhole, shown, text) : shown)];
  }));
}
