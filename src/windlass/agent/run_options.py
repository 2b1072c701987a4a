"""What a caller hands in, checked before anything is written: prompts and trusted context."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypedDict, get_args, runtime_checkable

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.messages import ContentPart, Label, TextPart
from windlass.core.suggestions import suggest_names

LABELS: tuple[str, ...] = get_args(Label)
Prompt = str | Sequence[ContentPart]


class RunOptions(TypedDict, total=False):
    """What may be said about one run."""

    caller: str
    """On whose behalf it is; for the gate and for instructions that are a function."""
    context: Mapping[str, Any]
    """What the gate may rely on: no model and no tool can write it."""
    pinned: bool
    """The prompt stays in view, however long the session grows."""
    labels: Sequence[Label]
    """What the prompt brings along: `untrusted` text, `private` data."""


class CheckedRunOptions(TypedDict):
    """The same, whole and sound."""

    caller: str
    context: Mapping[str, Any]
    pinned: bool
    labels: tuple[Label, ...]


def check_run_options(options: RunOptions) -> CheckedRunOptions:
    labels = tuple(options.get("labels", ()))
    for label in labels:
        if label not in LABELS:
            raise ConfigError(f"{label!r} is no label.{suggest_names(label, LABELS)}")
    return CheckedRunOptions(
        caller=str(options.get("caller", "")),
        context=check_context(options.get("context") or {}),
        pinned=bool(options.get("pinned", False)),
        labels=labels,
    )


@runtime_checkable
class RefusesContent(Protocol):
    """A model that knows beforehand what it cannot take."""

    def refusal(self, parts: Sequence[ContentPart]) -> str | None: ...


def check_prompt(prompt: Sequence[ContentPart]) -> tuple[ContentPart, ...]:
    """Refuse a prompt that no journal could keep or no model could be shown."""
    try:
        parts = tuple(prompt)
        msgspec.convert(msgspec.to_builtins(parts), type=tuple[ContentPart, ...])
        msgspec.json.encode(parts)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the prompt is neither text nor parts: {error}") from None
    if not any(not isinstance(part, TextPart) or part.text.strip() for part in parts):
        raise ConfigError("the prompt is empty")
    return parts


def check_context(context: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse what no journal could keep."""
    try:
        return msgspec.json.decode(msgspec.json.encode(context), type=dict[str, Any])
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"context=…: it is no plain data: {error}") from None
