/**
 * Markdown as models write it, read while it streams. It makes DOM nodes and never HTML strings.
 *
 * The law: what is shown of a text does not depend on how the text was cut into pieces. A block that
 * is complete is never touched again; only the last block is made anew when more text comes.
 */

import { h } from "./dom.js";
import { appendInline } from "./inline.js";

/** @typedef {(code: HTMLElement, language: string) => void} Highlight */
/**
 * A block: the lines that it takes, and what it is.
 * @typedef {{ kind: "fence", lines: string[], language: string, isOpen: boolean }
 *   | { kind: "heading", level: number, text: string }
 *   | { kind: "rule" }
 *   | { kind: "quote", lines: string[] }
 *   | { kind: "list", items: string[][], start: number | null, isLoose: boolean }
 *   | { kind: "table", head: string[], align: string[], rows: string[][] }
 *   | { kind: "paragraph", lines: string[] }} Block
 */

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*$/;
const RULE = /^ {0,3}(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])( +|$)/;
const TABLE_RULE = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;
const DEPTH_MAX = 12;
const CELLS_MAX = 64;

/**
 * Append a whole text.
 * @param {HTMLElement} parent
 * @param {string} text
 * @param {Highlight} [highlight]
 */
export function renderMarkdown(parent, text, highlight) {
  const reader = new MarkdownStream(parent, highlight);
  reader.write(text);
  reader.end();
}

export class MarkdownStream {
  /**
   * @param {HTMLElement} parent where the blocks are appended
   * @param {Highlight} [highlight] called once for each complete block of code
   */
  constructor(parent, highlight) {
    this.parent = parent;
    this.highlight = highlight;
    /** The text of the blocks that may still change. */
    this.open = "";
    /** @type {HTMLElement[]} what is shown for it */
    this.openNodes = [];
    /** @type {{ code: Text, close: RegExp } | null} the block of code at its end, which grows */
    this.fence = null;
  }

  /** @param {string} text */
  write(text) {
    const more = text.replaceAll("\r\n", "\n").replaceAll("\u0000", "\ufffd");
    const lineStart = this.open.lastIndexOf("\n") + 1;
    this.open += more;
    if (this.fence) {
      const { code, close } = this.fence;
      if (!this.open.slice(lineStart).split("\n").some((line) => close.test(line))) {
        code.appendData(more);
        return;
      }
      this.fence = null;
    }
    this.readBlocks(false);
  }

  end() {
    this.fence = null;
    this.readBlocks(true);
  }

  /** @param {boolean} isEnd */
  readBlocks(isEnd) {
    const lines = this.open.split("\n");
    for (const node of this.openNodes) node.remove();
    this.openNodes = [];
    let done = 0;
    for (let at = 0; at < lines.length; ) {
      const found = readBlock(lines, at);
      // What the last two lines are can change with the next piece, and with it the block before.
      const isSure = isEnd || (this.openNodes.length === 0 && isFollowed(lines, found));
      if (found.block) {
        const node = found.block.kind === "heading" ? renderHeading(this.parent, found.block) : renderBlock(found.block, 0, this.highlight, isSure);
        this.parent.appendChild(node);
        if (!isSure) this.openNodes.push(node);
        if (!isEnd && found.next >= lines.length) this.followFence(found.block, lines[at] ?? "", node);
      }
      at = found.next;
      if (isSure) done = at;
    }
    this.open = isEnd ? "" : lines.slice(done).join("\n");
  }

  /**
   * Let a block of code at the end of the text grow without being made anew.
   * @param {Block} block @param {string} opening @param {HTMLElement} node
   */
  followFence(block, opening, node) {
    const marker = FENCE.exec(opening)?.[1];
    const code = node.querySelector("code")?.firstChild;
    if (block.kind !== "fence" || !block.isOpen || !marker || !(code instanceof Text)) return;
    const isPlain = !opening.startsWith(" ") && this.open.includes("\n", this.open.lastIndexOf(opening));
    if (isPlain) this.fence = { code, close: closingFence(marker) };
  }
}

