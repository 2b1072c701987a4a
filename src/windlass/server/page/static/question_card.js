/**
 * A question to a person: exactly what will happen, who asks and why, and the ways to answer.
 *
 * Nothing of the arguments is folded, and a character that cannot be seen is shown as its code. The
 * answer names the digest of what is shown here, so that it counts for nothing else.
 */

import { post, runPath } from "./api.js";
import { showArguments } from "./calls.js";
import { diffLines, renderDiff, renderUnified } from "./diff.js";
import { h, icon } from "./dom.js";
import { now } from "./feed.js";
import { ago, clip, dateTime, duration, parseJson, prettyJson, reveal } from "./format.js";
import { effect, onCleanup, signal } from "./signals.js";
import { address, attempt } from "./ui.js";

/** @typedef {import("./types.js").Question} Question */
/** @typedef {"" | "pattern" | "change" | "deny"} Mode */

/**
 * @param {Question} question
 * @param {{ isInline?: boolean, armed?: () => string, latest?: () => Question }} [options]
 *   `armed`: the key that was pressed once; `latest`: the question as it is now, with its preview and those who agreed
 */
export function questionCard(question, options = {}) {
  const mode = signal(/** @type {Mode} */ (""));
  const isSending = signal(false);
  const hasExpired = () => question.expires_at !== null && now() >= question.expires_at;
  /** @param {Record<string, any>} answer @param {string} done */
  const reply = async (answer, done) => {
    if (isSending.peek()) return;
    isSending.set(true);
    await attempt(() => answerQuestion(question, answer), done);
    isSending.set(false);
  };
  const latest = options.latest ?? (() => question);
  const isClosed = () => isSending() || hasExpired() || latest().cannot !== "";
  const allow = () => void reply({ verdict: "allow" }, question.needs.length ? "You agreed." : "Allowed once.");
  const deny = (/** @type {string} */ reason) => void reply({ verdict: "deny", reason: reason || "The user said no." }, "Denied.");
  const armed = options.armed ?? (() => "");
  return h("article", { class: ["question", "panel", options.isInline && "inline"], "aria-label": `Question about ${question.tool}` },
    options.isInline ? null : questionHead(question),
    h("div", { class: "question-words" }, h("strong", null, reveal(question.question)), h("span", { class: "soft" }, question.rule ? [" because of ", h("code", null, reveal(clip(question.rule, 120)))] : null), options.isInline ? [" ", timeLeft(question)] : null),
    consequences(question),
    () => approvals(latest()),
    () => showPreview(latest().preview),
    h("div", { class: "question-arguments" }, showArguments(question.tool, question.arguments, "", true)),
    earlierAnswers(question),
    h("div", { class: "question-actions" },
      h("button", { class: "primary allow", disabled: isClosed, onclick: allow }, icon("check"), () => (armed() === "a" ? "Press a again to allow" : question.needs.length ? "Agree" : "Allow once")),
      h("button", { class: "deny", "aria-expanded": () => String(mode() === "deny"), disabled: () => isSending() || latest().cannot !== "", onclick: () => mode.set(mode() === "deny" ? "" : "deny") }, icon("x"), () => (armed() === "d" ? "Press d again to deny" : "Deny")),
      question.needs.length ? null : h("button", { "aria-expanded": () => String(mode() === "pattern"), disabled: isClosed, onclick: () => mode.set(mode() === "pattern" ? "" : "pattern") }, "Allow a pattern"),
      h("button", { "aria-expanded": () => String(mode() === "change"), disabled: isClosed, onclick: () => mode.set(mode() === "change" ? "" : "change") }, "Change arguments")),
    () => (hasExpired() ? h("p", { class: "bad" }, "The time to answer is over: only a denial counts now.") : null),
    () => {
      switch (mode()) {
        case "pattern": return patternForm(question, (pattern) => void reply({ verdict: "allow_always", pattern }, "Allowed for the rest of the session."));
        case "change": return changeForm(question, (args) => void reply({ verdict: "modify", arguments: args, reason: "The user changed the arguments." }, "Allowed with these arguments."));
        case "deny": return denyForm(deny);
        default: return null;
      }
    });
}

/**
 * Send an answer, which is bound to the arguments that were shown.
 * @param {Question} question @param {Record<string, any>} answer
 */
export async function answerQuestion(question, answer) {
  const body = { call_id: question.call_id, digest: question.digest, answer };
  return post(runPath(question.session, "/answers"), body);
}

/** @param {Question} question who has to agree, who did, and why this person cannot */
function approvals(question) {
  if (!question.needs.length) return null;
  return h("div", { class: "approvals" },
    h("p", null, icon("lock"), " Needs ", h("strong", null, question.needs.join(", and ")), question.agreed.length ? [". Agreed: ", h("strong", null, question.agreed.join(", "))] : ". Nobody has agreed yet", "."),
    question.cannot ? h("p", { class: "warn" }, `You cannot answer it: ${question.cannot}.`) : null);
}

/** @param {Question} question */
function questionHead(question) {
  const chain = question.chain.length ? question.chain : [question.agent || "agent"];
  return h("header", { class: "question-head" },
    h("div", { class: "question-who" }, [...chain].reverse().map((name, at) => [at ? h("span", { class: "faint" }, "for") : null, h("span", { class: "chip agent" }, icon("agent"), name)]),
      h("span", { class: "mono question-tool" }, question.tool)),
    h("div", { class: "question-from" },
      h("a", { href: address("run", question.root) }, clip(question.title || question.root, 90)),
      h("span", { class: "faint num" }, question.asked_at ? () => ago(question.asked_at, now()) : null),
      timeLeft(question)));
}

