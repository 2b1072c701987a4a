/** Budgets and costs: by day, agent, model and owner, and what is reserved now. */

import { ApiError, get } from "./api.js";
import { h, slot, svg } from "./dom.js";
import { now } from "./feed.js";
import { money, tokens } from "./format.js";
import { effect, onCleanup, signal } from "./signals.js";
import { address } from "./ui.js";

/** @typedef {{ day?: string, agent?: string, model?: string, caller?: string, usd: string, is_complete: boolean, tokens: number, runs: number }} CostRow */
/** @typedef {{ session: string, title: string, agent: string, usd: string | null, tokens: number }} Reserved */
/** @typedef {{ name: string, caller: string, agent: string, usd_per_day: string | null, usd_today: string | null, runs_at_once: number | null }} Quota */
/** @typedef {{ day: CostRow[], agent: CostRow[], model: CostRow[], caller: CostRow[] }} Costs */
/** @typedef {{ usd?: string | null, tokens?: number | null }} Amount */
/** @typedef {{ budget: Amount & { name: string, per?: string | null }, spent: Amount, agents: string[] }} BudgetRow */

const KEYS = ["day", "agent", "model", "caller"];
const PERIODS = [7, 30, 90];
const RELOAD_MS = 15_000;
const PLOT = { width: 760, height: 150, left: 46, bottom: 20, top: 8 };

export function costsView() {
  const days = signal(30);
  const body = h("div");
  const show = slot(body);
  let asked = 0;
  const load = async () => {
    const mine = ++asked;
    try {
      const since = Math.floor(now.peek() / 86_400 - days.peek() + 1) * 86_400;
      const asks = KEYS.map((key) => get(`/costs?since=${since}&by=${key}`));
      const [day, agent, model, caller, budgets, quotas, reserved] = await Promise.all([...asks, get("/budgets"), get("/quotas"), get("/page/reserved")]);
      const costs = { day: day.rows, agent: agent.rows, model: model.rows, caller: caller.rows };
      if (mine === asked) show(() => costsBody(costs, budgets.budgets, quotas.quotas, reserved.reserved, days.peek()));
    } catch (error) {
      if (mine === asked) show(() => h("p", { class: "notice bad" }, error instanceof ApiError ? error.message : String(error)));
    }
  };
  effect(() => {
    days();
    void load();
  });
  const timer = setInterval(() => { if (!document.hidden) void load(); }, RELOAD_MS);
  onCleanup(() => clearInterval(timer));
  return [
    h("div", { class: "inbox-head" }, h("h1", null, "Costs"),
      h("div", { class: "tabs", role: "group", "aria-label": "Period" }, PERIODS.map((one) =>
        h("button", { class: "tab", "aria-pressed": () => String(days() === one), onclick: () => days.set(one) }, `${one} days`)))),
    body,
  ];
}

/** @param {Costs} costs @param {BudgetRow[]} budgets @param {Quota[]} quotas @param {Reserved[]} reserved @param {number} days */
function costsBody(costs, budgets, quotas, reserved, days) {
  const total = sum(costs.day, usdOf);
  const runs = sum(costs.day, (row) => row.runs);
  const today = new Date(now.peek() * 1000).toISOString().slice(0, 10);
  const figures = [
    [`${days} days`, money(total)], ["today, UTC", money(sum(costs.day.filter((row) => row.day === today), usdOf))],
    ["runs", String(runs)], ["a run, on average", runs ? money(total / runs) : "no runs"], ["tokens", tokens(sum(costs.day, (row) => row.tokens))],
    ["reserved now", money(sum(reserved, (one) => Number(one.usd ?? 0)))],
  ];
  return [
    costs.day.every((row) => row.is_complete) ? null : h("p", { class: "notice" }, "Some prices are not known: what they cost is not in these figures."),
    h("dl", { class: "figures" }, figures.map(([name, value]) => h("div", { class: "figure panel" }, h("dt", null, name), h("dd", null, value)))),
    h("section", { class: "section panel", "aria-label": "By day" }, h("h2", null, "By day"), dayPlot(costs.day, days)),
    budgets.length ? h("section", { class: "section panel", "aria-label": "Budgets" }, h("h2", null, "Shared budgets"), budgetTable(budgets)) : null,
    quotas.length ? h("section", { class: "section panel", "aria-label": "Quotas" }, h("h2", null, "Quotas"), quotaTable(quotas)) : null,
    reserved.length ? h("section", { class: "section panel", "aria-label": "Reserved" }, h("h2", null, "Reserved now"),
      h("table", null, h("tbody", null, reserved.map((one) => h("tr", null, h("td", null, h("a", { href: address("run", one.session) }, one.title || one.session)), h("td", null, one.agent), h("td", { class: "num" }, `${tokens(one.tokens)} tokens`), h("td", { class: "num" }, one.usd === null ? "unknown" : `at most ${money(one.usd)}`)))))) : null,
    groups("By agent", costs.agent, (row) => row.agent || "(no name)"),
    groups("By model", costs.model, (row) => row.model ?? ""),
    groups("By caller", costs.caller, (row) => row.caller || "(this machine's owner)"),
  ];
}