/** @param {string[]} lines @param {{ block: Block | null, next: number }} found */
function isFollowed(lines, found) {
  if (found.next >= lines.length - 2) return false;
  if (found.block?.kind !== "list") return found.block !== null || found.next < lines.length - 2;
  // After blank lines a list may go on.
  return nextText(lines, found.next) < lines.length - 1;
}

/**
 * Return the index of the first line that is not blank.
 * @param {string[]} lines @param {number} from
 */
function nextText(lines, from) {
  let at = from;
  while (at < lines.length && !(lines[at] ?? "").trim()) at += 1;
  return at;
}

/** @param {string} marker */
function closingFence(marker) {
  return new RegExp(`^ {0,3}\\${marker[0]}{${marker.length},}\\s*$`);
}

/**
 * Read the block that begins at a line. No block: the line is blank.
 * @param {string[]} lines @param {number} at
 * @returns {{ block: Block | null, next: number }}
 */
function readBlock(lines, at) {
  const line = lines[at] ?? "";
  if (!line.trim()) return { block: null, next: at + 1 };
  const fence = FENCE.exec(line);
  if (fence) return readFence(lines, at, fence);
  const heading = HEADING.exec(line);
  if (heading) {
    const level = (heading[1] ?? "#").length;
    return { block: { kind: "heading", level, text: heading[2] ?? "" }, next: at + 1 };
  }
  if (RULE.test(line)) return { block: { kind: "rule" }, next: at + 1 };
  if (QUOTE.test(line)) return readQuote(lines, at);
  if (ITEM.test(line)) return readList(lines, at);
  if (line.includes("|") && TABLE_RULE.test(lines[at + 1] ?? "") && (lines[at + 1] ?? "").includes("-")) {
    const table = readTable(lines, at);
    if (table) return table;
  }
  return readParagraph(lines, at);
}

/** @param {string[]} lines @param {number} at @param {RegExpExecArray} opening */
function readFence(lines, at, opening) {
  const close = closingFence(opening[1] ?? "```");
  const indent = (/^ */.exec(lines[at] ?? "") ?? [""])[0].length;
  /** @type {string[]} */
  const body = [];
  let next = at + 1;
  while (next < lines.length && !close.test(lines[next] ?? "")) {
    body.push((lines[next] ?? "").replace(new RegExp(`^ {0,${indent}}`), ""));
    next += 1;
  }
  const isOpen = next >= lines.length;
  const language = (opening[2] ?? "").trim().split(/\s/)[0] ?? "";
  /** @type {Block} */
  const block = { kind: "fence", lines: body, language, isOpen };
  return { block, next: isOpen ? next : next + 1 };
}

/** @param {string[]} lines @param {number} at */
function readQuote(lines, at) {
  /** @type {string[]} */
  const body = [];
  let next = at;
  while (next < lines.length && QUOTE.test(lines[next] ?? "")) {
    body.push((lines[next] ?? "").replace(QUOTE, ""));
    next += 1;
  }
  /** @type {Block} */
  const block = { kind: "quote", lines: body };
  return { block, next };
}

