"""Mask the texts of a fact, with any function that masks a text.

Each fact names its own `masked_fields` (see `core/events.py`); this module knows how the values in
them are masked. Invariant: a fact in which nothing changes is returned as the same object, so that
the common case costs no more than the search in its texts.
"""

import re
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TypeVar, cast, final

import msgspec
from msgspec.structs import replace

from windlass.core.context_facts import UndoneCall
from windlass.core.control_facts import NestedQuestion
from windlass.core.errors import Fault
from windlass.core.events import (
    CallFinished,
    CallJudged,
    CallStarted,
    Fact,
    RunEnded,
    RunStarted,
    StepProposed,
)
from windlass.core.messages import (
    AssistantMessage,
    CallOutcome,
    FilePart,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    ToolResults,
    ToolSpec,
    UserMessage,
)
from windlass.core.setup import Setup
from windlass.core.verdicts import Allow, Ask, Deny, InvalidCall, Modify, OutputMismatch

StructT = TypeVar("StructT", bound=msgspec.Struct)

_STRUCT_FIELDS: dict[type[msgspec.Struct], tuple[str, ...]] = {
    TextPart: ("text",),
    ImagePart: ("url",),
    ToolCall: ("arguments",),
    ToolResult: ("content",),
    UserMessage: ("parts",),
    AssistantMessage: ("parts",),
    ToolResults: ("items",),
    CallOutcome: ("call", "result"),
    Fault: ("message",),
    Setup: ("instructions", "tools", "output_schema"),
    ToolSpec: ("description", "parameters"),
    Allow: ("rule",),
    Deny: ("reason", "rule"),
    Modify: ("arguments", "reason", "rule"),
    Ask: ("question", "rule", "arguments"),
    InvalidCall: ("message",),
    OutputMismatch: ("message",),
    UndoneCall: ("result", "snapshot"),
    NestedQuestion: ("arguments", "question", "rule"),
}
"""The fields that can hold a secret, of each struct that occurs in a masked field of a fact."""
_BETWEEN_TEXTS = "\x1f"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


@final
class FactMask:
    """Masks facts with a function that returns the same text if it has nothing to mask.

    `find_tool` knows the tools of the run. The name of a call is masked unless it is one of them.
    `clean_setup` is known to have no secrets, and is not searched again.
    """

    __slots__ = ("_clean_setup", "_find_tool", "_mask_text")

    def __init__(
        self,
        mask_text: Callable[[str], str],
        find_tool: Callable[[str], ToolSpec | None] | None = None,
        clean_setup: Setup | None = None,
    ) -> None:
        self._mask_text = mask_text
        self._find_tool = find_tool
        self._clean_setup = clean_setup

    def mask_fact(self, fact: Fact) -> Fact:
        """Return the fact without its secrets; the same object if it has none."""
        return self._mask_fields(fact, fact.masked_fields)

    def mask_setup(self, setup: Setup) -> Setup:
        """Return the setup without its secrets, as it will be recorded."""
        return self._mask_fields(setup, _STRUCT_FIELDS[Setup])

    def _mask_fields(self, struct: StructT, names: tuple[str, ...]) -> StructT:
        changed: dict[str, object] = {}
        for name in names:
            value = getattr(struct, name)
            masked = self._mask_value(value)
            if masked is not value:
                changed[name] = masked
        if changed:
            return replace(struct, **changed)
        return struct

    def _mask_value(self, value: object) -> object:
        """Mask a text, a JSON value at any depth, or a struct of a message or a verdict."""
        match value:
            case str():
                return self._mask_text(value)
            case dict():
                return self._mask_dict(cast("dict[str, object]", value))
            case tuple():
                return self._mask_items(cast("tuple[object, ...]", value))
            case list():
                items = cast("list[object]", value)
                masked = self._mask_items(tuple(items))
                if _same_items(masked, items):
                    return items
                return list(masked)
            case ThinkingPart(text):
                masked = self._mask_text(text)
                # The signature vouches for the exact text, so it goes with it.
                if masked is text:
                    return value
                return ThinkingPart(masked)
            case FilePart():
                return self._mask_file(value)
            case ToolCall():
                return self._mask_fields(self._mask_name(value), _STRUCT_FIELDS[ToolCall])
            case msgspec.Struct() if value is not self._clean_setup:
                return self._mask_fields(value, _STRUCT_FIELDS[type(value)])
            case _:
                return value

    def _mask_name(self, call: ToolCall) -> ToolCall:
        """Mask the name of a call that the model made up. It stays a name that providers accept."""
        masked = self._mask_text(call.name)
        if masked is call.name or self._find_tool is None or self._find_tool(call.name) is not None:
            return call
        return replace(call, name=_NOT_IN_NAMES.sub("_", masked).strip("_"))

    def _mask_items(self, items: tuple[object, ...]) -> tuple[object, ...]:
        masked = tuple(self._mask_value(item) for item in items)
        if _same_items(masked, items):
            return items
        return masked

    def _mask_dict(self, fields: dict[str, object]) -> dict[str, object]:
        masked = {self._mask_text(key): self._mask_value(item) for key, item in fields.items()}
        # Two keys may become one, so the number counts as well.
        same = len(masked) == len(fields) and all(
            new is old and masked[new] is fields[old]
            for new, old in zip(masked, fields, strict=True)
        )
        return fields if same else masked

    def _mask_file(self, part: FilePart) -> FilePart:
        part = self._mask_fields(part, ("name", "url"))
        # A caller may write it in capitals, or add the encoding.
        kind = part.media_type.partition(";")[0].strip().lower()
        is_text = kind.startswith("text/") or kind.endswith(("json", "xml", "yaml"))
        if not part.data or not is_text:
            return part
        text = part.data.decode("utf-8", "surrogateescape")
        masked = self._mask_text(text)
        if masked is text:
            return part
        return replace(part, data=masked.encode("utf-8", "surrogateescape"))


