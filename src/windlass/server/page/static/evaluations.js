/** Evaluations: pass rates with their intervals, and the session of every trial. */

import { ApiError, get } from "./api.js";
import { h, slot, svg } from "./dom.js";
import { money } from "./format.js";
import { onCleanup } from "./signals.js";
import { address } from "./ui.js";

/** @typedef {{ low: number, high: number }} Interval */
/** @typedef {{ name: string, updated: number, model: string, cases: number, planned: number, done: number, passed: number, counted: number, interval: Interval }} Listed */
/** @typedef {{ scorer: string, passed: boolean | null, value: number | null, label: string | null, reason: string, missing: boolean }} Score */
/** @typedef {{ session: string, status: string, outcome: string, problems: string[], scores: Score[], steps: number, seconds: number, usd: string | null }} Trial */
/** @typedef {{ id: string, passed: number, counted: number, interval: Interval, is_flaky: boolean, tags: string[], trials: Trial[] }} EvaluatedCase */
/** @typedef {{ scorer: string, mean: number, interval: Interval | null, over: string, values: { median: number, low: number, high: number } }} Summary */
/** @typedef {{ name: string, cases: number, passes: { passed: number, trials: number }, interval: Interval, scores: Summary[] }} Group */
/** @typedef {{ scorer: string, labels: string[], counts: number[][] }} Matrix */
/**
 * @typedef {{ evaluation: Listed, instructions: string, scorers: string[], warnings: string[], usd: string | null, judge_usd: string | null,
 *   pass_at: number | null, pass_hat: number | null, repeat: number, scores: Summary[], groups: Record<string, Group[]>, labels: Matrix[], cases: EvaluatedCase[] }} Evaluation
 */

const RELOAD_MS = 5_000;
const BAR = { width: 160, height: 14 };

/** @param {string} name the evaluation that is shown; empty for the list */
export function evaluationsView(name) {
  const body = h("div");
  const show = slot(body);
  let shown = "";
  const load = async () => {
    try {
      const found = await get(name ? `/page/evaluation?name=${encodeURIComponent(name)}` : "/page/evaluations");
      const text = JSON.stringify(found);
      if (text === shown) return;
      shown = text;
      show(() => (name ? evaluationBody(found) : listBody(found.evaluations)));
    } catch (error) {
      shown = "";
      show(() => h("p", { class: "notice bad" }, error instanceof ApiError ? error.message : String(error)));
    }
  };
  void load();
  const timer = setInterval(() => { if (!document.hidden) void load(); }, RELOAD_MS);
  onCleanup(() => clearInterval(timer));
  return [h("h1", null, name || "Evaluations"), body];
}

/** @param {Listed[]} found */
function listBody(found) {
  if (!found.length) {
    return h("p", { class: "empty" }, "There are no evaluations. ", h("code", null, "windlass eval run cases.yaml"), " makes one.");
  }
  return table("Evaluations", ["evaluation", "passed", "rate, 95 %", "trials", "model", "updated"], found.map((one) => [
    h("a", { href: address("evaluations", one.name) }, one.name),
    `${one.passed} of ${one.counted}`, rateBar(one), `${one.done} of ${one.planned}`, h("span", { class: "mono" }, one.model), when(one.updated)]));
}

/** @param {Evaluation} found */
function evaluationBody(found) {
  const one = found.evaluation;
  const facts = [
    `${one.passed} of ${one.counted} trials passed: ${percent(rate(one))}, ${percent(one.interval.low)} to ${percent(one.interval.high)}`,
    found.repeat > 1 && found.pass_at !== null && found.pass_hat !== null ? `pass@${found.repeat} ${percent(found.pass_at)}, pass^${found.repeat} ${percent(found.pass_hat)}` : "",
    found.usd === null ? "" : `cost ${money(Number(found.usd))}${Number(found.judge_usd) ? `, judges ${money(Number(found.judge_usd))}` : ""}`,
    one.done < one.planned ? `${one.done} of ${one.planned} trials have ended` : "",
    found.scorers.length ? `scored by ${found.scorers.join(", ")}` : "",
  ];
  return h("div", null,
    h("p", null, h("a", { href: address("evaluations") }, "All evaluations")),
    facts.filter(Boolean).map((words) => h("p", null, words)),
    found.warnings.map((words) => h("p", { role: "note" }, h("span", { class: "chip warn" }, "note"), " ", words)),
    found.scores.length ? scoresTable(found.scores) : null,
    found.labels.map(matrixTable),
    Object.entries(found.groups).map(([key, groups]) => groupsTable(key, groups)),
    found.cases.map(caseSection));
}

