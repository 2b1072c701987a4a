"""A conversation from elsewhere, as the messages that a new session begins with.

Messages may be Windlass' own, or dicts as OpenAI's chat completions and Anthropic's messages write
them. Both kinds of dict can be distinguished block by block, so the caller does not have to name
the format.

Invariant: the result is a conversation that every provider accepts. Anything else is refused, with
the index of the message and what to do. Nothing is left out silently.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from windlass.agent.chat_json import MessageFault, read_chat_message
from windlass.agent.options import EarlierMessage
from windlass.core.errors import ConfigError
from windlass.core.fold.calls import call_as_run
from windlass.core.messages import (
    AssistantMessage,
    CallOutcome,
    Message,
    TextPart,
    ToolCall,
    ToolResult,
    ToolResults,
    UserMessage,
)
from windlass.core.secrets.mask import Mask
from windlass.core.setup import Setup
from windlass.core.state import CallState
from windlass.core.transcript import find_conversation_fault

_to_builtins = msgspec.to_builtins


def read_messages(
    messages: Sequence[EarlierMessage], setup: Setup, mask: Mask
) -> tuple[Message, ...]:
    """Return the messages as a session records them. Raises ConfigError for those it cannot."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance] - users need not check types
        raise ConfigError(
            f"messages must be a list of messages, not a {type(messages).__name__}; "
            "JSON text has to be decoded first, as with json.loads"
        )
    reader = _ConversationReader(setup, mask)
    for at, message in enumerate(messages):
        try:
            reader.add_message(message)
        except MessageFault as fault:
            raise ConfigError(f"messages[{at}]: {fault}") from None
    return reader.finish()


class _ConversationReader:
    """Puts messages into the form of a transcript: each call with an id, its result next to it."""

    def __init__(self, setup: Setup, mask: Mask) -> None:
        self._setup = setup
        self._mask = mask
        self._models = (setup.model.name, *(model.name for model in setup.fallbacks))
        self._messages: list[Message] = []
        self._open_calls: dict[str, ToolCall] = {}
        """The calls of the last reply, by the ids that they came with."""
        self._results: dict[str, ToolResult] = {}
        self._calls_seen = 0

    def add_message(self, message: object) -> None:
        """Add the next message. Raises MessageFault."""
        for own in _read_message(message):
            match own:
                case UserMessage():
                    if self._open_calls:
                        raise MessageFault(f"before it, {self._describe_open_calls()}")
                    parts = tuple(part for part in own.parts if not _is_blank(part))
                    if not parts:
                        raise MessageFault("it is empty; leave it out")
                    self._messages.append(replace(own, parts=parts))
                case AssistantMessage():
                    self._add_reply(own)
                case ToolResults():
                    for item in own.items:
                        self._add_result(item.call.id, item.result)

    def finish(self) -> tuple[Message, ...]:
        """Return the whole conversation. Raises ConfigError if it cannot be used."""
        messages = tuple(self._messages)
        if self._open_calls:
            fault = f"at the end, {self._describe_open_calls()}"
        else:
            fault = find_conversation_fault(messages)
        if fault is None:
            fault = _find_encoding_fault(messages)
        if fault is not None:
            raise ConfigError(f"messages=…: {fault}")
        return messages

    def _describe_open_calls(self) -> str:
        missing = [
            f"{call.name} ({given_id})"
            for given_id, call in self._open_calls.items()
            if given_id not in self._results
        ]
        return (
            f"these calls have no result: {', '.join(missing)}. "
            "Add the results, or leave the calls out"
        )

    def _add_reply(self, message: AssistantMessage) -> None:
        if self._open_calls:
            raise MessageFault(f"before it, {self._describe_open_calls()}")
        if not self._messages:
            raise MessageFault("the first message must be from the user: most models demand it")
        parts = tuple(
            self._adopt_call(part) if isinstance(part, ToolCall) else part
            for part in message.parts
            if not _is_blank(part)
        )
        model = self._find_model(message.model)
        reply = AssistantMessage(parts, model)
        if not reply.calls and not reply.text:
            raise MessageFault("it has neither text nor calls; leave it out")
        self._messages.append(reply)

    def _adopt_call(self, call: ToolCall) -> ToolCall:
        """Return a call with an id of this session and with arguments that can be read."""
        if call.id in self._open_calls:
            raise MessageFault(f"two of its calls have the id {call.id!r}")
        self._calls_seen += 1
        name = call.name
        if self._setup.find_tool(name) is None:
            name = self._mask.mask_text(name)
        adopted = replace(
            call,
            id=f"e{self._calls_seen}",
            name=name,
            # Masked before it is read: what a mask makes unreadable is marked as such.
            arguments=self._mask.mask_text(call.arguments),
            provider_id=call.provider_id or call.id,
        )
        adopted = call_as_run(CallState(adopted))
        self._open_calls[call.id] = adopted
        return adopted

    def _find_model(self, name: str) -> str:
        """Return the full name of the model that wrote a reply, if it is one of this agent's."""
        # Only a model itself gets its thinking back, so it has to be recognized.
        full = [model for model in self._models if name and model.endswith(f":{name}")]
        return full[0] if full else name

    def _add_result(self, given_id: str, result: ToolResult) -> None:
        if given_id not in self._open_calls:
            raise MessageFault(
                f"it has a result for {given_id!r}, which is not a call of the reply before it"
            )
        if given_id in self._results:
            raise MessageFault(f"the call {given_id!r} has a result already")
        self._results[given_id] = result
        if len(self._results) < len(self._open_calls):
            return
        outcomes = [CallOutcome(call, self._results[key]) for key, call in self._open_calls.items()]
        self._messages.append(ToolResults(tuple(outcomes)))
        self._open_calls = {}
        self._results = {}


def _read_message(message: object) -> Iterator[Message]:
    """Yield a message of the caller as messages of ours. Raises MessageFault."""
    if isinstance(message, UserMessage | AssistantMessage | ToolResults):
        yield message
        return
    # Clients of the vendors return objects that pydantic made.
    dump = getattr(message, "model_dump", None)
    if callable(dump):
        message = dump(exclude_none=True)
    if not isinstance(message, Mapping):
        kind = type(message).__name__
        raise MessageFault(f"{kind} is not a message; pass a dict with a role and a content")
    yield from read_chat_message(cast("Mapping[str, Any]", message))


def _is_blank(part: object) -> bool:
    return isinstance(part, TextPart) and not part.text.strip()


def _find_encoding_fault(messages: tuple[Message, ...]) -> str | None:
    """Return why messages cannot be recorded, such as half of a surrogate pair; else None."""
    try:
        msgspec.convert(_to_builtins(messages), type=tuple[Message, ...])
        msgspec.json.encode(messages)
    except (TypeError, ValueError, RecursionError) as error:
        return f"they cannot be recorded: {error}"
    return None
