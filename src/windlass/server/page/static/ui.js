/** Small parts that several views share: messages, dialogs, states, the theme. */

import { ApiError } from "./api.js";
import { h, icon } from "./dom.js";
import { ownScope } from "./signals.js";

const toasts = h("div", { class: "toasts", role: "status", "aria-live": "polite" });

/** The place where short messages appear. */
export function toastArea() {
  return toasts;
}

/**
 * Tell the person something. An error stays until it is closed.
 * @param {string} text @param {{ hint?: string, isBad?: boolean }} [more]
 */
export function tell(text, more = {}) {
  const close = () => toast.remove();
  const toast = h("div", { class: ["toast", more.isBad && "bad"] },
    h("div", null, h("p", null, text), more.hint ? h("p", null, more.hint) : null),
    h("button", { "aria-label": "Close", onclick: close }, icon("x")));
  toasts.append(toast);
  if (!more.isBad) setTimeout(close, more.hint ? 6000 : 2500);
}

/**
 * Do something and tell the person if it fails. Returns whether it worked.
 * @param {() => Promise<unknown>} action @param {string} [done] what to say afterwards
 */
export async function attempt(action, done) {
  try {
    await action();
  } catch (error) {
    if (error instanceof ApiError) tell(error.message, { hint: error.hint, isBad: true });
    else tell(String(error), { isBad: true });
    return false;
  }
  if (done) tell(done);
  return true;
}

/**
 * Show a dialog with a form. `build` gets a function that closes it.
 * @param {string} title @param {(close: () => void) => import("./dom.js").Child} build
 */
export function openDialog(title, build) {
  const dialog = h("dialog", { "aria-label": title });
  const close = () => dialog.close();
  const [content, end] = ownScope(() => build(close));
  dialog.append(h("h2", null, title), h("div", null, content));
  dialog.addEventListener("close", () => {
    end();
    dialog.remove();
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) close();
  });
  document.body.append(dialog);
  dialog.showModal();
}

/**
 * A state of a session: its words and its colour.
 * @param {{ state: string, pause?: string, released?: boolean }} summary
 * @returns {{ words: string, dot: string, chip: string }}
 */
export function stateOf(summary) {
  switch (summary.state) {
    case "open": return summary.released ? { words: "handed over", dot: "rest", chip: "" } : { words: "running", dot: "work", chip: "accent" };
    case "queued": return { words: "queued", dot: "rest", chip: "" };
    case "awaiting_budget": return { words: "waits for a budget", dot: "wait", chip: "" };
    case "waiting": return { words: "waits for you", dot: "wait", chip: "warn" };
    case "paused": return { words: summary.pause === "budget" ? "out of budget" : "paused", dot: "wait", chip: "warn" };
    case "completed": return { words: "completed", dot: "done", chip: "good" };
    case "cancelled": return { words: "cancelled", dot: "rest", chip: "" };
    default: return { words: summary.state.replaceAll("_", " "), dot: "fail", chip: "bad" };
  }
}

export const FAILED_STATES = ["failed", "max_steps", "budget_exceeded", "timed_out", "refused", "truncated", "empty_reply", "stuck", "policy_denied"];

/** Follow the system, then light, then dark, and so on. */
export function switchTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  remember("theme", root.dataset.theme);
}

/** @param {string} name @param {string} value */
export function remember(name, value) {
  try {
    localStorage.setItem(`windlass.${name}`, value);
  } catch {
    // A browser may refuse storage. Nothing depends on it.
  }
}

/** @param {string} name */
export function recall(name) {
  try {
    return localStorage.getItem(`windlass.${name}`) ?? "";
  } catch {
    return "";
  }
}

/** @param {string} text */
export function copyButton(text) {
  return h("button", {
    class: "plain small copy", title: "Copy", "aria-label": "Copy",
    onclick: (/** @type {Event} */ event) => {
      event.stopPropagation();
      void attempt(() => navigator.clipboard.writeText(text), "Copied");
    },
  }, icon("copy"));
}

/**
 * Addresses inside of the page.
 * @param {string} view @param {...(string | number)} parts
 */
export function address(view, ...parts) {
  return `#/${[view, ...parts.map((part) => encodeURIComponent(part))].join("/")}`;
}