/** @param {Summary[]} scores */
function scoresTable(scores) {
  return table("Scores", ["score", "mean", "95 %", "median", "lowest", "highest"], scores.map((one) => [
    one.scorer, short(one.mean),
    one.interval ? `${short(one.interval.low)} to ${short(one.interval.high)} on ${one.over === "trials" ? "these cases" : "cases like these"}` : "",
    short(one.values.median), short(one.values.low), short(one.values.high)]));
}

/** @param {string} key @param {Group[]} groups */
function groupsTable(key, groups) {
  const names = [...new Set(groups.flatMap((group) => group.scores.map((score) => score.scorer)))];
  return table(`By ${key}`, [key, "cases", "passed", "rate, 95 %", ...names], groups.map((group) => {
    const of = { passed: group.passes.passed, counted: group.passes.trials, interval: group.interval };
    const mean = (/** @type {string} */ name) => group.scores.find((score) => score.scorer === name)?.mean;
    return [group.name, String(group.cases), `${of.passed} of ${of.counted}`, rateBar(of), ...names.map((name) => { const found = mean(name); return found === undefined ? "" : short(found); })];
  }));
}

/** @param {Matrix} matrix */
function matrixTable(matrix) {
  return table(`Labels of ${matrix.scorer}`, [`${matrix.scorer}: right, given`, ...matrix.labels],
    matrix.counts.map((row, at) => [matrix.labels[at] ?? "", ...row.map(String)]));
}

/** @param {Score[]} scores */
function gradedWords(scores) {
  return scores.filter((score) => score.value !== null).map((score) => `${score.scorer} ${short(Number(score.value))}`).join("; ");
}

/** @param {EvaluatedCase} one */
function caseSection(one) {
  return h("section", { class: "section panel", "aria-label": one.id },
    h("h2", null, one.id, " ", one.is_flaky ? h("span", { class: "chip warn" }, "flaky") : null),
    h("p", null, `${one.passed} of ${one.counted} passed `, rateBar(one)),
    table(`Trials of ${one.id}`, ["trial", "result", "steps", "seconds", "cost", "scores", "why"], one.trials.map((trial) => [
      h("a", { class: "mono", href: address("run", trial.session) }, trial.session.split("/").pop() ?? trial.session),
      h("span", { class: ["chip", statusClass(trial.status)] }, trial.status.replace("_", " ")),
      String(trial.steps), trial.seconds.toFixed(1), trial.usd === null ? "" : money(Number(trial.usd)), gradedWords(trial.scores),
      trial.status === "passed" ? "" : trial.problems.join("; ") || trial.outcome])));
}

/** @param {string} label @param {string[]} head @param {import("./dom.js").Child[][]} rows */
function table(label, head, rows) {
  return h("div", { class: "table-box", tabindex: "0", role: "group", "aria-label": label }, h("table", { class: "tool-table" },
    h("thead", null, h("tr", null, head.map((words) => h("th", { scope: "col" }, words)))),
    h("tbody", null, rows.map((cells) => h("tr", null, cells.map((cell) => h("td", null, cell)))))));
}

/** @param {{ passed: number, counted: number, interval: Interval }} of */
function rateBar(of) {
  const at = (/** @type {number} */ share) => (share * BAR.width).toFixed(1);
  const words = `${percent(rate(of))}, ${percent(of.interval.low)} to ${percent(of.interval.high)}`;
  const middle = String(BAR.height / 2);
  return svg("svg", { class: "rate-bar", viewBox: `0 0 ${BAR.width} ${BAR.height}`, width: String(BAR.width), height: String(BAR.height), role: "img", "aria-label": words },
    svg("line", { class: "rate-track", x1: "0", y1: middle, x2: String(BAR.width), y2: middle }),
    svg("line", { class: "rate-interval", x1: at(of.interval.low), y1: middle, x2: at(of.interval.high), y2: middle }),
    svg("circle", { class: "rate-point", cx: at(rate(of)), cy: middle, r: "4" }));
}

/** @param {{ passed: number, counted: number }} of */
function rate(of) {
  return of.counted ? of.passed / of.counted : 0;
}

/** @param {number} share */
function percent(share) {
  return `${Math.round(share * 100)} %`;
}

/** @param {number} value three digits that matter */
function short(value) {
  return String(Number(value.toPrecision(3)));
}

/** @param {string} status */
function statusClass(status) {
  if (status === "passed") return "good";
  return status === "failed" ? "bad" : "warn";
}

/** @param {number} seconds */
function when(seconds) {
  return new Date(seconds * 1000).toLocaleString();
}
