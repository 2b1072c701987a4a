/**
 * What a terminal would show of a text: colours kept, lines overwritten as a terminal does, and
 * every other escape left out.
 */

import { h } from "./dom.js";

// CSI, OSC (up to its end mark), other string sequences, and two-character escapes.
const ESCAPE = /\u001b(?:\[([0-?]*)[ -/]*([@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\|$)|[PX^_][^\u001b]*(?:\u001b\\|$)|[ -/]*[0-~])?|\u009b([0-?]*)[ -/]*([@-~])/g;
const CONTROL = /[\u0000-\u0008\u000b\u000c\u000e-\u001a\u001c-\u001f\u007f-\u009f]/g;
const COLUMNS_MAX = 5000;

/** @typedef {{ text: string, style: string }} Cell */

/**
 * Return the nodes for a text of a terminal.
 * @param {string} text
 * @returns {DocumentFragment}
 */
export function terminalText(text) {
  const fragment = document.createDocumentFragment();
  let style = "";
  const lines = text.split("\n");
  lines.forEach((line, at) => {
    const cells = readLine(line.replace(/\r$/, ""), style, (next) => { style = next; });
    for (const run of joinCells(cells)) {
      fragment.append(run.style ? h("span", { class: run.style }, run.text) : run.text);
    }
    if (at < lines.length - 1) fragment.append("\n");
  });
  return fragment;
}

/** @param {string} text */
export function hasEscapes(text) {
  return text.includes("\u001b") || text.includes("\r") || text.includes("\b");
}

/**
 * @param {string} line @param {string} style @param {(style: string) => void} keepStyle
 * @returns {Cell[]}
 */
function readLine(line, style, keepStyle) {
  /** @type {Cell[]} */
  const cells = [];
  let column = 0;
  /** @param {string} text */
  const put = (text) => {
    const plain = text.replace(/[\b\r]|[^\b\r]+/g, (piece) => {
      if (piece === "\r") column = 0;
      else if (piece === "\b") column = Math.max(0, column - 1);
      else for (const char of piece.replace(CONTROL, "")) if (column < COLUMNS_MAX) cells[column++] = { text: char, style };
      return "";
    });
    return plain;
  };
  let last = 0;
  for (const found of line.matchAll(ESCAPE)) {
    put(line.slice(last, found.index));
    last = found.index + found[0].length;
    const codes = found[1] ?? found[3];
    const final = found[2] ?? found[4];
    if (final === "m") style = applyStyle(style, codes ?? "");
    if (final === "K" && (codes === "" || codes === "0")) cells.length = Math.min(cells.length, column);
    if (final === "K" && codes === "2") cells.length = 0;
    if (final === "C") column = Math.min(COLUMNS_MAX, column + (Number(codes) || 1));
    if (final === "G") column = Math.min(COLUMNS_MAX, (Number(codes) || 1) - 1);
  }
  put(line.slice(last));
  keepStyle(style);
  for (let at = 0; at < cells.length; at += 1) cells[at] ??= { text: " ", style: "" };
  return cells;
}

/** @param {Cell[]} cells @returns {Cell[]} */
function joinCells(cells) {
  /** @type {Cell[]} */
  const runs = [];
  for (const cell of cells) {
    const last = runs.at(-1);
    if (last && last.style === cell.style) last.text += cell.text;
    else runs.push({ ...cell });
  }
  return runs;
}

/** @param {string} style @param {string} codes */
function applyStyle(style, codes) {
  const names = new Set(style.split(" ").filter(Boolean));
  const numbers = (codes || "0").split(/[;:]/).map(Number);
  for (let at = 0; at < numbers.length; at += 1) {
    const code = numbers[at] ?? 0;
    if (code === 0) names.clear();
    else if (code === 1) names.add("t-bold");
    else if (code === 2) names.add("t-dim");
    else if (code === 3) names.add("t-italic");
    else if (code === 4) names.add("t-under");
    else if (code === 22) { names.delete("t-bold"); names.delete("t-dim"); }
    else if (code === 39) dropColour(names);
    else if (code >= 30 && code <= 37) { dropColour(names); names.add(`t-${code - 30}`); }
    else if (code >= 90 && code <= 97) { dropColour(names); names.add(`t-${code - 82}`); }
    else if (code === 38 || code === 48) at += numbers[at + 1] === 5 ? 2 : 4;
  }
  return [...names].join(" ");
}

/** @param {Set<string>} names */
function dropColour(names) {
  for (const name of names) if (/^t-\d+$/.test(name)) names.delete(name);
}
