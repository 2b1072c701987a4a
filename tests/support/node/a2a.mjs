// Plays one scene with the A2A client for JavaScript, and prints what came of it as JSON.
//
// node a2a.mjs ADDRESS TOKEN MODE SCENE, where MODE is `plain` or `streamed`.

import { TaskState } from "@a2a-js/sdk";
import {
  ClientFactory,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
} from "@a2a-js/sdk/client";

const [address, token, mode, scene] = process.argv.slice(2);
const headers = { Authorization: `Bearer ${token}` };
const fetchImpl = (url, init = {}) =>
  fetch(url, { ...init, headers: { ...init.headers, ...headers } });
const factory = new ClientFactory({
  transports: [new JsonRpcTransportFactory({ fetchImpl })],
  cardResolver: new DefaultAgentCardResolver({ fetchImpl }),
});
const client = await factory.createFromUrl(`${address}/a2a/helper/`);

function makeMessage(content, fields = {}) {
  const part =
    typeof content === "string"
      ? { $case: "text", value: content }
      : { $case: "data", value: content };
  return {
    messageId: crypto.randomUUID(),
    role: 1,
    parts: [{ content: part, metadata: undefined, filename: "", mediaType: "" }],
    contextId: "",
    taskId: "",
    metadata: undefined,
    extensions: [],
    referenceTaskIds: [],
    ...fields,
  };
}

// A task as a client puts it together from what it is told.
class SeenTask {
  task = null;
  text = "";
  states = [];
  calls = [];

  take({ payload }) {
    switch (payload.$case) {
      case "task":
        this.task = payload.value;
        this.states.push(TaskState[payload.value.status.state]);
        this.text = payload.value.artifacts[0]?.parts[0].content.value ?? "";
        break;
      case "artifactUpdate": {
        const piece = payload.value.artifact.parts[0].content.value;
        this.text = payload.value.append ? this.text + piece : piece;
        break;
      }
      case "statusUpdate": {
        const { status } = payload.value;
        this.states.push(TaskState[status.state]);
        this.task = { ...this.task, status };
        const data = status.message?.parts[1]?.content.value;
        if (data?.call) this.calls.push(`${data.call.name} ${data.call.state}`);
        break;
      }
    }
  }

  describe(more = {}) {
    const { states, text, calls, task } = this;
    const message = (task.status.message?.parts ?? []).map((part) => part.content.value);
    return { state: states.at(-1), states, text, calls, message, metadata: task.metadata, ...more };
  }
}

async function send(message, configuration) {
  const seen = new SeenTask();
  if (mode === "plain") {
    const value = await client.sendMessage({ message, configuration });
    seen.take({ payload: { $case: "task", value } });
  } else {
    for await (const item of client.sendMessageStream({ message, configuration })) seen.take(item);
  }
  return seen;
}

async function answer(content) {
  const asked = await send(makeMessage("Send it."));
  const done = await send(makeMessage(content, { taskId: asked.task.id }));
  return done.describe({ asked: asked.describe() });
}

async function failing(work) {
  try {
    await work();
    return { name: "none" };
  } catch (error) {
    const cause = error.cause ?? error;
    return { name: cause.name, message: cause.message };
  }
}

const scenes = {
  async text() {
    const first = await send(makeMessage("Hello."));
    const { contextId, id } = first.task;
    const second = await send(makeMessage("Recall.", { contextId }));
    const read = await client.getTask({ id, historyLength: undefined, tenant: "" });
    return second.describe({ first: first.describe(), history: read.history.length });
  },
  async tools() {
    return (await send(makeMessage("Add."))).describe();
  },
  async approve() {
    return answer({ approved: true });
  },
  async deny() {
    return answer("no");
  },
  async cancel() {
    const message = makeMessage("Wait.");
    const begun = await client.sendMessage({ message, configuration: { returnImmediately: true } });
    const seen = new SeenTask();
    seen.take({ payload: { $case: "task", value: begun } });
    const reading = (async () => {
      if (mode === "plain") return;
      const items = client.resubscribeTask({ id: begun.id, tenant: "" });
      for await (const item of items) seen.take(item);
    })();
    await new Promise((done) => setTimeout(done, 300));
    const ended = await client.cancelTask({ id: begun.id, tenant: "", metadata: undefined });
    await reading;
    if (mode === "plain") seen.take({ payload: { $case: "task", value: ended } });
    const again = await failing(() =>
      client.cancelTask({ id: begun.id, tenant: "", metadata: undefined }),
    );
    return seen.describe({ ended: TaskState[ended.status.state], again });
  },
  async reconnect() {
    const stopper = new AbortController();
    const seen = new SeenTask();
    try {
      const params = { message: makeMessage("Count.") };
      for await (const item of client.sendMessageStream(params, { signal: stopper.signal })) {
        seen.take(item);
        if (seen.text) stopper.abort();
      }
    } catch (error) {
      if (!stopper.signal.aborted) throw error;
    }
    const before = seen.text;
    const back = new SeenTask();
    const items = client.resubscribeTask({ id: seen.task.id, tenant: "" });
    for await (const item of items) back.take(item);
    const late = await failing(async () => {
      for await (const _ of client.resubscribeTask({ id: seen.task.id, tenant: "" }));
    });
    return back.describe({ before, late });
  },
  async error() {
    const failed = await send(makeMessage("Fail."));
    const missing = await failing(() => client.getTask({ id: "nothing#1", tenant: "" }));
    const ended = await failing(() => send(makeMessage("More.", { taskId: failed.task.id })));
    return failed.describe({ missing, ended });
  },
};

process.stdout.write(`${JSON.stringify(await scenes[scene]())}\n`);
