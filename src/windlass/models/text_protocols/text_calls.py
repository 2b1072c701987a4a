"""Calls in plain text, for models without tools of their own, as Hermes and Qwen write them (P4).

    <tool_call>
    {"name": "read", "arguments": {"path": "a.txt"}}
    </tool_call>

The law: to the model all of it is text, and to the loop nothing of it is. The tools stand in the
system prompt, calls in the model's words, results in the user's; what comes back are the same
pieces as from any other wire. The words are those that such models were trained on, byte for byte.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

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
from windlass.models.dialect import Dialect, ModelOptions, ReplyReader, WireRequest
from windlass.models.fragments import EncodedHistories, HistoryFragment
from windlass.models.openai.chat import OpenAIChat
from windlass.models.openai.chat_history import ChatEncoder
from windlass.models.openai.quirks import ChatQuirks
from windlass.models.text_protocols.plain_calls import PlainCallScan
from windlass.models.text_protocols.scanning import ScanningReader
from windlass.models.text_protocols.text_scan import (
    CALL_END,
    CALL_START,
    INLINE_SIGNATURE,
    THINK_END,
    THINK_START,
    TextScan,
)
from windlass.models.turns import encode_json

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
        block = _TOOLS_PROMPT.format(tools=format_tools(prompt.tools)) + _tool_choice_text(
            prompt.tool_choice
        )
        # A schema would shut out the calls, which are text.
        said = replace(
            prompt, system=append_block(prompt.system, block), tools=(), output_schema=None
        )
        return self._chat.encode_request(said, model, options)

    @override
    def new_reader(self, prompt: Prompt) -> ReplyReader:
        chat = self._chat.new_reader(prompt)
        return ScanningReader(chat, TextScan(), *PlainCallScan.for_prompt(prompt))


def format_tools(tools: Sequence[ToolSpec]) -> str:
    """What each tool is and takes, one to a line."""
    told = (
        {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
        for spec in tools
    )
    return "\n".join(dump_json({"type": "function", "function": spec}) for spec in told)


def append_block(system: str, block: str) -> str:
    """The block at the end of the system prompt."""
    return f"{system}\n\n{block}" if system else block


def dump_json(value: object) -> str:
    """JSON with the spaces that these models know."""
    return json.dumps(value, ensure_ascii=False)


def _tool_choice_text(choice: ToolChoice) -> str:
    """What cannot be forced is asked for."""
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
    """Encodes a history in which calls and results are words."""

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

    def _response_blocks(self, items: Sequence[CallOutcome]) -> Iterator[dict[str, Any]]:
        """All results as one text, as far as they are text."""
        text = ""
        for number, item in enumerate(items):
            text += "\n<tool_response>\n" if number else "<tool_response>\n"
            for part in item.result.content:
                block = self._encode_result_part(part)
                if block["type"] == "text":
                    text += block["text"]
                    continue
                yield {"type": "text", "text": text}
                yield block
                text = ""
            text += "\n</tool_response>"
        yield {"type": "text", "text": text}

    @override
    def _encode_reply(self, reply: AssistantMessage) -> dict[str, Any]:
        native = bool(reply.model) and reply.model == self._model
        message = {"role": "assistant", "content": self._reply_text(reply, native=native)}
        field = self._quirks.thinking_back
        thoughts = "".join(
            part.text
            for part in reply.parts
            if isinstance(part, ThinkingPart) and part.signature != INLINE_SIGNATURE
        )
        return message | {field: thoughts} if native and field and thoughts else message

    def _reply_text(self, reply: AssistantMessage, *, native: bool) -> str:
        raise NotImplementedError


class TextCallEncoder(TextHistoryEncoder):
    """Encodes one history for one model."""

    @override
    def _reply_text(self, reply: AssistantMessage, *, native: bool) -> str:
        said = ""
        for part in reply.parts:
            match part:
                case TextPart(text):
                    said += text
                case ThinkingPart(text, signature) if native and signature == INLINE_SIGNATURE:
                    said += THINK_START + text + THINK_END
                case ThinkingPart():
                    pass
                case ToolCall():
                    said += "" if not said or said.endswith("\n") else "\n"
                    said += f"{CALL_START}\n{format_call(part)}\n{CALL_END}"
        return said


def format_call(call: ToolCall) -> str:
    """A call as the model is to write it; arguments that are JSON stand as they are."""
    text = call.arguments or "{}"
    arguments = text if isinstance(read_strict(text), ReadJson) else dump_json(text)
    return f'{{"name": {dump_json(call.name)}, "arguments": {arguments}}}'


class TextHistoryChat(OpenAIChat):
    """The dialect of chat completions with a history of this encoder's."""

    def __init__(
        self,
        quirks: ChatQuirks,
        vendor: str,
        encoder: Callable[[ChatQuirks, str, str], ChatEncoder],
    ) -> None:
        super().__init__(quirks, vendor)
        self._history = EncodedHistories(partial(encoder, quirks, vendor))
