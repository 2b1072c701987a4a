/** The difference of two texts, by lines. Pure. */

import { h } from "./dom.js";
import { reveal } from "./format.js";

/** @typedef {{ sign: " " | "-" | "+", text: string }} DiffLine */

const CELLS_MAX = 4_000_000;
const CONTEXT = 3;

/**
 * Return the lines of both texts in order, marked as kept, removed or added.
 * @param {string} before @param {string} after
 * @returns {DiffLine[]}
 */
export function diffLines(before, after) {
  const a = splitLines(before);
  const b = splitLines(after);
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const middle = diffMiddle(a.slice(start, a.length - end), b.slice(start, b.length - end));
  return [...mark(" ", a.slice(0, start)), ...middle, ...mark(" ", a.slice(a.length - end))];
}

/** @param {string} text */
function splitLines(text) {
  if (!text) return [];
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

/** @param {" " | "-" | "+"} sign @param {string[]} lines @returns {DiffLine[]} */
function mark(sign, lines) {
  return lines.map((text) => ({ sign, text }));
}

/** @param {string[]} a @param {string[]} b @returns {DiffLine[]} */
function diffMiddle(a, b) {
  // The longest common subsequence needs a table; for huge texts all is shown as replaced.
  if (a.length * b.length > CELLS_MAX || !a.length || !b.length) return [...mark("-", a), ...mark("+", b)];
  const width = b.length + 1;
  const table = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      table[i * width + j] = a[i] === b[j]
        ? (table[(i + 1) * width + j + 1] ?? 0) + 1
        : Math.max(table[(i + 1) * width + j] ?? 0, table[i * width + j + 1] ?? 0);
    }
  }
  /** @type {DiffLine[]} */
  const lines = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ sign: " ", text: a[i] ?? "" });
      i += 1;
      j += 1;
    } else if (i < a.length && (j === b.length || (table[(i + 1) * width + j] ?? 0) >= (table[i * width + j + 1] ?? 0))) {
      lines.push({ sign: "-", text: a[i++] ?? "" });
    } else lines.push({ sign: "+", text: b[j++] ?? "" });
  }
  return lines;
}

/**
 * Show a unified diff of one file. Its name is not among the lines.
 * @param {string} text
 */
export function renderUnified(text) {
  const lines = text.split("\n");
  const isHead = (lines[0] ?? "").startsWith("--- ") && (lines[1] ?? "").startsWith("+++ ");
  return h("pre", { class: "diff", tabindex: "0", role: "group", "aria-label": "difference" }, (isHead ? lines.slice(2) : lines).map((line) => {
    const kind = { " ": "kept", "-": "removed", "+": "added" }[line[0] ?? ""];
    return kind ? h("span", { class: `diff-${kind}` }, `${line[0]} `, reveal(line.slice(1)), "\n") : h("span", { class: "diff-gap" }, reveal(line), "\n");
  }));
}

/**
 * Show a difference. Long stretches without a change are folded to a count.
 * @param {DiffLine[]} lines
 * @param {boolean} [isWhole] show every line: for what a person decides about
 */
export function renderDiff(lines, isWhole = false) {
  const near = lines.map((_, at) => isWhole || lines.slice(Math.max(0, at - CONTEXT), at + CONTEXT + 1).some((one) => one.sign !== " "));
  const block = h("pre", { class: "diff", tabindex: "0", role: "group", "aria-label": "difference" });
  let hidden = 0;
  const flush = () => {
    if (hidden) block.append(h("span", { class: "diff-gap" }, `⋯ ${hidden} unchanged ${hidden === 1 ? "line" : "lines"}\n`));
    hidden = 0;
  };
  lines.forEach((line, at) => {
    if (!near[at]) {
      hidden += 1;
      return;
    }
    flush();
    const kind = { " ": "kept", "-": "removed", "+": "added" }[line.sign];
    block.append(h("span", { class: `diff-${kind}` }, `${line.sign} `, reveal(line.text), "\n"));
  });
  flush();
  return block;
}
