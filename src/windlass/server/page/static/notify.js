/** What waits for the person: in the title, on the icon of the tab, and as a notification. */

import { questions } from "./feed.js";
import { effect, ownScope, signal } from "./signals.js";
import { address } from "./ui.js";

/** @type {Set<string> | null} questions that were there before; null until the first list came */
let known = null;

/** What the view calls itself in the title of the tab; empty for the page itself. */
export const viewTitle = signal("");

export function startNotices() {
  ownScope(() => effect(() => {
    const open = questions() ?? [];
    const name = viewTitle() ? `${viewTitle()} · Windlass` : "Windlass";
    document.title = open.length ? `(${open.length}) ${name}` : name;
    drawIcon(open.length);
    const keys = new Set(open.map((one) => `${one.session}\n${one.call_id}\n${one.digest}`));
    const isNew = open.filter((one) => known !== null && !known.has(`${one.session}\n${one.call_id}\n${one.digest}`));
    if (questions() !== null) known = keys;
    for (const question of isNew) notify(question);
  }));
}

/** @param {import("./types.js").Question} question */
function notify(question) {
  if (!document.hidden || !("Notification" in globalThis) || Notification.permission !== "granted") return;
  // The words of the question may be those of a model: a notification shows them as plain text.
  const notice = new Notification(`${question.agent || "An agent"} asks`, {
    body: `${question.tool}: ${question.question}`.slice(0, 200),
    tag: `${question.session}/${question.call_id}`,
  });
  notice.onclick = () => {
    focus();
    location.hash = address("questions", question.session, question.call_id);
  };
}

/** Whether the person can still be asked for permission. */
export function canAskPermission() {
  return "Notification" in globalThis && Notification.permission === "default";
}

/** @param {number} count */
function drawIcon(count) {
  const link = /** @type {HTMLLinkElement | null} */ (document.getElementById("favicon"));
  if (!link) return;
  if (count === 0) {
    link.href = "page/icon.svg";
    return;
  }
  const canvas = document.createElement("canvas");
  canvas.width = 64;
  canvas.height = 64;
  const pen = canvas.getContext("2d");
  if (!pen) return;
  pen.fillStyle = "#2450c4";
  pen.beginPath();
  pen.roundRect(0, 0, 64, 64, 14);
  pen.fill();
  pen.fillStyle = "#ffffff";
  pen.font = "bold 44px sans-serif";
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.fillText(count > 9 ? "9+" : String(count), 32, 35);
  link.href = canvas.toDataURL("image/png");
}
