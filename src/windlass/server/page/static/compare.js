/** Two sessions side by side, with the first record in which they differ. */

import { ApiError, get } from "./api.js";
import { h, icon, slot } from "./dom.js";
import { renderEntry } from "./entries.js";
import { counted, money, tokens } from "./format.js";
import { watchSession } from "./feed.js";
import { headState } from "./run.js";
import { effect, onCleanup } from "./signals.js";
import { address } from "./ui.js";

/** @typedef {import("./session_view.js").SessionView} SessionView */
/** @typedef {{ same: number, first: number | null, left: string, right: string, left_total: number, right_total: number }} Comparison */

/** @param {string} left @param {string} right */
export function compareView(left, right) {
  const one = watchSession(left);
  const two = watchSession(right);
  onCleanup(one.release);
  onCleanup(two.release);
  const verdict = h("div", { class: "compare-verdict", role: "status" }, "Comparing…");
  const columns = h("div", { class: "compare-columns" });
  const showVerdict = slot(verdict);
  const showColumns = slot(columns);
  let asked = "";
  effect(() => {
    one.view.version();
    two.view.version();
    const key = `${one.view.seq}/${two.view.seq}`;
    if (!one.view.seq || !two.view.seq || key === asked) return;
    asked = key;
    get(`/page/compare/${encodeURIComponent(left)}?other=${encodeURIComponent(right)}`).then(
      (/** @type {Comparison} */ found) => {
        showVerdict(() => verdictWords(found));
        showColumns(() => [column(one.view, found), column(two.view, found)]);
        requestAnimationFrame(() => columns.querySelector(".first-difference")?.scrollIntoView({ block: "center" }));
      },
      (/** @type {unknown} */ error) => showVerdict(() => h("p", { class: "bad" }, error instanceof ApiError ? error.message : String(error))));
  });
  return [h("h1", null, "Compare"), verdict, columns];
}

/** @param {Comparison} found */
function verdictWords(found) {
  if (found.first === null) return h("p", { class: "good" }, icon("check"), ` The two sessions have the same ${counted(found.same, "record")}.`);
  return h("div", { class: "panel first-words" },
    h("p", null, h("strong", null, `They differ from record ${found.first} on. `), h("span", { class: "soft" }, found.same ? `The ${counted(found.same, "record")} before are the same.` : "Not even the first record is the same.")),
    h("div", { class: "compare-pair" }, h("p", null, found.left || "nothing follows here"), h("p", null, found.right || "nothing follows here")));
}

/** @param {SessionView} view @param {Comparison} found */
function column(view, found) {
  const head = view.head.peek();
  const state = headState(head);
  const context = {
    session: view.session, why: (/** @type {number} */ seq) => { location.hash = address("run", view.session, seq); },
    nested: () => null, question: () => null, isOpen: () => false, setOpen: () => {},
  };
  const first = found.first ?? Number.POSITIVE_INFINITY;
  const at = view.entries.findIndex((entry) => entry.changed[0] >= first || entry.seq >= first);
  return h("section", { class: "compare-column", "aria-label": view.session },
    h("header", null, h("h2", null, h("a", { href: address("run", view.session) }, view.session)),
      h("p", { class: "soft num" }, h("span", { class: `chip ${state.chip}` }, state.words), ` ${counted(head?.steps ?? 0, "step")}  ·  ${tokens((head?.usage?.input ?? 0) + (head?.usage?.output ?? 0))} tokens  ·  ${money(head?.usd)}`)),
    view.entries.map((entry, index) => {
      const row = renderEntry(entry, context);
      row.removeAttribute("id");
      if (index === at) row.classList.add("first-difference");
      if (at >= 0 && index < at) row.classList.add("same");
      return row;
    }));
}
