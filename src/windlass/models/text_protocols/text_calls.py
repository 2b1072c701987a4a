"""Tool calls as text, in the format of Hermes and Qwen, for models without native calls.

    <tool_call>
    {"name": "read", "arguments": {"path": "a.txt"}}
    </tool_call>

Invariant: for the model everything is text, and for the loop none of it is. The tools are in the
system prompt, calls in the model's text, results in the user's; the reader returns the same pieces
as that of any other dialect. The prompt is byte for byte the one that such models were trained on.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from typing_extensions import override

from windlass.core.json_repair.strict import ReadJson, read_strict
from windlass.core.messages import (
    AssistantMessage,
    CallOutcome,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResults,
    ToolSpec,
    UserMessage,
)
from windlass.core.setup import ToolChoice
from windlass.core.view import Prompt
from windlass.models.dialect import Dialect, ReplyReader, WireRequest
from windlass.models.encoding import JsonObject, encode_json, is_native
from windlass.models.fragments import EncodedHistories, HistoryFragment
from windlass.models.openai.chat import ChatEncoder, OpenAIChat
from windlass.models.options import ModelOptions
from windlass.models.text_protocols.found_calls import (
    FENCED_TEXT_ORIGIN,
    PLAIN_TEXT_ORIGIN,
    TEXT_ORIGINS,
)
from windlass.models.text_protocols.plain_calls import NativeCalls, PlainCallScan
from windlass.models.text_protocols.scanning import ScanningReader
from windlass.models.text_protocols.text_scan import (
    CALL_END,
    CALL_START,
    INLINE_SIGNATURE,
    THINK_END,
    THINK_START,
    TextScan,
)
from windlass.models.vendors import ChatQuirks

_TOOLS_PROMPT = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""


class TextCalls(Dialect):
    """Chat completions with the tools in the text."""

    def __init__(self, quirks: ChatQuirks, vendor: str) -> None:
        self._chat = TextHistoryChat(quirks, vendor, TextCallEncoder)

    @override
    def encode_request(self, prompt: Prompt, model: str, options: ModelOptions) -> WireRequest:
        if not prompt.tools:
            return self._chat.encode_request(prompt, model, options)
        block = _TOOLS_PROMPT.format(tools=format_tools(prompt.tools))
        block += tool_choice_text(prompt.tool_choice)
        system = append_block(prompt.system, block)
        # An enforced schema would rule out the calls, because they are text.
        text_prompt = replace(prompt, system=system, tools=(), output_schema=None)
        return self._chat.encode_request(text_prompt, model, options)

    @override
    def new_reader(self, prompt: Prompt) -> ReplyReader:
        chat = self._chat.new_reader(prompt)
        return ScanningReader(chat, TextScan(), *PlainCallScan.for_prompt(prompt, anywhere=True))


class WordyNativeCalls(NativeCalls):
    """Native tool calls, for small models that often write their calls among their words."""

    def __init__(self, quirks: ChatQuirks, vendor: str) -> None:
        super().__init__(quirks, vendor)
        self._chat = TextHistoryChat(quirks, vendor, WrittenHistoryEncoder)


def format_tools(tools: Sequence[ToolSpec]) -> str:
    """Return the signature of each tool as JSON, one to a line."""
    functions = (
        {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
        for spec in tools
    )
    return "\n".join(
        dump_json({"type": "function", "function": function}) for function in functions
    )


def append_block(system: str, block: str) -> str:
    """Append a block to the system prompt."""
    return f"{system}\n\n{block}" if system else block


def dump_json(value: object) -> str:
    """Return JSON with a space behind colons and commas, as these models were trained on it."""
    return json.dumps(value, ensure_ascii=False)


def tool_choice_text(choice: ToolChoice) -> str:
    """Ask the model for a tool choice, since the server cannot enforce it."""
    match choice:
        case "auto":
            return ""
        case "none":
            return "\n\nCall no function now: answer with what you have."
        case "required":
            return "\n\nYou must call a function now."
        case name:
            return f"\n\nYou must call the function {name} now."


class TextHistoryEncoder(ChatEncoder):
    """Encodes a history in which calls and results are text."""

    @override
    def encode_message(self, message: Message) -> Iterable[HistoryFragment]:
        match message:
            case UserMessage():
                return super().encode_message(message)
            case AssistantMessage():
                self._open_content = None
                return [HistoryFragment(encode_json(self._encode_reply(message)))]
            case ToolResults(items):
                return list(self._user_fragments(list(self._response_blocks(items))))

    def _response_blocks(self, items: Sequence[CallOutcome]) -> Iterator[JsonObject]:
        """Return all results as one text, interrupted only by images and files."""
        text = ""
        for number, item in enumerate(items):
            text += "\n<tool_response>\n" if number else "<tool_response>\n"
            for block in self._content.encode_result(item.result.content):
                if block["type"] == "text":
                    text += block["text"]
                    continue
                yield {"type": "text", "text": text}
                yield block
                text = ""
            text += "\n</tool_response>"
        yield {"type": "text", "text": text}

    @override
    def _encode_reply(self, reply: AssistantMessage) -> JsonObject:
        native = is_native(reply, self._model)
        message: JsonObject = {
            "role": "assistant",
            "content": self._reply_text(reply, native=native),
        }
        thoughts = "".join(
            part.text
            for part in reply.parts
            if isinstance(part, ThinkingPart) and part.signature != INLINE_SIGNATURE
        )
        if native and thoughts and self._quirks.thinking_back:
            message[self._quirks.thinking_back] = thoughts
        return message

    def _reply_text(self, reply: AssistantMessage, *, native: bool) -> str:
        raise NotImplementedError


class TextCallEncoder(TextHistoryEncoder):
    """Encodes one history for one model, with calls in `<tool_call>` markers.

    A call that the model wrote in another form goes back in that form: a model that sees its own
    words changed begins to mix both forms.
    """

    @override
    def _reply_text(self, reply: AssistantMessage, *, native: bool) -> str:
        content = ""
        for part in reply.parts:
            match part:
                case TextPart(text):
                    content += text
                case ThinkingPart(text, signature) if native and signature == INLINE_SIGNATURE:
                    content += THINK_START + text + THINK_END
                case ThinkingPart():
                    pass
                case ToolCall():
                    if content and not content.endswith("\n"):
                        content += "\n"
                    content += _format_written_call(part)
        return content


class WrittenHistoryEncoder(TextCallEncoder):
    """Encodes native calls natively, and calls that the model wrote as text as that text.

    Their results are text as well, in the form that such models were trained on.
    """

    @override
    def encode_message(self, message: Message) -> Iterable[HistoryFragment]:
        calls: Sequence[ToolCall] = ()
        if isinstance(message, AssistantMessage):
            calls = message.calls
        elif isinstance(message, ToolResults):
            calls = [item.call for item in message.items]
        if not _are_written(calls):
            return super(TextHistoryEncoder, self).encode_message(message)
        self._after_results = False
        return super().encode_message(message)

    @override
    def _encode_reply(self, reply: AssistantMessage) -> JsonObject:
        if _are_written(reply.calls):
            return super()._encode_reply(reply)
        return super(TextHistoryEncoder, self)._encode_reply(reply)


def _are_written(calls: Sequence[ToolCall]) -> bool:
    """Whether there are calls, and the model wrote all of them as text."""
    return bool(calls) and all(call.origin in TEXT_ORIGINS for call in calls)


def _format_written_call(call: ToolCall) -> str:
    """Return a call in the form in which the model wrote it."""
    match call.origin:
        case origin if origin == PLAIN_TEXT_ORIGIN:
            return format_call(call)
        case origin if origin == FENCED_TEXT_ORIGIN:
            return f"```json\n{format_call(call)}\n```"
        case _:
            return f"{CALL_START}\n{format_call(call, in_trained_form=True)}\n{CALL_END}"


def format_call(call: ToolCall, *, in_trained_form: bool = False) -> str:
    """Return a call as the model is to write it. Arguments that are JSON stay as they are.

    `in_trained_form`: they get the white space that chat templates give them.
    """
    text = call.arguments or "{}"
    match read_strict(text):
        case ReadJson(value) if in_trained_form:
            arguments = dump_json(value)
        case ReadJson():
            arguments = text
        case _:
            arguments = dump_json(text)
    return f'{{"name": {dump_json(call.name)}, "arguments": {arguments}}}'


class TextHistoryChat(OpenAIChat):
    """Chat completions with another encoder of the history."""

    def __init__(
        self,
        quirks: ChatQuirks,
        vendor: str,
        new_encoder: Callable[[ChatQuirks, str, str], ChatEncoder],
    ) -> None:
        super().__init__(quirks, vendor)
        self._histories = EncodedHistories(partial(new_encoder, quirks, vendor))
