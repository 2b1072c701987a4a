/** Agents: model, tools, policy, limits, and a trial of the policy. */

import { ApiError, get, post } from "./api.js";
import { h, icon, slot } from "./dom.js";
import { clip, parseJson, prettyJson } from "./format.js";
import { signal } from "./signals.js";
import { address } from "./ui.js";

/** @typedef {{ name: string, description: string, effect: string, labels: string[], parameters: Record<string, any>, notice: string }} ToolInfo */
/**
 * @typedef {{ name: string, model: string, fallbacks: string[], tools?: ToolInfo[], policy?: string,
 *   limits: Record<string, any>, budgets: string[], output_schema: unknown, hidden: string[] }} AgentInfo
 */

/** @param {string} name the agent that is shown; empty for the first */
export function agentsView(name) {
  const body = h("div");
  const show = slot(body);
  get("/agents").then(
    (/** @type {{ agents: AgentInfo[] }} */ found) => {
      const shown = found.agents.find((one) => one.name === name) ?? found.agents[0];
      show(() => (shown ? h("div", { class: "agent-grid" }, agentList(found.agents, shown), agentBody(shown)) : h("p", { class: "empty" }, "There are no agents.")));
    },
    (/** @type {unknown} */ error) => show(() => h("p", { class: "notice bad" }, error instanceof ApiError ? error.message : String(error))));
  return [h("h1", { class: "visually-hidden" }, "Agents"), body];
}

/** @param {AgentInfo[]} agents @param {AgentInfo} shown */
function agentList(agents, shown) {
  return h("ul", { class: "agent-list panel" }, agents.map((one) =>
    h("li", null, h("a", { href: address("agents", one.name), "aria-current": one === shown ? "true" : null }, icon("agent"), " ", one.name || "(no name)"))));
}

/** @param {AgentInfo} agent */
function agentBody(agent) {
  const limits = Object.entries(agent.limits).filter(([, value]) => value !== null && value !== undefined);
  return h("div", null,
    h("section", { class: "section panel first", "aria-label": "Agent" }, h("h2", null, agent.name || "(no name)"),
      h("dl", { class: "argument-table" },
        h("dt", null, "model"), h("dd", { class: "mono" }, [agent.model, ...agent.fallbacks].join(", then ")),
        agent.policy === undefined ? null : [h("dt", null, "policy"), h("dd", { class: "mono" }, agent.policy || "none: what is registered may run")],
        h("dt", null, "limits"), h("dd", null, limits.length ? limits.map(([name, value]) => `${name} ${value}`).join(", ") : "25 steps"),
        agent.budgets.length ? [h("dt", null, "budgets"), h("dd", null, agent.budgets.join(", "))] : null,
        agent.output_schema ? [h("dt", null, "output"), h("dd", null, h("pre", { class: "result-text", tabindex: "0", role: "group", "aria-label": "output schema" }, prettyJson(agent.output_schema)))] : null)),
    agent.policy === undefined || !agent.tools ? null : trial(agent, agent.tools),
    !agent.tools ? null : h("section", { class: "section panel", "aria-label": "Tools" }, h("h2", null, `Tools (${agent.tools.length})`),
      h("div", { class: "table-box", tabindex: "0", role: "group", "aria-label": "tools" }, h("table", { class: "tool-table" }, h("thead", null, h("tr", null, ["tool", "effect", "what it is for"].map((one) => h("th", { scope: "col" }, one)))),
        h("tbody", null, agent.tools.map((tool) => h("tr", null, h("td", { class: "mono" }, tool.name),
          h("td", null, h("span", { class: ["chip", tool.effect === "read" ? "good" : "warn"] }, tool.effect), tool.labels.map((label) => h("span", { class: ["chip", label === "external" && "bad"] }, label))),
          h("td", null, clip(tool.description, 300), tool.notice ? h("p", { class: "warn" }, tool.notice) : null))))))));
}

/** @param {AgentInfo} agent @param {ToolInfo[]} tools */
function trial(agent, tools) {
  const tool = signal(tools[0]?.name ?? "");
  const verdict = h("div", { role: "status" });
  const show = slot(verdict);
  const args = h("textarea", { class: "mono", rows: 4, spellcheck: "false", "aria-label": "Arguments as JSON", value: exampleArguments(tools[0]) });
  const labels = ["untrusted", "private"].map((label) => h("input", { type: "checkbox", value: label }));
  const ask = async () => {
    const value = parseJson(args.value);
    if (value === null || typeof value !== "object" || Array.isArray(value)) {
      show(() => h("p", { class: "bad" }, "The arguments are not a JSON object."));
      return;
    }
    try {
      const body = { tool: tool.peek(), arguments: value, labels: labels.filter((box) => box.checked).map((box) => box.value) };
      const found = await post(`/agents/${encodeURIComponent(agent.name)}/trial`, body);
      show(() => verdictWords(found.verdict));
    } catch (error) {
      show(() => h("p", { class: "bad" }, error instanceof ApiError ? `${error.message} ${error.hint}` : String(error)));
    }
  };
  if (!tools.length) return null;
  return h("section", { class: "section panel", "aria-label": "Trial" }, h("h2", null, "What would happen to this call?"),
    h("form", { class: "trial", onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); void ask(); } },
      h("select", { "aria-label": "Tool", onchange: (/** @type {Event} */ event) => {
        tool.set(/** @type {HTMLSelectElement} */ (event.target).value);
        args.value = exampleArguments(tools.find((one) => one.name === tool.peek()));
      } }, tools.map((one) => h("option", { value: one.name }, one.name))),
      args,
      h("div", { class: "trial-row" }, labels.map((box) => h("label", null, box, box.value === "untrusted" ? " has read outside text" : " has read private data")), h("span", { class: "grow" }), h("button", { class: "primary" }, "Try it"))),
    h("p", { class: "faint" }, "Nothing runs: only the policy is asked."),
    verdict);
}

/** @param {ToolInfo | undefined} tool */
function exampleArguments(tool) {
  const properties = /** @type {Record<string, any>} */ (tool?.parameters?.properties ?? {});
  const required = /** @type {string[]} */ (tool?.parameters?.required ?? Object.keys(properties));
  const example = Object.fromEntries(required.map((name) => [name, exampleValue(properties[name])]));
  return JSON.stringify(example, null, 2);
}

/** @param {any} schema */
function exampleValue(schema) {
  const kind = Array.isArray(schema?.type) ? schema.type[0] : schema?.type;
  return /** @type {Record<string, unknown>} */ ({ integer: 1, number: 1, boolean: false, array: [], object: {} })[kind] ?? "…";
}

/** @param {import("./types.js").Verdict} verdict */
function verdictWords(verdict) {
  /** @type {Record<string, [string, string]>} */
  const looks = { allow: ["It would run.", "good"], deny: ["It would be denied.", "bad"], ask: ["A person would be asked.", "warn"], modify: ["It would run with other arguments.", "warn"], invalid: ["The call is not valid.", "bad"] };
  const [words, kind] = looks[verdict.verdict] ?? [verdict.verdict, ""];
  const more = verdict.reason ?? verdict.question ?? verdict.message ?? "";
  return h("p", { class: "trial-verdict" }, h("strong", { class: kind }, words), " ", more, verdict.rule ? [" ", h("code", { class: "rule" }, verdict.rule)] : null);
}