/** @param {CostRow} row */
function usdOf(row) {
  return Number(row.usd);
}

/** @template T @param {T[]} list @param {(item: T) => number} value */
function sum(list, value) {
  return list.reduce((total, item) => total + value(item), 0);
}

/** @param {string} title @param {CostRow[]} rows the highest first @param {(row: CostRow) => string} nameOf */
function groups(title, rows, nameOf) {
  if (!rows.length) return null;
  const most = Math.max(1e-12, ...rows.map(usdOf));
  return h("section", { class: "section panel", "aria-label": title }, h("h2", null, title), h("div", { class: "table-box", tabindex: "0", role: "group", "aria-label": title },
    h("table", null, h("thead", null, h("tr", null, ["", "share", "runs", "tokens", "cost"].map((name) => h("th", { scope: "col" }, name || h("span", { class: "visually-hidden" }, "name"))))),
      h("tbody", null, rows.map((row) => h("tr", null, h("td", null, nameOf(row)), h("td", null, meter(usdOf(row) / most)), h("td", { class: "num" }, String(row.runs)), h("td", { class: "num" }, tokens(row.tokens)), h("td", { class: "num" }, h("strong", null, money(row.usd)))))))));
}

/** @param {Quota[]} quotas */
function quotaTable(quotas) {
  return h("table", null, h("thead", null, h("tr", null, ["quota", "for", "today", "a day"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", null, quotas.map((one) => h("tr", null, h("td", null, one.name), h("td", null, [one.caller, one.agent].filter(Boolean).join(", ")), h("td", { class: "num" }, one.usd_today === null ? "" : money(one.usd_today)), h("td", { class: "num" }, one.usd_per_day === null ? "no limit" : money(one.usd_per_day))))));
}

/** @param {number} share between 0 and 1 */
function meter(share) {
  const bar = h("span");
  bar.style.width = `${Math.min(100, Math.max(0, share * 100))}%`;
  return h("div", { class: "meter", "aria-hidden": "true" }, bar);
}

/** @param {BudgetRow[]} budgets */
function budgetTable(budgets) {
  return h("table", null, h("thead", null, h("tr", null, ["budget", "used", "of", "agents"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", null, budgets.map(({ budget, spent, agents }) => {
      const usd = budget.usd ?? null;
      const share = usd !== null ? Number(spent.usd ?? 0) / Number(usd) : Number(spent.tokens ?? 0) / Number(budget.tokens ?? 1);
      return h("tr", null, h("td", null, budget.name, h("span", { class: "faint" }, budget.per ? ` per ${budget.per}` : ""), meter(share)),
        h("td", { class: "num" }, usd !== null ? money(spent.usd ?? 0) : tokens(spent.tokens ?? 0)), h("td", { class: "num" }, usd !== null ? money(usd) : `${tokens(budget.tokens ?? 0)} tokens`), h("td", null, agents.join(", ")));
    })));
}

/** @param {CostRow[]} rows @param {number} days */
function dayPlot(rows, days) {
  const last = new Date(now.peek() * 1000);
  const names = Array.from({ length: days }, (_, at) => new Date(last.getTime() - (days - 1 - at) * 86_400_000).toISOString().slice(0, 10));
  const values = names.map((day) => sum(rows.filter((row) => row.day === day), (row) => Number(row.usd)));
  const most = niceCeiling(Math.max(...values));
  const { width, height, left, bottom, top } = PLOT;
  const step = (width - left) / days;
  const y = (/** @type {number} */ value) => top + (height - top - bottom) * (1 - value / most);
  const total = sum(values, (value) => value);
  const label = `Cost by day over ${days} days: ${money(total)} in all, at most ${money(Math.max(...values))} on a day`;
  return svg("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    [0, 0.5, 1].map((share) => [svg("line", { class: "grid", x1: left, x2: width, y1: y(most * share), y2: y(most * share) }), svg("text", { x: left - 6, y: y(most * share) + 3, "text-anchor": "end" }, money(most * share))]),
    values.map((value, at) => svg("rect", { class: "day", x: left + at * step + step * 0.15, width: step * 0.7, y: value ? Math.min(y(value), y(0) - 1) : y(0), height: value ? Math.max(1, y(0) - y(value)) : 0, rx: Math.min(2, step / 5) }, svg("title", null, `${names[at]}: ${money(value)}`))),
    names.map((day, at) => (at % Math.ceil(days / 7) === 0 ? svg("text", { x: left + (at + 0.5) * step, y: height - 5, "text-anchor": "middle" }, day.slice(5)) : null)));
}

/** @param {number} value */
function niceCeiling(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return (/** @type {number} */ ([1, 2, 5, 10].find((step) => step * power >= value))) * power;
}