def join_texts(fact: Fact, clean_setup: Setup | None = None) -> str | None:
    """Return all texts of a fact that could hold a secret, as one; None if it is not so simple.

    A secret in one of them is a secret in all of them: the texts are joined by a character that no
    secret contains, and that is no part of a word. `clean_setup` is known to have none.
    """
    match fact:
        case RunStarted(prompt=(TextPart(text),), setup=setup, earlier=()) if not fact.context and (
            setup is None or setup is clean_setup
        ):
            return _BETWEEN_TEXTS.join(filter(None, (text, fact.caller, fact.agent)))
        case RunEnded(reason=reason, fault=None, partial=partial, by=by):
            return _BETWEEN_TEXTS.join(filter(None, (reason, partial, by)))
        case StepProposed(reply):
            texts: list[str] = []
            for part in reply.parts:
                if isinstance(part, ToolCall):
                    texts += (part.name, part.arguments)
                else:
                    texts.append(part.text)
            return _BETWEEN_TEXTS.join(texts)
        case CallJudged(verdict=Allow(rule), arguments=None, resource=resource):
            return rule if resource is None else f"{rule}{_BETWEEN_TEXTS}{resource}"
        case CallStarted(snapshot=snapshot):
            return snapshot
        case CallFinished(result=ToolResult(content=(TextPart(text),))):
            return text
        case _:
            return None


def count_prompt_chars(fact: Fact) -> int:
    """Return about how many characters the prompt that opens a run has, with its attachments.

    Messages from elsewhere that a session begins with count too. Any other fact has none.
    """
    if not isinstance(fact, RunStarted):
        return 0
    chars = 0
    for part in chain(fact.prompt, *map(_parts_of, fact.earlier)):
        match part:
            case TextPart(text) | ThinkingPart(text) | ToolCall(arguments=text):
                chars += len(text)
            case FilePart(data=data) if data is not None:
                chars += len(data)
            case _:
                pass
    return chars


def _parts_of(message: Message) -> Sequence[object]:
    if isinstance(message, ToolResults):
        return [part for item in message.items for part in item.result.content]
    return message.parts


def _same_items(masked: tuple[object, ...], items: tuple[object, ...] | list[object]) -> bool:
    return all(new is old for new, old in zip(masked, items, strict=True))
