// Plays one scene with the HttpAgent of AG-UI against a service, and prints what came of it as JSON.
//
// node ag_ui.mjs ADDRESS TOKEN SCENE

import { HttpAgent } from "@ag-ui/client";

const [address, token, scene] = process.argv.slice(2);
const headers = { Authorization: `Bearer ${token}` };
const agent = new HttpAgent({ url: `${address}/ag-ui/helper`, headers });
// The client reports a failed run on the console as well; only the JSON is read.
console.error = () => {};

const events = [];
let atText = () => {};
agent.subscribe({
  onEvent: ({ event }) => {
    events.push(event);
  },
  onTextMessageContentEvent: async () => {
    await atText();
  },
});

async function run(text, parameters = {}) {
  if (text) agent.addMessage({ id: crypto.randomUUID(), role: "user", content: text });
  events.length = 0;
  try {
    const { result } = await agent.runAgent(parameters);
    return { result };
  } catch (error) {
    return { error: error.message, status: error.status ?? null, payload: error.payload ?? null };
  }
}

function post(path, body) {
  return fetch(`${address}${path}`, {
    method: "POST",
    headers: { ...headers, "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
}

function describe(more = {}) {
  return {
    kinds: events.map((event) => event.type),
    last: events.at(-1),
    messages: agent.messages,
    pending: agent.pendingInterrupts,
    custom: events.filter((event) => event.type === "CUSTOM"),
    ...more,
  };
}

async function answer(approved) {
  const asked = await run("Send it.");
  const interrupts = agent.pendingInterrupts;
  const resume = interrupts.map((each) => ({
    interruptId: each.id,
    status: "resolved",
    payload: { approved, reason: "Not today." },
  }));
  const resumed = await run("", { resume });
  return describe({ asked, interrupts, ...resumed });
}

const scenes = {
  async text() {
    return describe(await run("Hello."));
  },
  async turns() {
    await run("Hello.");
    await run("Add.");
    return describe(await run("Recall."));
  },
  async tools() {
    return describe(await run("Add."));
  },
  async approve() {
    return answer(true);
  },
  async deny() {
    return answer(false);
  },
  async elsewhere() {
    await run("Send it.");
    const interrupts = agent.pendingInterrupts;
    const listed = await (await fetch(`${address}/questions`, { headers })).json();
    const { session, call_id, digest } = listed.questions[0];
    const verdict = { verdict: "deny", reason: "No." };
    await post(`/runs/${session}/answers`, { call_id, digest, answer: verdict });
    const resume = [{ interruptId: interrupts[0].id, status: "resolved", payload: true }];
    return describe(await run("", { resume }));
  },
  async cancel() {
    atText = async () => {
      atText = () => {};
      await post(`/runs/${agent.threadId}/cancel`, {});
    };
    return describe(await run("Wait."));
  },
  async reconnect() {
    atText = () => {
      atText = () => {};
      agent.abortRun();
    };
    await run("Count.");
    const before = structuredClone(agent.messages);
    const again = await run("");
    return describe({ before, ...again });
  },
  async broken() {
    return describe(await run("Break."));
  },
  async error() {
    return describe(await run("Fail."));
  },
  async refused() {
    agent.headers = {};
    return describe(await run("Hello."));
  },
};

process.stdout.write(`${JSON.stringify(await scenes[scene]())}\n`);
