/** The keyboard: one table of keys for the page, and one for the view that is shown. */

import { onCleanup, signal } from "./signals.js";

/** @typedef {{ key: string, words: string, act: (event: KeyboardEvent) => void }} KeyBinding */

/** @type {import("./signals.js").Signal<KeyBinding[][]>} */
export const bindings = signal(/** @type {KeyBinding[][]} */ ([]));

/** A first key of two, such as `g`, and when it was pressed. */
let prefix = { key: "", at: 0 };
const PREFIX_MS = 1500;

/**
 * Use these keys for as long as the scope that is active now.
 * @param {KeyBinding[]} table
 */
export function useKeys(table) {
  bindings.set([...bindings.peek(), table]);
  onCleanup(() => bindings.set(bindings.peek().filter((one) => one !== table)));
}

export function startKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.key === "Escape" && isTyping(event.target)) {
      /** @type {HTMLElement} */ (event.target).blur();
      return;
    }
    if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
    const name = prefix.key && Date.now() - prefix.at < PREFIX_MS ? `${prefix.key} ${event.key}` : event.key;
    prefix = { key: "", at: 0 };
    const tables = bindings.peek();
    for (const table of tables.toReversed()) {
      for (const binding of table) {
        if (binding.key.split(", ").includes(name)) {
          // Enter on a link or a button is for that link or button.
          if (name === "Enter" && isControl(event.target)) return;
          event.preventDefault();
          binding.act(event);
          return;
        }
      }
    }
    if (tables.flat().some((binding) => binding.key.split(", ").some((key) => key.startsWith(`${event.key} `)))) {
      prefix = { key: event.key, at: Date.now() };
    }
  });
}

/** @param {EventTarget | null} target */
function isTyping(target) {
  return target instanceof HTMLElement && (target.matches("input:not([type=checkbox]):not([type=radio]), textarea, select") || target.isContentEditable);
}

/** @param {EventTarget | null} target */
function isControl(target) {
  return target instanceof HTMLElement && target.matches("a, button, summary, [role=button]");
}
