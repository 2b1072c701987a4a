"""What a caller hands in, checked before anything is written: prompts and trusted context."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypedDict, get_args, runtime_checkable

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.messages import Content, Label, Text
from windlass.core.suggestions import did_you_mean

LABELS: tuple[str, ...] = get_args(Label)
Prompt = str | Sequence[Content]


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


class Checked(TypedDict):
    """The same, whole and sound."""

    caller: str
    context: Mapping[str, Any]
    pinned: bool
    labels: tuple[Label, ...]


def checked(options: RunOptions) -> Checked:
    labels = tuple(options.get("labels", ()))
    for label in labels:
        if label not in LABELS:
            raise ConfigError(f"{label!r} is no label.{did_you_mean(label, LABELS)}")
    return Checked(
        caller=str(options.get("caller", "")),
        context=plain(options.get("context") or {}),
        pinned=bool(options.get("pinned", False)),
        labels=labels,
    )


@runtime_checkable
class Choosy(Protocol):
    """A model that knows beforehand what it cannot take."""

    def refusal(self, parts: Sequence[Content]) -> str | None: ...


def presentable(prompt: Sequence[Content]) -> tuple[Content, ...]:
    """Refuse a prompt that no journal could keep or no model could be shown."""
    try:
        parts = tuple(prompt)
        msgspec.convert(msgspec.to_builtins(parts), type=tuple[Content, ...])
        msgspec.json.encode(parts)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the prompt is neither text nor parts: {error}") from None
    if not any(not isinstance(part, Text) or part.text.strip() for part in parts):
        raise ConfigError("the prompt is empty")
    return parts


def plain(context: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse what no journal could keep."""
    try:
        return msgspec.json.decode(msgspec.json.encode(context), type=dict[str, Any])
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"context=…: it is no plain data: {error}") from None
