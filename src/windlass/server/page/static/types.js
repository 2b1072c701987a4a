/**
 * The shapes of what the service sends. Types only: nothing here runs.
 *
 * They are the JSON of `windlass.core.projection` and of the routes, as far as the page reads them.
 */

/** @typedef {{ type: "text", text: string }} TextPart */
/** @typedef {{ type: "thinking", text: string }} ThinkingPart */
/** @typedef {{ type: "image", media_type: string, data?: string | null, url?: string | null }} ImagePart */
/** @typedef {{ type: "file", media_type: string, name: string, data?: string | null, url?: string | null }} FilePart */
/** @typedef {{ type: "call", id: string, name: string, arguments?: string, origin?: string }} CallPart */
/** @typedef {TextPart | ImagePart | FilePart} ContentPart */
/** @typedef {TextPart | ThinkingPart | CallPart} ReplyPart */
/** @typedef {{ input?: number, output?: number, cache_read?: number, cache_write?: number, reasoning?: number, estimated?: boolean }} Usage */
/** @typedef {{ model: string, purpose?: string, usage?: Usage | null, usd?: string | null }} Charge */
/** @typedef {{ charges?: Charge[] }} Ledger */
/** @typedef {{ kind: string, content: ContentPart[], outage?: boolean, artifacts?: string[] }} ToolResult */
/**
 * @typedef {{ verdict: string, rule?: string, reason?: string, question?: string,
 *   expires_at?: number | null, code?: string, message?: string }} Verdict
 */
/**
 * A call, from the model's proposal to its result.
 * @typedef {{ call: CallPart, state: string, arguments: string | null,
 *   changes: { path: string, what: string }[], verdict: Verdict | null, answer: Verdict | null,
 *   answered_by: string, answers: { answer: string, by: string, at: number }[],
 *   person: { name: string, origin?: string } | null, question: Verdict | null,
 *   waits_for: { session: string, questions?: unknown[] } | null, key: string, starts: number,
 *   asked_at: number | null, answered_at: number | null, started_at: number | null,
 *   ended_at: number | null, result: ToolResult | null, abandoned: boolean, charges: Charge[],
 *   progress: string, agents: { agent: string, session: string }[], clipped?: number }} CallView
 */
/** @typedef {{ type: string, seq?: number, at?: number, [field: string]: any }} Fact */
/** @typedef {{ seq: number, at: number, run: number, changed: [number, number] }} EntryBase */
/** @typedef {EntryBase & { entry: "prompt", parts: ContentPart[], caller: string }} PromptEntry */
/** @typedef {EntryBase & { entry: "earlier", message: { role: string, parts?: ReplyPart[], items?: unknown[] } }} EarlierEntry */
/** @typedef {EntryBase & { entry: "steering", parts: ContentPart[], by: string }} SteeringEntry */
/** @typedef {EntryBase & { entry: "note", text: string, verdict: Verdict | null }} NoteEntry */
/**
 * @typedef {EntryBase & { entry: "reply", parts: ReplyPart[], model: string, step: number, stop: string,
 *   calls: CallView[], charge: Charge | null, kind: "reply" | "partial" | "lookup" | "undo", withheld: boolean,
 *   verdict: Verdict | null, requested_at: number | null }} ReplyEntry
 */
/**
 * @typedef {EntryBase & { entry: "failure", fact: Fact, model: string, step: number, attempt: number,
 *   purpose: string, requested_at: number | null, retried: boolean }} FailureEntry
 */
/** @typedef {EntryBase & { entry: "fallback", model: string, instead_of: string }} FallbackEntry */
/** @typedef {EntryBase & { entry: "notice", fact: Fact, words: string }} NoticeEntry */
/**
 * @typedef {PromptEntry | EarlierEntry | SteeringEntry | NoteEntry | ReplyEntry | FailureEntry
 *   | FallbackEntry | NoticeEntry} Entry
 */
/** @typedef {{ waits_for: string, since: number, until: number | null, tools: string[] }} Status */
/**
 * @typedef {{ number: number, started_at: number, ended_at: number | null, caller: string, agent: string,
 *   model: string, steps: number, requests: number, failures: number, stalls: number, fallbacks: number,
 *   compactions: number, repairs: number, ledger: Ledger, queued: boolean, released: boolean, outcome: string | null,
 *   pause: (Fact & { cause?: string, reason?: string }) | null, reason: string,
 *   fault: { kind: string, message: string } | null }} RunView
 */
/** @typedef {{ step: number, attempt: number, model: string, text_from: number, chunks: [string, string][], calls: { name: string, arguments: string }[] }} LiveReply */
/**
 * What changed in a session.
 * @typedef {{ session: string, epoch: number, seq: number, reset: boolean, settled: number,
 *   entries: [number, Entry][], pending: SteeringEntry[], status: Status, run: RunView | null,
 *   attempt: Fact | null, reply: LiveReply | null, steps: number, usd: string | null,
 *   usage: Usage | null, model: string, agent: string,
 *   parent: string, driven: boolean, writes: string[] }} ViewPatch
 */
/**
 * A session in a list.
 * @typedef {{ session: string, state: string, title: string, created: number, updated: number, seq: number,
 *   runs: number, steps: number, agent: string, owner: string, parent: string, tokens: number,
 *   usd: string | null, pause: string, released: boolean, activity: number[] }} SessionSummary
 */
/**
 * A question that waits for a person.
 * @typedef {{ session: string, root: string, call_id: string, tool: string, arguments: Record<string, any>,
 *   question: string, digest: string, rule: string, expires_at: number | null, chain: string[],
 *   asked_at: number, agent: string, title: string, effect: string, labels: string[],
 *   held_labels: string[], notice: string, sandbox: string, pattern: string,
 *   allowed_before: { at: number, by: string, arguments: string, pattern: string, decision: string }[],
 *   preview: { note: string, diff: string } | null, needs: string[], agreed: string[], cannot: string }} Question
 */
/** @typedef {{ role: string, agents: string[] }} Grant */
/** @typedef {{ name: string, roles: string[], person: string, grants: Grant[] }} CallerInfo */
/** @typedef {{ name: string, model: string, description: string }} AgentChoice */
/** @typedef {{ caller: CallerInfo, now: number, agents: AgentChoice[] }} Hello */

export {};
