/** The inbox: all questions that wait for this person, the oldest first. */

import { h, keyedList } from "./dom.js";
import { questions } from "./feed.js";
import { useKeys } from "./keys.js";
import { canAskPermission } from "./notify.js";
import { answerQuestion, questionCard } from "./question_card.js";
import { computed, effect, onCleanup, signal } from "./signals.js";
import { attempt } from "./ui.js";

/** @typedef {import("./types.js").Question} Question */

/** A question must have been on the screen for so long before a key can answer it. */
const SEEN_MS = 800;
/** The second press of a key counts only between these times after the first. */
const AGAIN_MS = [250, 4000];

/** @param {Question} question */
function keyOf(question) {
  return `${question.session}\n${question.call_id}\n${question.digest}`;
}

/** @param {string} session @param {string} callId the question to go to; empty for the first */
export function questionsView(session, callId) {
  const list = computed(() => [...(questions() ?? [])].sort((a, b) => a.asked_at - b.asked_at));
  const selected = signal("");
  const armed = signal({ key: "", question: "", at: 0 });
  let shownAt = performance.now();
  effect(() => {
    const open = list();
    const wanted = open.find((one) => one.session === session && one.call_id === callId);
    if (open.some((one) => keyOf(one) === selected.peek())) return;
    // The one that was chosen is gone: the next one has not been read yet.
    select(keyOf(wanted ?? open[0] ?? /** @type {Question} */ ({ session: "", call_id: "", digest: "" })));
  });

  /** @param {string} key */
  function select(key) {
    selected.set(key);
    armed.set({ key: "", question: "", at: 0 });
    shownAt = performance.now();
  }
  /** @param {number} step */
  function move(step) {
    const keys = list().map(keyOf);
    const next = keys[Math.min(keys.length - 1, Math.max(0, keys.indexOf(selected.peek()) + step))];
    if (next !== undefined && next !== selected.peek()) select(next);
    document.querySelector(".inbox > li.selected")?.scrollIntoView({ block: "start" });
  }
  /** @param {KeyboardEvent} event @param {"a" | "d"} key */
  function press(event, key) {
    const at = performance.now();
    const question = list().find((one) => keyOf(one) === selected.peek());
    // A key that is held down, or that was meant for what was on the screen before, answers nothing.
    if (event.repeat || !question || question.cannot || at - shownAt < SEEN_MS) return;
    const before = armed.peek();
    const waited = at - before.at;
    if (before.key !== key || before.question !== selected.peek() || waited > (AGAIN_MS[1] ?? 0)) {
      armed.set({ key, question: selected.peek(), at });
      return;
    }
    if (waited < (AGAIN_MS[0] ?? 0)) return;
    armed.set({ key: "", question: "", at: 0 });
    const answer = key === "a" ? { verdict: "allow" } : { verdict: "deny", reason: "The user said no." };
    void attempt(() => answerQuestion(question, answer), key === "d" ? "Denied." : question.needs.length ? "You agreed." : "Allowed once.");
  }
  const timer = setInterval(() => {
    if (armed.peek().key && performance.now() - armed.peek().at > (AGAIN_MS[1] ?? 0)) armed.set({ key: "", question: "", at: 0 });
  }, 500);
  onCleanup(() => clearInterval(timer));
  useKeys([
    { key: "j, ArrowDown", words: "next question", act: () => move(1) },
    { key: "k, ArrowUp", words: "previous question", act: () => move(-1) },
    { key: "a", words: "allow once: press it twice", act: (event) => press(event, "a") },
    { key: "d", words: "deny: press it twice", act: (event) => press(event, "d") },
  ]);

  const canAsk = signal(canAskPermission());
  const cards = keyedList(h("ul", { class: "inbox" }), list, keyOf, (item) => {
    const question = item.peek();
    const key = keyOf(question);
    return h("li", { class: () => [selected() === key && "selected"], onfocusin: () => { if (selected.peek() !== key) select(key); } },
      questionCard(question, { latest: item, armed: () => (armed().question === key ? armed().key : "") }));
  });
  return [
    h("div", { class: "inbox-head" }, h("h1", null, "Questions"),
      h("span", { class: "soft only-wide" }, "They wait for as long as it takes. Runs go on when they are answered."),
      () => canAsk() && h("button", { class: "small", onclick: () => void Notification.requestPermission().then(() => canAsk.set(canAskPermission())) }, "Notify me")),
    () => questions() === null && h("p", { class: "soft" }, "Loading…"),
    () => questions()?.length === 0 && h("div", { class: "empty" }, h("h2", null, "Nothing waits for you"), h("p", null, "Questions of all your sessions appear here as they come.")),
    cards,
  ];
}
