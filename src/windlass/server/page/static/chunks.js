/**
 * A long list in chunks of rows that are complete and never looked at again.
 *
 * A browser lays out only the chunks near the screen (`content-visibility`), and one more row costs
 * the same whether there are ten before it or ten thousand. All rows are in the document in the end,
 * so that the browser's own search finds them.
 */

import { h } from "./dom.js";
import { onCleanup, ownScope } from "./signals.js";

export const CHUNK_ROWS = 100;
const ROW_PX = 90;
const SLICE_MS = 5;

/** @typedef {{ element: HTMLElement, rows: (HTMLElement | undefined)[], ends: (() => void)[], isBuilt: boolean }} Chunk */

/** @template T */
export class ChunkedList {
  /**
   * @param {HTMLElement} parent
   * @param {(item: T, index: number) => HTMLElement} render
   */
  constructor(parent, render) {
    this.parent = parent;
    this.render = render;
    /** @type {readonly T[]} */
    this.items = [];
    /** @type {Chunk[]} */
    this.chunks = [];
    this.isBuilding = false;
    this.isOver = false;
    this.observer = new IntersectionObserver((seen) => {
      for (const one of seen) {
        const chunk = this.chunks.find((other) => other.element === one.target);
        if (one.isIntersecting && chunk) this.build(this.chunks.indexOf(chunk));
      }
    }, { rootMargin: "1200px" });
    onCleanup(() => {
      this.isOver = true;
      this.observer.disconnect();
      for (const chunk of this.chunks) for (const end of chunk.ends) end?.();
    });
  }

  /**
   * Show other items, the last of them first.
   * @param {readonly T[]} items
   */
  reset(items) {
    for (const chunk of this.chunks) {
      for (const end of chunk.ends) end?.();
      this.observer.unobserve(chunk.element);
    }
    this.chunks = [];
    this.items = items;
    this.parent.replaceChildren();
    while (this.chunks.length * CHUNK_ROWS < items.length) this.addChunk();
    const last = this.chunks.length - 1;
    for (let at = last; at >= Math.max(0, last - 1); at -= 1) this.build(at);
    this.buildRest();
  }

  /**
   * Show items that are new or have changed.
   * @param {readonly T[]} items @param {readonly number[]} changed
   */
  update(items, changed) {
    this.items = items;
    for (const index of changed) {
      const at = Math.floor(index / CHUNK_ROWS);
      while (this.chunks.length <= at) this.build(this.addChunk());
      const chunk = this.chunks[at];
      if (chunk?.isBuilt || chunk?.rows[index % CHUNK_ROWS]) this.putRow(index);
    }
  }

  addChunk() {
    const element = h("div", { class: "chunk" });
    this.chunks.push({ element, rows: [], ends: [], isBuilt: false });
    const count = Math.min(CHUNK_ROWS, Math.max(0, this.items.length - (this.chunks.length - 1) * CHUNK_ROWS));
    element.style.minHeight = `${count * ROW_PX}px`;
    this.parent.append(element);
    this.observer.observe(element);
    return this.chunks.length - 1;
  }

  /** @param {number} at */
  build(at) {
    const chunk = this.chunks[at];
    if (!chunk || chunk.isBuilt) return;
    chunk.isBuilt = true;
    this.observer.unobserve(chunk.element);
    const end = Math.min(this.items.length, (at + 1) * CHUNK_ROWS);
    for (let index = at * CHUNK_ROWS; index < end; index += 1) if (!chunk.rows[index % CHUNK_ROWS]) this.putRow(index);
    chunk.element.style.minHeight = "";
  }

  /**
   * Build the chunks that are left while nothing else is to be done, the latest first. A few rows at
   * a time: a frame that is due meanwhile is not missed.
   */
  buildRest() {
    if (this.isBuilding) return;
    this.isBuilding = true;
    const step = () => {
      this.isBuilding = false;
      if (this.isOver) return;
      const at = this.chunks.findLastIndex((chunk) => !chunk.isBuilt);
      const chunk = this.chunks[at];
      if (!chunk) return;
      const first = at * CHUNK_ROWS;
      const end = performance.now() + SLICE_MS;
      let nth = Math.min(CHUNK_ROWS, this.items.length - first) - 1;
      while (nth >= 0 && chunk.rows[nth]) nth -= 1;
      for (; nth >= 0 && performance.now() < end; nth -= 1) this.putRow(first + nth);
      if (nth < 0) this.build(at);
      this.buildRest();
    };
    if ("requestIdleCallback" in globalThis) requestIdleCallback(step, { timeout: 300 });
    else setTimeout(step, 30);
  }

  /** @param {number} index */
  putRow(index) {
    const item = this.items[index];
    const chunk = this.chunks[Math.floor(index / CHUNK_ROWS)];
    if (item === undefined || !chunk) return;
    const nth = index % CHUNK_ROWS;
    const [row, end] = ownScope(() => this.render(item, index));
    const old = chunk.rows[nth];
    if (old) {
      const focused = old.contains(document.activeElement) ? document.activeElement : null;
      old.replaceWith(row);
      restoreFocus(row, focused);
      chunk.ends[nth]?.();
    } else {
      const next = chunk.rows.find((other, at) => at > nth && other);
      chunk.element.insertBefore(row, next ?? null);
    }
    chunk.rows[nth] = row;
    chunk.ends[nth] = end;
  }

  /**
   * Return the row of an item, built if it was not yet.
   * @param {number} index
   */
  rowAt(index) {
    const at = Math.floor(index / CHUNK_ROWS);
    this.build(at);
    return this.chunks[at]?.rows[index % CHUNK_ROWS];
  }
}

/** @param {HTMLElement} row @param {Element | null} focused */
function restoreFocus(row, focused) {
  const key = focused?.getAttribute("data-focus");
  if (key) /** @type {HTMLElement | null} */ (row.querySelector(`[data-focus="${CSS.escape(key)}"]`))?.focus({ preventScroll: true });
}
