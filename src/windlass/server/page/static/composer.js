/** The box that a person writes into: it starts a run, continues a session, or steers a run. */

import { newKey, post, runPath } from "./api.js";
import { h, icon } from "./dom.js";
import { connection, hello } from "./feed.js";
import { signal } from "./signals.js";
import { address, attempt, recall, remember, tell } from "./ui.js";

/** @typedef {import("./types.js").ContentPart} ContentPart */
/** @typedef {{ name: string, size: number, part: ContentPart }} Attachment */
/**
 * What the box is for. `isSteering` says whether a run is open that can be spoken to.
 * @typedef {{ mode: "start" } | { mode: "session", session: string, isSteering: () => boolean }} ComposerUse
 */

const ATTACHED_BYTES_MAX = 12_000_000;
const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/** @param {ComposerUse} use */
export function composer(use) {
  const files = signal(/** @type {Attachment[]} */ ([]));
  const isSending = signal(false);
  const isSteering = () => use.mode === "session" && use.isSteering();
  const label = () => (use.mode === "start" ? "What is to be done?" : isSteering() ? "Say something to the run" : "Continue this session");

  const text = h("textarea", {
    rows: use.mode === "start" ? 2 : 1, placeholder: label, "aria-label": label,
    oninput: () => fitHeight(text),
    onkeydown: (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !matchMedia("(pointer: coarse)").matches) {
        event.preventDefault();
        form.requestSubmit();
      }
    },
    onpaste: (/** @type {ClipboardEvent} */ event) => {
      const pasted = [...(event.clipboardData?.files ?? [])];
      if (pasted.length) {
        event.preventDefault();
        void addFiles(pasted);
      }
    },
  });
  const picker = h("input", {
    type: "file", multiple: true, hidden: true, tabindex: "-1", "aria-hidden": "true",
    onchange: () => { void addFiles([...(picker.files ?? [])]); picker.value = ""; },
  });
  const agent = use.mode === "start" ? agentChoice() : null;

  /** @param {File[]} chosen */
  async function addFiles(chosen) {
    const added = await Promise.all(chosen.map(readFile));
    const all = [...files.peek(), ...added];
    if (all.reduce((sum, one) => sum + one.size, 0) > ATTACHED_BYTES_MAX) {
      tell("These files are too large together.", { hint: `At most ${ATTACHED_BYTES_MAX / 1e6} MB can be attached.`, isBad: true });
      return;
    }
    files.set(all);
  }

  async function submit() {
    const words = text.value.trim();
    if ((!words && !files.peek().length) || isSending.peek()) return;
    /** @type {string | ContentPart[]} */
    const prompt = files.peek().length ? [...(words ? [{ type: /** @type {const} */ ("text"), text: words }] : []), ...files.peek().map((one) => one.part)] : words;
    isSending.set(true);
    const isDone = await attempt(() => sendPrompt(use, prompt, agent?.value ?? "", isSteering()));
    isSending.set(false);
    if (!isDone) return;
    text.value = "";
    files.set([]);
    fitHeight(text);
  }

  const form = h("form", {
    class: ["composer", "panel", use.mode],
    onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); void submit(); },
    ondragover: (/** @type {DragEvent} */ event) => event.preventDefault(),
    ondrop: (/** @type {DragEvent} */ event) => { event.preventDefault(); void addFiles([...(event.dataTransfer?.files ?? [])]); },
  },
  text,
  () => files().length > 0 && h("div", { class: "attachments" }, files().map((one) =>
    h("span", { class: "chip" }, icon("file"), one.name, h("button", { type: "button", class: "plain small", "aria-label": `Remove ${one.name}`, onclick: () => files.set(files.peek().filter((other) => other !== one)) }, icon("x"))))),
  h("div", { class: "composer-row" }, picker,
    h("button", { type: "button", class: "plain", "aria-label": "Attach files", title: "Attach files", onclick: () => picker.click() }, icon("clip")),
    agent, h("span", { class: "grow" }),
    h("span", { class: "faint only-wide hint" }, use.mode === "start" ? ["starts with ", h("kbd", null, "Enter")] : null),
    h("button", { class: "primary", disabled: () => isSending() || connection().state === "lost" }, icon("send"), () => (use.mode === "start" ? "Start" : isSteering() ? "Tell it" : "Send"))));
  return form;
}

function agentChoice() {
  const select = h("select", { "aria-label": "Agent", onchange: () => remember("agent", select.value) }, () =>
    (hello()?.agents ?? []).map((one) => h("option", { value: one.name, title: one.description, selected: one.name === recall("agent") }, one.name || "agent")));
  return select;
}

/** @param {ComposerUse} use @param {string | ContentPart[]} prompt @param {string} agent @param {boolean} isSteering */
async function sendPrompt(use, prompt, agent, isSteering) {
  if (use.mode === "session" && isSteering) {
    await post(runPath(use.session, "/steer"), { prompt });
    return;
  }
  if (use.mode === "session") {
    await post("/runs", { session: use.session, prompt });
    return;
  }
  const started = await post("/runs", { agent, prompt });
  location.hash = address("run", started.session);
}

/** @param {File} file @returns {Promise<Attachment>} */
async function readFile(file) {
  const url = await new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
  const data = String(url).split(",", 2)[1] ?? "";
  const name = file.name || `pasted-${newKey().slice(0, 6)}`;
  /** @type {ContentPart} */
  const part = PICTURES.includes(file.type)
    ? { type: "image", media_type: file.type, data }
    : { type: "file", media_type: file.type || "application/octet-stream", name, data };
  return { name, size: file.size, part };
}

/** @param {HTMLTextAreaElement} text */
function fitHeight(text) {
  text.style.height = "auto";
  text.style.height = `${Math.min(text.scrollHeight + 2, innerHeight * 0.4)}px`;
}
