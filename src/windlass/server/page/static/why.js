/** Why: one record with its explanation, its raw form, its hash and the state of the chain. */

import { ApiError, get, post, runPath } from "./api.js";
import { h, icon, slot } from "./dom.js";
import { clockTime, counted, prettyJson } from "./format.js";
import { effect, signal } from "./signals.js";
import { address, attempt, copyButton, tell } from "./ui.js";

/**
 * @typedef {{ seq: number, at: number, type: string, explanation: string[], record: Record<string, any>,
 *   hash: string, previous: string, chain: string, total: number }} RecordReply
 */

/**
 * @param {string} session
 * @param {import("./signals.js").Signal<number>} seq the record that is shown; 0 for none
 * @param {{ close: () => void, show: (seq: number) => void }} actions
 */
export function whyPanel(session, seq, actions) {
  const body = h("div", { class: "why-body" });
  const show = slot(body);
  const total = signal(0);
  let asked = 0;
  effect(() => {
    const at = seq();
    if (!at) return;
    const mine = ++asked;
    get(`/page/records/${encodeURIComponent(session)}/${at}`).then(
      (/** @type {RecordReply} */ record) => {
        if (mine !== asked) return;
        total.set(record.total);
        show(() => recordView(session, record));
      },
      (/** @type {unknown} */ error) => {
        if (mine === asked) show(() => h("p", { class: "bad" }, error instanceof ApiError ? error.message : String(error)));
      });
  });
  /** @param {number} step */
  const step = (step) => h("button", {
    class: "plain small", "aria-label": step < 0 ? "Record before" : "Next record", disabled: () => seq() + step < 1 || (total() > 0 && seq() + step > total()),
    onclick: () => actions.show(seq.peek() + step),
  }, step < 0 ? "←" : "→");
  return h("aside", { class: "why panel", "aria-label": "Why", hidden: () => seq() === 0 },
    h("header", { class: "why-head" }, h("h2", null, () => `Record ${seq()}`), h("span", { class: "faint num" }, () => (total() ? `of ${total()}` : "")), h("span", { class: "grow" }),
      step(-1), step(1), h("button", { class: "plain small", "aria-label": "Close", onclick: actions.close }, icon("x"))),
    body);
}

/** @param {string} session @param {RecordReply} record */
function recordView(session, record) {
  const isSound = record.chain === "verified" || record.chain === "signed";
  return [
    h("div", { class: "why-kind" }, h("span", { class: "chip mono" }, record.type), h("time", { class: "faint num" }, clockTime(record.at)),
      h("span", { class: ["chip", isSound ? "good" : "bad"], title: "each record carries the hash of the one before" }, icon(isSound ? "check" : "alert"), `chain ${record.chain}`)),
    h("ol", { class: "why-lines" }, record.explanation.map((line) => {
      const depth = Math.min(4, Math.floor((/^ */.exec(line) ?? [""])[0].length / 2));
      return h("li", { class: `depth-${depth}` }, line.trim());
    })),
    h("div", { class: "why-actions" },
      h("button", { class: "small", onclick: () => void fork(session, record.seq) }, icon("fork"), "Fork from here"),
      h("button", { class: "small", onclick: () => void replay(session, record.seq) }, icon("play"), "Replay from here"),
      h("button", { class: "small", onclick: () => void copyLink(session, record.seq) }, icon("link"), "Link")),
    h("dl", { class: "why-hash" }, h("dt", null, "hash"), h("dd", { class: "mono", title: record.hash }, record.hash), h("dt", null, "before"), h("dd", { class: "mono", title: record.previous }, record.previous || "none: the first record")),
    h("div", { class: "why-raw" }, h("h3", null, "As it was recorded"), copyButton(prettyJson(record.record)),
      h("pre", { class: "raw", tabindex: "0", role: "group", "aria-label": "raw record" }, prettyJson(record.record))),
  ];
}

/** @param {string} session @param {number} at */
export async function fork(session, at) {
  await attempt(async () => {
    const forked = await post(runPath(session, "/fork"), { at });
    tell(`A new session begins with the first ${counted(at, "record")}.`, { hint: "The original stays as it is." });
    location.hash = address("run", forked.session);
  });
}

/** @param {string} session @param {number} from */
async function replay(session, from) {
  await attempt(async () => {
    const found = await get(`/page/replay/${encodeURIComponent(session)}?start=${from}`);
    tell(found.words, { hint: found.hint, isBad: !found.agrees });
  });
}

/** @param {string} session @param {number} seq */
async function copyLink(session, seq) {
  await attempt(() => navigator.clipboard.writeText(`${location.origin}/${address("run", session, seq)}`), "The link is copied");
}
