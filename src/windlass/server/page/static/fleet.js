/** The fleet, for admins: workers, paused runs with their reasons, and who waits. */

import { ApiError, get, post } from "./api.js";
import { h, slot } from "./dom.js";
import { duration } from "./format.js";
import { onCleanup } from "./signals.js";
import { address, attempt } from "./ui.js";

/** @typedef {{ name: string, host: string, process: number, version: string, state: string, age_s: number, heartbeat_s: number, is_direct: boolean, runs: number, sessions: string[] }} Worker */
/** @typedef {{ session: string, agent: string, caller: string, cause: string, reason: string, by: string, since: number }} PausedRun */
/** @typedef {{ caller: string, prompts: number, longest_wait_s: number }} Queue */
/** @typedef {{ journal: string, at: number, workers: Worker[], driven: string[], paused: PausedRun[], queues: Queue[], note: string }} Fleet */

const RELOAD_MS = 5_000;

export function fleetView() {
  const body = h("div");
  const show = slot(body);
  const load = async () => {
    try {
      const fleet = await get("/fleet");
      show(() => fleetBody(fleet, load));
    } catch (error) {
      show(() => h("p", { class: "notice bad" }, error instanceof ApiError ? error.message : String(error)));
    }
  };
  void load();
  // A list that a person has opened stays open.
  const timer = setInterval(() => { if (!document.hidden && !body.querySelector("details[open]")) void load(); }, RELOAD_MS);
  onCleanup(() => clearInterval(timer));
  return [h("div", { class: "inbox-head" }, h("h1", null, "Fleet")), body];
}

/** @param {Fleet} fleet @param {() => Promise<void>} reload */
function fleetBody(fleet, reload) {
  return [
    fleet.note ? h("p", { class: "notice" }, fleet.note) : section("Workers", ["worker", "version", "state", "age", "last heartbeat", "runs"],
      fleet.workers.map((worker) => [
        `${worker.host}, process ${worker.process}`, worker.version, worker.is_direct ? worker.state : `${worker.state}, pooled`, duration(worker.age_s),
        `${duration(worker.heartbeat_s)} ago`, runsCell(worker, reload)]), "No worker in the last hour."),
    fleet.note ? section("Driven", ["session", ""], fleet.driven.map((session) => [runLink(session), moveButton(session, reload)]), "No run is driven.") : null,
    section("Paused", ["session", "agent", "caller", "for", "why"], fleet.paused.map((run) => [
      runLink(run.session), run.agent, run.caller, duration(fleet.at - run.since), run.reason || (run.by ? `${run.by} paused it` : run.cause)]), "No run is paused."),
    section("Waiting", ["caller", "prompts", "longest wait"], fleet.queues.map((queue) => [
      queue.caller || "(no caller)", String(queue.prompts), duration(queue.longest_wait_s)]), "No prompt waits."),
  ];
}

/** @param {Worker} worker @param {() => Promise<void>} reload */
function runsCell(worker, reload) {
  if (!worker.sessions.length) return String(worker.runs);
  return h("details", null, h("summary", null, String(worker.runs)),
    h("ul", { class: "plain-list" }, worker.sessions.map((session) => h("li", null, runLink(session), " ", moveButton(session, reload)))));
}

/** @param {string} session */
function runLink(session) {
  return h("a", { href: address("run", session) }, session);
}

/** @param {string} session @param {() => Promise<void>} reload */
function moveButton(session, reload) {
  const move = () => void attempt(() => post(`/runs/${encodeURIComponent(session)}/release`, {}), "Its worker releases the run; another one resumes it.").then(reload);
  return h("button", { class: "plain", title: "Another worker resumes it", onclick: move }, "Move");
}

/** @param {string} title @param {string[]} columns @param {import("./dom.js").Child[][]} rows @param {string} none */
function section(title, columns, rows, none) {
  return h("section", { class: "section panel", "aria-label": title }, h("h2", null, title),
    rows.length ? h("div", { class: "table-box", tabindex: "0", role: "group", "aria-label": title },
      h("table", null, h("thead", null, h("tr", null, columns.map((name) => h("th", { scope: "col" }, name || h("span", { class: "visually-hidden" }, "actions"))))),
        h("tbody", null, rows.map((cells) => h("tr", null, cells.map((cell) => h("td", null, cell))))))) : h("p", { class: "soft" }, none));
}