/** @param {string[]} lines @param {number} at */
function readList(lines, at) {
  const first = /** @type {RegExpExecArray} */ (ITEM.exec(lines[at] ?? ""));
  const marker = first[2] ?? "-";
  const isOrdered = /\d/.test(marker);
  /** @type {string[][]} */
  const items = [];
  let isLoose = false;
  let next = at;
  let width = 0;
  while (next < lines.length) {
    const line = lines[next] ?? "";
    const found = ITEM.exec(line);
    const indent = (/^ */.exec(line) ?? [""])[0].length;
    if (found && (items.length === 0 || indent < width) && !RULE.test(line)) {
      if (/\d/.test(found[2] ?? "") !== isOrdered) break;
      width = found[0].length - Math.max(0, (found[3] ?? "").length - 1);
      items.push([line.slice(found[0].length)]);
    } else if (!line.trim()) {
      const after = lines[nextText(lines, next)];
      const isInside = after !== undefined && ((/^ */.exec(after) ?? [""])[0].length >= width || isSameList(after, isOrdered));
      if (!isInside) break;
      if (ITEM.test(after) || (/^ */.exec(after) ?? [""])[0].length >= width) isLoose = true;
      items.at(-1)?.push("");
    } else if (indent >= width) items.at(-1)?.push(line.slice(width));
    else if (isContinuation(line, lines[next - 1] ?? "")) items.at(-1)?.push(line.trimStart());
    else break;
    next += 1;
  }
  const start = isOrdered ? Number.parseInt(marker, 10) : null;
  /** @type {Block} */
  const block = { kind: "list", items, start, isLoose };
  return { block, next };
}

/** @param {string} line @param {boolean} isOrdered */
function isSameList(line, isOrdered) {
  const found = ITEM.exec(line);
  return found !== null && /\d/.test(found[2] ?? "") === isOrdered && !RULE.test(line);
}

/** @param {string} line @param {string} before */
function isContinuation(line, before) {
  return Boolean(before.trim()) && !FENCE.test(line) && !HEADING.test(line) && !RULE.test(line) && !QUOTE.test(line);
}

/** @param {string[]} lines @param {number} at @returns {{ block: Block, next: number } | null} */
function readTable(lines, at) {
  const head = splitCells(lines[at] ?? "");
  const rules = splitCells(lines[at + 1] ?? "");
  if (head.length !== rules.length) return null;
  const align = rules.map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : "left"));
  /** @type {string[][]} */
  const rows = [];
  let next = at + 2;
  while (next < lines.length && (lines[next] ?? "").trim() && !FENCE.test(lines[next] ?? "")) {
    rows.push(splitCells(lines[next] ?? ""));
    next += 1;
  }
  return { block: { kind: "table", head, align, rows }, next };
}

/** @param {string} line */
function splitCells(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  return inner.split(/(?<!\\)\|/, CELLS_MAX).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

/** @param {string[]} lines @param {number} at */
function readParagraph(lines, at) {
  let next = at + 1;
  while (next < lines.length && isContinuation(lines[next] ?? "", lines[next - 1] ?? "") && (lines[next] ?? "").trim()) {
    if (/^ {0,3}([-*+]|1[.)]) +\S/.test(lines[next] ?? "")) break;
    if ((lines[next] ?? "").includes("|") && TABLE_RULE.test(lines[next + 1] ?? "")) break;
    next += 1;
  }
  /** @type {Block} */
  const block = { kind: "paragraph", lines: lines.slice(at, next).map((line) => line.trimStart()) };
  return { block, next };
}

/**
 * @param {Block} block @param {number} depth
 * @param {Highlight | undefined} highlight @param {boolean} isComplete
 * @returns {HTMLElement}
 */
function renderBlock(block, depth, highlight, isComplete) {
  switch (block.kind) {
    case "fence": return renderCode(block, highlight, isComplete);
    // Inside of a list or a quotation it is only bold: it must not break the order of the headings.
    case "heading": return withInline(h("p", { class: "inner-heading" }), block.text);
    case "rule": return h("hr");
    case "quote": return renderInner(h("blockquote"), block.lines, depth, highlight, isComplete);
    case "list": return renderList(block, depth, highlight, isComplete);
    case "table": return renderTable(block);
    case "paragraph": return withInline(h("p"), block.lines.join("\n").trimEnd());
  }
}

/**
 * Return a heading one step below the one that it belongs to, whatever number of marks it has. The
 * page's own heading is above the first.
 * @param {HTMLElement} parent @param {Extract<Block, { kind: "heading" }>} block
 */
