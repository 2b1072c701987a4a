// Plays one scene with the AI SDK against a service, and prints what came of it as JSON.
//
// node openai.mjs ADDRESS TOKEN PROVIDER SCENE, where PROVIDER is `chat` or `responses` of
// @ai-sdk/openai, or `compatible`.

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";

const [address, token, provider, scene] = process.argv.slice(2);
const settings = { baseURL: `${address}/v1`, apiKey: token };
const PIXEL = "iVBORw0KGgo=";

function chooseModel() {
  switch (provider) {
    case "chat":
      return createOpenAI(settings).chat("helper");
    case "responses":
      return createOpenAI(settings).responses("helper");
    default:
      return createOpenAICompatible({ ...settings, name: "windlass", includeUsage: true })("helper");
  }
}

const model = chooseModel();

async function readStream(options) {
  const errors = [];
  const result = streamText({ model, onError: ({ error }) => errors.push(error), ...options });
  const pieces = [];
  for await (const part of result.fullStream) {
    if (part.type === "text-delta") pieces.push(part.text);
  }
  return { result, pieces, errors };
}

function describeError(error) {
  // What the SDK repeats is wrapped; what it does not repeat is not.
  const last = error.lastError ?? error;
  const body = last.responseBody ?? last.data ?? null;
  return {
    name: last.name,
    status: last.statusCode ?? null,
    isRetryable: last.isRetryable ?? null,
    body: typeof body === "string" ? JSON.parse(body) : body,
    message: String(last.message),
  };
}

const scenes = {
  async text() {
    const { text, usage, finishReason } = await generateText({ model, prompt: "Hello." });
    return { text, tokens: usage.totalTokens, finishReason };
  },
  async stream() {
    const { result, pieces } = await readStream({ prompt: "Count." });
    const usage = await result.usage;
    const finishReason = await result.finishReason;
    return { text: pieces.join(""), pieces: pieces.length, tokens: usage.totalTokens, finishReason };
  },
  async tools() {
    const { text, toolCalls } = await generateText({ model, prompt: "Add them." });
    const { pieces } = await readStream({ prompt: "Add them." });
    return { text, toolCalls, streamed: pieces.join("") };
  },
  async image() {
    const image = { type: "file", mediaType: "image/png", data: PIXEL };
    const content = [{ type: "text", text: "Look." }, image];
    const { text } = await generateText({ model, messages: [{ role: "user", content }] });
    return { text };
  },
  async conversation() {
    const messages = [{ role: "user", content: "My name is Ann." }];
    const first = await generateText({ model, system: "Be kind.", messages });
    messages.push(...first.response.messages, { role: "user", content: "Recall it." });
    const second = await generateText({ model, system: "Be kind.", messages });
    return { text: second.text };
  },
  async previous() {
    const first = await generateText({ model, prompt: "Apples." });
    const previousResponseId = first.providerMetadata.openai.responseId;
    const providerOptions = { openai: { previousResponseId } };
    const second = await generateText({ model, prompt: "Recall.", providerOptions });
    return { text: second.text };
  },
  async approval() {
    try {
      await generateText({ model, prompt: "Send it." });
    } catch (error) {
      return describeError(error);
    }
    return null;
  },
  async streamedApproval() {
    const { errors } = await readStream({ prompt: "Send it." });
    return { errors: errors.map((error) => JSON.stringify(error.message ?? error)) };
  },
  async waiting() {
    const providerOptions = { windlass: { windlass: { on_question: "wait" } } };
    const { text } = await generateText({ model, prompt: "Send it.", providerOptions });
    return { text };
  },
  async cancel() {
    const leaving = new AbortController();
    const result = streamText({ model, prompt: "Wait.", abortSignal: leaving.signal });
    for await (const part of result.fullStream) {
      if (part.type === "text-delta") leaving.abort();
    }
    return {};
  },
  async broken() {
    const { pieces, errors } = await readStream({ prompt: "Break." });
    return { text: pieces.join(""), errors: errors.map((error) => String(error.message ?? error)) };
  },
  async streamedFailure() {
    const { errors } = await readStream({ prompt: "Fail." });
    return { errors: errors.map(describeError) };
  },
  async failure() {
    try {
      await generateText({ model, prompt: "Fail." });
    } catch (error) {
      return describeError(error);
    }
    return null;
  },
  // The SDK has no call for this: its own stream is left, and another connection goes on.
  async reconnect() {
    const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
    const body = { model: "helper", input: "Count.", background: true, stream: true };
    const path = `${address}/v1/responses`;
    const first = await fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
    const seen = await readEvents(first, 7);
    const { id } = seen[0].response;
    const after = seen.at(-1).sequence_number;
    await new Promise((resolve) => setTimeout(resolve, 250));
    const query = `stream=true&starting_after=${after}`;
    const rest = await readEvents(await fetch(`${path}/${id}?${query}`, { headers }), Infinity);
    const all = [...seen, ...rest];
    const deltas = all.filter((event) => event.type === "response.output_text.delta");
    const numbers = all.map((event) => event.sequence_number);
    return {
      text: deltas.map((event) => event.delta).join(""),
      last: all.at(-1).type,
      isOrdered: numbers.every((number, at) => at === 0 || numbers[at - 1] < number),
    };
  },
};

async function readEvents(response, most) {
  const events = [];
  let buffer = "";
  for await (const bytes of response.body.pipeThrough(new TextDecoderStream())) {
    buffer += bytes;
    const frames = buffer.split("\n\n");
    buffer = frames.pop();
    for (const frame of frames) {
      const data = frame.split("\n").find((line) => line.startsWith("data: "));
      if (data) events.push(JSON.parse(data.slice("data: ".length)));
      if (events.length >= most) return events;
    }
  }
  return events;
}

console.log(JSON.stringify(await scenes[scene]()));
process.exit(0);
