/**
 * The inside of a paragraph: emphasis, code, links. Text in, DOM nodes out, never HTML.
 *
 * The cost is linear in the text, whatever a model writes: a search that failed once is not repeated.
 */

import { h } from "./dom.js";

/**
 * A run of `*`, `_` or `~` that may begin or end an emphasis.
 * @typedef {{ node: Text, char: string, length: number, canOpen: boolean, canClose: boolean }} Delimiter
 */
/** @typedef {{ node: Text, at: number, isImage: boolean, isActive: boolean }} Bracket */

const ENTITIES = /** @type {Record<string, string>} */ ({
  amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", hellip: "…", mdash: "—", ndash: "–",
});
const PUNCTUATION = /[!-/:-@[-`{-~\u00a1-\u00bf\u2010-\u2027\u2030-\u205e]/;
const BARE_LINK = /https?:\/\/[^\s<>"'`\u0000-\u001f]+/y;
const LINK_TAIL = /\(\s*(?:<([^<>\n]*)>|((?:[^\s()\\]|\\.|\((?:[^\s()\\]|\\.)*\))*))(?:\s+(?:"[^"]*"|'[^']*'|\([^()]*\)))?\s*\)/y;
const DELIMITERS_MAX = 2000;

/**
 * Return an address only if a browser may follow it: http and https, with a host.
 * @param {string} text
 * @returns {string | null}
 */
export function safeAddress(text) {
  if (!/^https?:\/\//i.test(text)) return null;
  try {
    const url = new URL(text);
    return (url.protocol === "http:" || url.protocol === "https:") && !url.username ? url.href : null;
  } catch {
    return null;
  }
}

/**
 * A link that opens elsewhere and tells that page nothing about this one.
 * @param {string} address
 * @param {...import("./dom.js").Child} children
 */
export function outsideLink(address, ...children) {
  const safe = safeAddress(address);
  if (safe === null) return h("span", { class: "dead-link", title: address }, ...children);
  return h("a", { href: safe, rel: "noopener noreferrer nofollow", target: "_blank", title: safe }, ...children);
}

/**
 * Append the nodes of a text to a parent.
 * @param {Node} parent
 * @param {string} text
 */
export function appendInline(parent, text) {
  new InlineReader(parent, text).read();
}

class InlineReader {
  /** @param {Node} parent @param {string} text */
  constructor(parent, text) {
    this.parent = parent;
    this.text = text;
    this.at = 0;
    this.plain = "";
    /** @type {Delimiter[]} */
    this.delimiters = [];
    /** @type {Bracket[]} */
    this.brackets = [];
    /** @type {Set<number>} lengths of runs of backticks that have no partner */
    this.lonelyTicks = new Set();
  }

  read() {
    while (this.at < this.text.length) this.readNext();
    this.flush();
    this.joinDelimiters(0);
    this.parent.normalize();
  }

  readNext() {
    const char = this.text[this.at];
    switch (char) {
      case "\\": return this.readEscape();
      case "`": return this.readCode();
      case "*": case "_": case "~": return this.readDelimiter(char);
      case "!": return this.text[this.at + 1] === "[" ? this.openBracket(true) : this.take(1);
      case "[": return this.openBracket(false);
      case "]": return this.closeBracket();
      case "<": return this.readAngle();
      case "&": return this.readEntity();
      case "\n": return this.readLineEnd();
      case "h": return this.readBareLink();
      default: return this.takePlain();
    }
  }

  /** @param {number} count */
  take(count) {
    this.plain += this.text.slice(this.at, this.at + count);
    this.at += count;
  }

  takePlain() {
    let end = this.at + 1;
    while (end < this.text.length && !"\\`*_~![]<&\nh".includes(this.text[end] ?? "")) end += 1;
    this.take(end - this.at);
  }

  flush() {
    if (this.plain) this.parent.appendChild(document.createTextNode(this.plain));
    this.plain = "";
  }

  /** @param {Node} node */
  add(node) {
    this.flush();
    this.parent.appendChild(node);
  }

  readEscape() {
    const next = this.text[this.at + 1] ?? "";
    if (next === "\n") {
      this.add(h("br"));
      this.at += 2;
    } else if (next && PUNCTUATION.test(next)) {
      this.plain += next;
      this.at += 2;
    } else this.take(1);
  }

  readCode() {
    let length = 1;
    while (this.text[this.at + length] === "`") length += 1;
    const end = this.lonelyTicks.has(length) ? -1 : this.findTicks(this.at + length, length);
    if (end < 0) {
      this.lonelyTicks.add(length);
      this.take(length);
      return;
    }
    let code = this.text.slice(this.at + length, end).replaceAll("\n", " ");
    if (code.startsWith(" ") && code.endsWith(" ") && code.trim()) code = code.slice(1, -1);
    this.add(h("code", null, code));
    this.at = end + length;
  }

  /** @param {number} from @param {number} length */
  findTicks(from, length) {
    for (let at = this.text.indexOf("`", from); at >= 0; at = this.text.indexOf("`", at)) {
      let end = at;
      while (this.text[end] === "`") end += 1;
      if (end - at === length) return at;
      at = end;
    }
    return -1;
  }

  /** @param {string} char */
  readDelimiter(char) {
    let length = 1;
    while (this.text[this.at + length] === char) length += 1;
    const before = this.text[this.at - 1] ?? " ";
    const after = this.text[this.at + length] ?? " ";
    const isLeft = !/\s/.test(after) && (!PUNCTUATION.test(after) || /\s/.test(before) || PUNCTUATION.test(before));
    const isRight = !/\s/.test(before) && (!PUNCTUATION.test(before) || /\s/.test(after) || PUNCTUATION.test(after));
    // Inside of a word, `_` is a letter: snake_case_names are common in what models write.
    const canOpen = char === "_" ? isLeft && (!isRight || PUNCTUATION.test(before)) : isLeft;
    const canClose = char === "_" ? isRight && (!isLeft || PUNCTUATION.test(after)) : isRight;
    const useful = (canOpen || canClose) && (char !== "~" || length === 2) && this.delimiters.length < DELIMITERS_MAX;
    if (!useful) return this.take(length);
    const node = document.createTextNode(this.text.slice(this.at, this.at + length));
    this.add(node);
    this.delimiters.push({ node, char, length, canOpen, canClose });
    this.at += length;
  }

  /** @param {boolean} isImage */
  openBracket(isImage) {
    const node = document.createTextNode(isImage ? "![" : "[");
    this.add(node);
    this.at += isImage ? 2 : 1;
    this.brackets.push({ node, at: this.delimiters.length, isImage, isActive: true });
  }

  closeBracket() {
    const bracket = this.brackets.pop();
    LINK_TAIL.lastIndex = this.at + 1;
    const tail = bracket?.isActive ? LINK_TAIL.exec(this.text) : null;
    if (!bracket || !tail) return this.take(1);
    this.flush();
    this.joinDelimiters(bracket.at);
    const address = (tail[1] ?? tail[2] ?? "").replace(/\\([!-/:-@[-`{-~])/g, "$1");
    const link = outsideLink(address);
    // A picture from elsewhere is never loaded: it would tell its host who reads this.
    if (bracket.isImage) link.classList.add("picture-link");
    while (bracket.node.nextSibling) link.appendChild(bracket.node.nextSibling);
    if (!link.textContent) link.textContent = address;
    bracket.node.replaceWith(link);
    this.at = LINK_TAIL.lastIndex;
    if (!bracket.isImage) for (const outer of this.brackets) if (!outer.isImage) outer.isActive = false;
  }

  readAngle() {
    const found = /^<(https?:\/\/[^\s<>]*)>/.exec(this.text.slice(this.at, this.at + 2100));
    if (!found) return this.take(1);
    this.add(outsideLink(found[1] ?? "", found[1]));
    this.at += found[0].length;
  }

  readBareLink() {
    BARE_LINK.lastIndex = this.at;
    const isWordStart = !/[\w]/.test(this.text[this.at - 1] ?? " ");
    const found = isWordStart && !this.brackets.some((one) => one.isActive) ? BARE_LINK.exec(this.text) : null;
    if (!found) return this.takePlain();
    let address = found[0].replace(/[.,:;!?*_~]+$/, "");
    while (address.endsWith(")") && count(address, ")") > count(address, "(")) address = address.slice(0, -1);
    address = address.replace(/[\]]+$/, "");
    this.add(outsideLink(address, address));
    this.at += address.length;
  }

  readEntity() {
    const found = /^&(?:#(\d{1,6})|([a-z]{2,6}));/i.exec(this.text.slice(this.at, this.at + 10));
    const code = found?.[1] ? Number(found[1]) : 0;
    const char = code > 31 ? String.fromCodePoint(code) : ENTITIES[found?.[2] ?? ""];
    if (!found || !char) return this.take(1);
    this.plain += char;
    this.at += found[0].length;
  }

  readLineEnd() {
    if (this.plain.endsWith("  ")) {
      this.plain = this.plain.trimEnd();
      this.add(h("br"));
    } else this.plain = `${this.plain.trimEnd()} `;
    this.at += 1;
    while (this.text[this.at] === " ") this.at += 1;
  }

  /**
   * Turn the delimiters from an index on into emphasis, and forget them.
   * @param {number} from
   */
  joinDelimiters(from) {
    /** @type {Map<string, number>} below this index there is no opener of the kind */
    const bottoms = new Map();
    const list = this.delimiters;
    for (let at = from; at < list.length; at += 1) {
      const closer = /** @type {Delimiter} */ (list[at]);
      while (closer.canClose && closer.length > 0) {
        const key = `${closer.char}${closer.canOpen}${closer.length % 3}`;
        const found = this.findOpener(closer, at, Math.max(from, bottoms.get(key) ?? 0));
        if (found < 0) {
          bottoms.set(key, at);
          break;
        }
        this.wrap(/** @type {Delimiter} */ (list[found]), closer);
        for (let between = found + 1; between < at; between += 1) {
          const lost = /** @type {Delimiter} */ (list[between]);
          lost.canOpen = false;
          lost.canClose = false;
        }
      }
    }
    list.length = from;
  }

  /** @param {Delimiter} closer @param {number} at @param {number} bottom */
  findOpener(closer, at, bottom) {
    for (let index = at - 1; index >= bottom; index -= 1) {
      const opener = /** @type {Delimiter} */ (this.delimiters[index]);
      if (opener.char !== closer.char || !opener.canOpen || opener.length === 0) continue;
      const isOdd = (opener.canClose || closer.canOpen) && (opener.length + closer.length) % 3 === 0;
      if (!isOdd || opener.length % 3 === 0) return index;
    }
    return -1;
  }

  /** @param {Delimiter} opener @param {Delimiter} closer */
  wrap(opener, closer) {
    const size = opener.char === "~" || (opener.length >= 2 && closer.length >= 2) ? 2 : 1;
    const element = opener.char === "~" ? h("del") : size === 2 ? h("strong") : h("em");
    while (opener.node.nextSibling && opener.node.nextSibling !== closer.node) {
      element.appendChild(opener.node.nextSibling);
    }
    opener.node.after(element);
    for (const one of [opener, closer]) {
      one.length -= size;
      one.node.data = one.node.data.slice(0, one.length);
    }
  }
}

/** @param {string} text @param {string} char */
function count(text, char) {
  return text.split(char).length - 1;
}