function renderHeading(parent, block) {
  let above = parent.lastElementChild;
  while (above && !(above instanceof HTMLElement && above.dataset.levels)) above = above.previousElementSibling;
  // The levels of the headings that this one is inside of: all that has to be known of those before it.
  const chain = above instanceof HTMLElement ? (above.dataset.levels ?? "").split(" ").map(Number) : [];
  while ((chain.at(-1) ?? 0) >= block.level) chain.pop();
  chain.push(block.level);
  const tag = /** @type {"h2" | "h3" | "h4" | "h5" | "h6"} */ (`h${Math.min(6, chain.length + 1)}`);
  return withInline(h(tag, { dataset: { level: String(block.level), levels: chain.join(" ") } }), block.text);
}

/** @template {HTMLElement} E @param {E} element @param {string} text @returns {E} */
function withInline(element, text) {
  appendInline(element, text);
  return element;
}

/**
 * @template {HTMLElement} E
 * @param {E} parent @param {string[]} lines @param {number} depth
 * @param {Highlight | undefined} highlight @param {boolean} isComplete
 * @returns {E}
 */
function renderInner(parent, lines, depth, highlight, isComplete) {
  if (depth >= DEPTH_MAX) {
    parent.textContent = lines.join("\n");
    return parent;
  }
  for (let at = 0; at < lines.length; ) {
    const found = readBlock(lines, at);
    if (found.block) parent.appendChild(renderBlock(found.block, depth + 1, highlight, isComplete));
    at = found.next;
  }
  return parent;
}

/**
 * @param {Extract<Block, { kind: "fence" }>} block
 * @param {Highlight | undefined} highlight @param {boolean} isComplete
 */
function renderCode(block, highlight, isComplete) {
  const text = block.lines.join("\n") + (block.isOpen ? "" : "\n");
  const code = h("code", null);
  code.appendChild(document.createTextNode(text));
  const pre = h("pre", { class: "code", tabindex: "0", role: "group", "aria-label": `code ${block.language}`.trim() }, code);
  const figure = h("div", { class: "code-block" }, pre);
  if (block.language) figure.dataset.language = block.language.slice(0, 30);
  if (isComplete && highlight) highlight(code, block.language);
  return figure;
}

/**
 * @param {Extract<Block, { kind: "list" }>} block @param {number} depth
 * @param {Highlight | undefined} highlight @param {boolean} isComplete
 */
function renderList(block, depth, highlight, isComplete) {
  const list = block.start === null ? h("ul") : h("ol", block.start === 1 ? null : { start: block.start });
  for (const lines of block.items) {
    const item = h("li");
    const box = /^\[([ xX])\]\s+/.exec(lines[0] ?? "");
    const rest = box ? [(lines[0] ?? "").slice(box[0].length), ...lines.slice(1)] : lines;
    if (box) {
      item.className = "task";
      item.append(h("span", { role: "img", "aria-label": box[1] === " " ? "open" : "done" }, box[1] === " " ? "☐" : "☑"), " ");
    }
    renderInner(item, rest, depth, highlight, isComplete);
    // In a tight list the text stands in the item itself.
    if (!block.isLoose) for (const one of [...item.children]) if (one.tagName === "P") one.replaceWith(...one.childNodes);
    list.appendChild(item);
  }
  return list;
}

/** @param {Extract<Block, { kind: "table" }>} block */
function renderTable(block) {
  /** @param {"th" | "td"} tag @param {string[]} cells */
  const row = (tag, cells) =>
    h("tr", null, block.head.map((_, at) => withInline(h(tag, { class: `to-${block.align[at] ?? "left"}` }), cells[at] ?? "")));
  return h("div", { class: "table-box", tabindex: "0", role: "group", "aria-label": "table" },
    h("table", null, h("thead", null, row("th", block.head)), h("tbody", null, block.rows.map((cells) => row("td", cells)))));
}
