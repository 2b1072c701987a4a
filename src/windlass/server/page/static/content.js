/** Content of messages and results: text, pictures, files, terminal output, code. */

import { hasEscapes, terminalText } from "./ansi.js";
import { post } from "./api.js";
import { h, icon } from "./dom.js";
import { parseJson } from "./format.js";
import { outsideLink } from "./inline.js";
import { renderMarkdown } from "./markdown.js";
import { copyButton } from "./ui.js";

/** @typedef {import("./types.js").ContentPart} ContentPart */

const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const HIGHLIGHT_CHARS_MAX = 60_000;
const CLAMP_LINES = 14;

/** @type {Map<string, Promise<[string, string][] | null>>} */
const highlighted = new Map();

/**
 * Colour a block of code, if the service knows its language.
 * @param {HTMLElement} code @param {string} language
 */
export function highlight(code, language) {
  code.closest(".code-block")?.append(copyButton(code.textContent ?? ""));
  const text = code.textContent ?? "";
  if (!language || !text.trim() || text.length > HIGHLIGHT_CHARS_MAX) return;
  const key = `${language}\n${text}`;
  let spans = highlighted.get(key);
  if (!spans) {
    spans = post("/page/highlight", { language: language.slice(0, 40), code: text }).then((reply) => reply.spans, () => null);
    if (highlighted.size > 300) highlighted.clear();
    highlighted.set(key, spans);
  }
  void spans.then((found) => {
    if (!found || code.textContent !== text) return;
    code.replaceChildren(...found.map(([kind, piece]) => (/^[a-z]{1,8}$/.test(kind) ? h("span", { class: `c-${kind}` }, piece) : document.createTextNode(piece))));
  });
}

/** @param {string} text */
export function markdown(text) {
  const block = h("div", { class: "prose" });
  renderMarkdown(block, text, highlight);
  return block;
}

/** @param {ContentPart[]} parts */
export function promptContent(parts) {
  return h("div", { class: "prompt-text" }, parts.map((part) => (part.type === "text" ? h("div", { class: "plain-text" }, part.text) : attachment(part))));
}

/** @param {Exclude<ContentPart, import("./types.js").TextPart>} part */
export function attachment(part) {
  const label = part.type === "file" ? part.name : part.media_type;
  if (part.type === "image" && part.data && PICTURES.has(part.media_type)) {
    const bytes = decodeBase64(part.data);
    if (bytes) {
      const url = URL.createObjectURL(new Blob([bytes], { type: part.media_type }));
      return h("img", { class: "picture", src: url, alt: "a picture in the conversation", loading: "lazy", onload: () => URL.revokeObjectURL(url) });
    }
  }
  // What is elsewhere is not loaded: its host would learn who reads this.
  return h("span", { class: "chip file" }, icon("file"), label, part.url ? [" ", outsideLink(part.url, part.url.slice(0, 80))] : null);
}

/** @param {string} data */
function decodeBase64(data) {
  try {
    return Uint8Array.from(atob(data.replaceAll("-", "+").replaceAll("_", "/")), (char) => char.charCodeAt(0));
  } catch {
    return null;
  }
}

/**
 * The content of a result.
 * @param {ContentPart[]} parts @param {string} tool
 */
export function resultContent(parts, tool) {
  return parts.map((part) => (part.type === "text" ? resultText(part.text, tool) : attachment(part)));
}

/** @param {string} text @param {string} tool */
function resultText(text, tool) {
  if (!text) return h("span", { class: "faint" }, "(empty)");
  const value = /^\s*[[{]/.test(text) && text.length < 200_000 ? parseJson(text) : undefined;
  const shown = value === undefined ? text : JSON.stringify(value, null, 2);
  const isTerminal = tool === "bash" || hasEscapes(text);
  const block = h("pre", { class: isTerminal ? "terminal" : "result-text", tabindex: "0", role: "group", "aria-label": "result" }, isTerminal ? terminalText(text) : shown);
  return clamp(block, shown);
}

/**
 * Show the beginning of a long block, and all of it when asked.
 * @param {HTMLElement} block @param {string} text
 */
export function clamp(block, text) {
  const lines = text.split("\n").length;
  if (lines <= CLAMP_LINES + 4 && text.length < 3000) return block;
  const box = h("div", { class: "clamped" }, block);
  const more = h("button", {
    class: "small plain more-lines", "aria-expanded": "false",
    onclick: () => {
      const isOpen = box.classList.toggle("open");
      more.textContent = isOpen ? "Show less" : label;
      more.setAttribute("aria-expanded", String(isOpen));
    },
  });
  const label = lines > CLAMP_LINES ? `Show all ${lines} lines` : `Show all ${text.length.toLocaleString()} characters`;
  more.textContent = label;
  box.append(more);
  return box;
}
