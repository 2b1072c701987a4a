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

from windlass.core.json_repair.strict import Read, strict
from windlass.core.messages import (
    Assistant,
    CallResult,
    Message,
    Results,
    Text,
    Thinking,
    ToolCall,
    ToolSpec,
    User,
)
from windlass.core.setup import ToolChoice
from windlass.core.view import Prompt
from windlass.models.dialect import Dialect, Options, Reader, WireRequest
from windlass.models.fragments import Fragment, Fragments
from windlass.models.openai.chat import OpenAIChat
from windlass.models.openai.chat_history import ChatEncoder
from windlass.models.openai.quirks import Quirks
from windlass.models.text_protocols.plain_calls import PlainScan
from windlass.models.text_protocols.scanning import ScanningReader
from windlass.models.text_protocols.text_scan import (
    CALL,
    CALL_END,
    INLINE,
    THINK,
    THINK_END,
    TextScan,
)
from windlass.models.turns import encode

_TOOLS = """\
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

    def __init__(self, quirks: Quirks, vendor: str) -> None:
        self._chat = Spoken(quirks, vendor, TextEncoder)

    @override
    def encode(self, prompt: Prompt, model: str, options: Options) -> WireRequest:
        if not prompt.tools:
            return self._chat.encode(prompt, model, options)
        block = _TOOLS.format(tools=signatures(prompt.tools)) + _choice(prompt.tool_choice)
        # A schema would shut out the calls, which are text.
        said = replace(prompt, system=below(prompt.system, block), tools=(), output_schema=None)
        return self._chat.encode(said, model, options)

    @override
    def reader(self, prompt: Prompt) -> Reader:
        chat = self._chat.reader(prompt)
        return ScanningReader(chat, TextScan(), *PlainScan.where_due(prompt))


def signatures(tools: Sequence[ToolSpec]) -> str:
    """What each tool is and takes, one to a line."""
    told = (
        {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
        for spec in tools
    )
    return "\n".join(dumped({"type": "function", "function": spec}) for spec in told)


def below(system: str, block: str) -> str:
    """The block at the end of the system prompt."""
    return f"{system}\n\n{block}" if system else block


def dumped(value: object) -> str:
    """JSON with the spaces that these models know."""
    return json.dumps(value, ensure_ascii=False)


def _choice(choice: ToolChoice) -> str:
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


class SpokenEncoder(ChatEncoder):
    """Encodes a history in which calls and results are words."""

    @override
    def add(self, message: Message) -> Iterable[Fragment]:
        match message:
            case User():
                return super().add(message)
            case Assistant():
                self._open = None
                return [Fragment(encode(self._assistant(message)))]
            case Results(items):
                return list(self._user(list(self._responses(items))))

    def _responses(self, items: Sequence[CallResult]) -> Iterator[dict[str, Any]]:
        """All results as one text, as far as they are text."""
        text = ""
        for number, item in enumerate(items):
            text += "\n<tool_response>\n" if number else "<tool_response>\n"
            for part in item.result.content:
                block = self._shown(part)
                if block["type"] == "text":
                    text += block["text"]
                    continue
                yield {"type": "text", "text": text}
                yield block
                text = ""
            text += "\n</tool_response>"
        yield {"type": "text", "text": text}

    @override
    def _assistant(self, reply: Assistant) -> dict[str, Any]:
        native = bool(reply.model) and reply.model == self._model
        message = {"role": "assistant", "content": self._said(reply, native=native)}
        field = self._quirks.thinking_back
        thoughts = "".join(
            part.text
            for part in reply.parts
            if isinstance(part, Thinking) and part.signature != INLINE
        )
        return message | {field: thoughts} if native and field and thoughts else message

    def _said(self, reply: Assistant, *, native: bool) -> str:
        raise NotImplementedError


class TextEncoder(SpokenEncoder):
    """Encodes one history for one model."""

    @override
    def _said(self, reply: Assistant, *, native: bool) -> str:
        said = ""
        for part in reply.parts:
            match part:
                case Text(text):
                    said += text
                case Thinking(text, signature) if native and signature == INLINE:
                    said += THINK + text + THINK_END
                case Thinking():
                    pass
                case ToolCall():
                    said += "" if not said or said.endswith("\n") else "\n"
                    said += f"{CALL}\n{call_text(part)}\n{CALL_END}"
        return said


def call_text(call: ToolCall) -> str:
    """A call as the model is to write it; arguments that are JSON stand as they are."""
    text = call.arguments or "{}"
    arguments = text if isinstance(strict(text), Read) else dumped(text)
    return f'{{"name": {dumped(call.name)}, "arguments": {arguments}}}'


class Spoken(OpenAIChat):
    """The dialect of chat completions with a history of this encoder's."""

    def __init__(
        self, quirks: Quirks, vendor: str, encoder: Callable[[Quirks, str, str], ChatEncoder]
    ) -> None:
        super().__init__(quirks, vendor)
        self._history = Fragments(partial(encoder, quirks, vendor))