/** @param {Question} question */
function timeLeft(question) {
  const end = question.expires_at;
  if (end === null) return null;
  return h("span", { class: "warn num time-left", title: dateTime(end) }, () => (now() < end ? `${duration(end - now())} left` : "expired"));
}

/** @param {Question} question */
function consequences(question) {
  const out = question.labels.includes("external");
  const host = destination(question.arguments);
  return h("div", { class: "consequences" },
    question.effect === "read" ? h("span", { class: "chip good" }, "only reads") : h("span", { class: "chip warn" }, question.effect === "idempotent" ? "changes something, may be repeated" : "changes something"),
    out ? h("span", { class: "chip bad" }, icon("globe"), host ? ["sends data to ", reveal(host)] : "sends data out") : host ? h("span", { class: "chip" }, icon("globe"), reveal(host)) : null,
    question.held_labels.includes("untrusted") ? h("span", { class: "chip warn" }, "has read outside text") : null,
    question.held_labels.includes("private") ? h("span", { class: "chip warn" }, "has read private data") : null,
    question.sandbox === "" ? null : h("span", { class: ["chip", question.sandbox === "sandboxed" ? "good" : "bad"] }, icon("lock"), question.sandbox),
    question.notice ? h("p", { class: "warn notice-text" }, reveal(question.notice)) : null);
}

/** @param {Question["preview"]} preview */
function showPreview(preview) {
  if (!preview) return null;
  return h("div", { class: "question-preview" },
    h("p", { class: "soft" }, reveal(preview.note)),
    preview.diff ? renderUnified(preview.diff) : null);
}

/** @param {Record<string, any>} args */
function destination(args) {
  for (const value of [args.url, args.address, args.endpoint, args.to, args.host]) {
    if (typeof value !== "string") continue;
    try {
      return new URL(value).host;
    } catch {
      if (value.length < 120) return value;
    }
  }
  return "";
}

/** @param {Question} question */
function earlierAnswers(question) {
  if (!question.allowed_before.length) return h("p", { class: "faint allowed-before" }, `No call of ${question.tool} was answered in this session before.`);
  return h("details", { class: "allowed-before" },
    h("summary", null, icon("chevron"), `Answered before in this session: ${question.allowed_before.length}`),
    h("ul", null, question.allowed_before.map((one) => h("li", null, h("span", { class: one.decision === "deny" ? "bad" : "good" }, one.decision === "deny" ? "denied" : one.pattern ? `allowed ${one.pattern}` : "allowed"), " ", h("code", null, reveal(clip(one.arguments, 160))), h("span", { class: "faint" }, ` ${one.by || "a person"}`, one.at ? [", ", () => ago(one.at, now())] : null)))));
}

/** @param {Question} question @param {(pattern: string) => void} allow */
function patternForm(question, allow) {
  const verdict = signal(/** @type {{ covers: boolean, words: string, others: string[] } | null} */ (null));
  const pattern = signal(question.pattern);
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let checking;
  effect(() => {
    const text = pattern();
    clearTimeout(checking);
    verdict.set(null);
    checking = setTimeout(() => {
      post("/page/pattern", { session: question.session, call_id: question.call_id, pattern: text }).then((found) => { if (pattern.peek() === text) verdict.set(found); }, () => {});
    }, 250);
  });
  onCleanup(() => clearTimeout(checking));
  return h("form", { class: "answer-form", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); if (verdict.peek()?.covers) allow(pattern.peek().trim()); } },
    h("label", { class: "field" }, "Allow calls like this for the rest of the session",
      h("input", { class: "mono", value: question.pattern, spellcheck: "false", autocapitalize: "off", placeholder: "empty: exactly this call", oninput: (/** @type {Event} */ event) => pattern.set(/** @type {HTMLInputElement} */ (event.target).value) })),
    h("div", { role: "status" }, () => {
      const found = verdict();
      if (!found) return h("p", { class: "faint" }, "Checking…");
      return [h("p", { class: found.covers ? "soft" : "bad" }, reveal(found.words)), found.others.length ? h("ul", { class: "matches" }, found.others.map((one) => h("li", null, h("code", null, reveal(clip(one, 200)))))) : null];
    }),
    h("button", { class: "primary", disabled: () => !verdict()?.covers }, "Allow from now on"));
}

/** @param {Question} question @param {(args: Record<string, any>) => void} allow */
function changeForm(question, allow) {
  const before = prettyJson(question.arguments);
  const text = signal(before);
  const args = () => {
    const value = parseJson(text());
    return value !== null && typeof value === "object" && !Array.isArray(value) ? /** @type {Record<string, any>} */ (value) : null;
  };
  return h("form", { class: "answer-form", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); const value = args(); if (value && text() !== before) allow(value); } },
    h("label", { class: "field" }, "The arguments that are to run instead",
      h("textarea", { class: "mono", rows: String(Math.min(16, before.split("\n").length + 1)), spellcheck: "false", value: before, oninput: (/** @type {Event} */ event) => text.set(/** @type {HTMLTextAreaElement} */ (event.target).value) })),
    () => (args() ? (text() === before ? null : renderDiff(diffLines(before, prettyJson(args())))) : h("p", { class: "bad" }, "This is not a JSON object.")),
    h("button", { class: "primary", disabled: () => !args() || text() === before }, "Allow with these arguments"));
}

/** @param {(reason: string) => void} deny */
function denyForm(deny) {
  const words = h("textarea", { rows: 2, placeholder: "What the model should do instead (may be empty)", "aria-label": "Reason for the model", autofocus: true });
  return h("form", { class: "answer-form", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); deny(words.value.trim()); } },
    words, h("button", { class: "danger" }, "Deny"));
}
