/**
 * One session as the service projects it, kept up to date by patches.
 *
 * The service folds the events. The page only puts what changed in its place, so that a page that was
 * opened late, or reloaded, shows the same as one that saw everything.
 */

import { signal } from "./signals.js";

/** @typedef {import("./types.js").ViewPatch} ViewPatch */
/** @typedef {import("./types.js").Entry} Entry */
/** @typedef {Omit<ViewPatch, "entries" | "reset">} Head */

export class SessionView {
  /** @param {string} session */
  constructor(session) {
    this.session = session;
    /** @type {Entry[]} */
    this.entries = [];
    /** Entries before this index never change again. */
    this.settled = 0;
    this.seq = 0;
    this.epoch = 0;
    /** @type {import("./signals.js").Signal<Head | null>} */
    this.head = signal(/** @type {Head | null} */ (null));
    /** @type {import("./signals.js").Signal<number>} grows with each change of the entries */
    this.version = signal(0);
    /** @type {[string, string][]} text and thinking of the reply that streams */
    this.chunks = [];
    this.replyKey = "";
    /** @type {import("./signals.js").Signal<number>} grows with each piece of the reply */
    this.liveVersion = signal(0);
    this.isMissing = signal(false);
    /** @type {Set<(changed: number[], reset: boolean) => void>} */
    this.listeners = new Set();
  }

  /** @param {ViewPatch} patch */
  apply(patch) {
    const isOther = this.epoch !== 0 && patch.epoch !== this.epoch;
    const isReset = patch.reset || isOther;
    if (isReset) this.entries = [];
    /** @type {number[]} */
    const changed = [];
    for (const [at, entry] of patch.entries) {
      this.entries[at] = entry;
      changed.push(at);
    }
    this.settled = patch.settled;
    this.seq = patch.seq;
    this.epoch = patch.epoch;
    this.applyReply(patch.reply);
    this.isMissing.set(false);
    this.head.set(patch);
    if (changed.length || isReset) {
      for (const listener of this.listeners) listener(changed, isReset);
      this.version.set(this.version.peek() + 1);
    }
  }

  /** @param {import("./types.js").LiveReply | null} reply */
  applyReply(reply) {
    const key = reply ? `${reply.step}.${reply.attempt}` : "";
    if (!reply || key !== this.replyKey || reply.text_from === 0) this.chunks = [];
    this.replyKey = key;
    if (reply) {
      // A patch that does not follow what is here is a mistake of the stream: never show a gap.
      if (reply.text_from === this.chunks.length) this.chunks.push(...reply.chunks);
      else if (reply.chunks.length) console.error("a piece of the reply is missing");
    }
    this.liveVersion.set(this.liveVersion.peek() + 1);
  }

  /**
   * Return the index of the entry that a record belongs to.
   * @param {number} seq
   */
  indexOfRecord(seq) {
    let low = 0;
    let high = this.entries.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.entries[middle]?.seq ?? 0) <= seq) low = middle + 1;
      else high = middle;
    }
    return Math.max(0, low - 1);
  }
}
