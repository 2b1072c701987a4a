/** Server-sent events by `fetch`, because an `EventSource` can send no header. */

/**
 * Call a function with each event of a stream. Returns when the stream has ended.
 * @param {ReadableStream<Uint8Array>} body
 * @param {(name: string, data: string) => void} act
 */
export async function readEvents(body, act) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    // What came before was searched: only its last character may begin the end of a frame.
    let searched = Math.max(0, text.length - 1);
    let begin = 0;
    text += decoder.decode(value, { stream: true });
    for (let end = text.indexOf("\n\n", searched); end >= 0; end = text.indexOf("\n\n", searched)) {
      readFrame(text.slice(begin, end), act);
      begin = end + 2;
      searched = begin;
    }
    text = text.slice(begin);
  }
}

/** @param {string} frame @param {(name: string, data: string) => void} act */
function readFrame(frame, act) {
  let name = "message";
  /** @type {string[]} */
  const data = [];
  for (const line of frame.split("\n")) {
    const at = line.indexOf(":");
    const value = line.slice(at + 1).replace(/^ /, "");
    if (line.startsWith("event:")) name = value;
    else if (line.startsWith("data:")) data.push(value);
  }
  if (data.length) act(name, data.join("\n"));
}
