"""The settings, one by one: what each may be, and in which words it is refused.

One name serves everywhere: `max_usd` in a file is `WINDLASS_MAX_USD` in the environment and
`--max-usd` on the command line.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Literal, TypeAlias, cast

import msgspec

from windlass.core.suggestions import did_you_mean

PermissionMode: TypeAlias = Literal["ask", "read-only", "allow-all"]
ThinkingMode: TypeAlias = Literal["show", "fold", "hide"]

PERMISSION_MODES: tuple[PermissionMode, ...] = ("ask", "read-only", "allow-all")
THINKING_MODES: tuple[ThinkingMode, ...] = ("show", "fold", "hide")
NONE = "none"
"""How a file says that there is no limit: TOML has no null."""
STEPS = 25

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h)?")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_FLAGS = {"true": True, "yes": True, "on": True, "1": True} | {
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All that the command line can be told, from wherever it was told."""

    model: str = ""
    """`provider:model`; empty takes what is at hand."""
    fallbacks: tuple[str, ...] = ()
    instructions: str = ""
    tools: tuple[str, ...] = ("all",)
    permission_mode: PermissionMode = "ask"
    policy: str = ""
    flow_guard: bool = True
    mcp_config: str = ""
    max_steps: int | None = STEPS
    max_usd: Decimal | None = None
    max_tokens: int | None = None
    timeout: float | None = None
    agent: str = ""
    journal: str = ""
    thinking: ThinkingMode = "show"


class Unfit(Exception):
    """A value is not what its key may be; the words say what it may."""


@dataclass(frozen=True, slots=True)
class Key:
    """One setting."""

    read: Callable[[object], object]
    """A value as a file or a variable has it to the value itself; raises Unfit."""
    told: str
    """What it is for, in a line."""
    path: bool = False
    """Names a file, which is meant from where the name was written."""
    of_agent: bool = True
    """May stand in `[agents.NAME]` as well."""


def text(value: object) -> str:
    if not isinstance(value, str):
        raise Unfit('a text, such as "…"')
    return value


def texts(value: object) -> tuple[str, ...]:
    """A list, or one text with commas."""
    if isinstance(value, str):
        return tuple(part for part in (one.strip() for one in value.split(",")) if part)
    items = cast("list[object]", value) if isinstance(value, list | tuple) else [None]
    if not all(isinstance(item, str) for item in items):
        raise Unfit('a list of texts, such as ["a", "b"]')
    return tuple(cast("list[str]", items))


def flag(value: object) -> bool:
    found = _FLAGS.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise Unfit("true or false")
    return found


def count(value: object) -> int | None:
    if value in (None, NONE):
        return None
    given = int(value) if isinstance(value, str) and value.isdecimal() else value
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise Unfit(f'a whole number above zero, or "{NONE}"')
    return given


def money(value: object) -> Decimal | None:
    if value in (None, NONE):
        return None
    try:
        given = Decimal(str(value).removeprefix("$")) if not isinstance(value, bool) else None
    except InvalidOperation:
        given = None
    if given is None or not given.is_finite() or given <= 0:
        raise Unfit(f'US dollars above zero, such as 0.50, or "{NONE}"')
    return given


def seconds(value: object) -> float | None:
    if value in (None, NONE):
        return None
    found = _DURATION.fullmatch(str(value)) if not isinstance(value, bool) else None
    given = float(found[1]) * _SECONDS[found[2] or "s"] if found else 0.0
    if given <= 0 or not math.isfinite(given):
        raise Unfit(f'a time above zero, such as 90, "90s", "15m" or "2h", or "{NONE}"')
    return given


def choice(*among: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in among:
            near = did_you_mean(value, among) if isinstance(value, str) else ""
            raise Unfit(f"one of {', '.join(among)}.{near}")
        return cast("str", value)

    return read


KEYS: Mapping[str, Key] = {
    "model": Key(text, "the model that is asked, as provider:model"),
    "fallbacks": Key(texts, "models that are asked when the first one keeps failing"),
    "instructions": Key(text, "the system prompt"),
    "tools": Key(texts, "the tools that are offered: all, none, core, read-only, or patterns"),
    "permission_mode": Key(choice(*PERMISSION_MODES), "what happens to calls that change things"),
    "policy": Key(text, "a file of rules, instead of a permission mode", path=True),
    "flow_guard": Key(flag, "ask before private data can leave along with outside text"),
    "mcp_config": Key(text, "MCP servers; without it, the project's .mcp.json", path=True),
    "max_steps": Key(count, "replies of the model in one run"),
    "max_usd": Key(money, "US dollars for one run"),
    "max_tokens": Key(count, "tokens for one run"),
    "timeout": Key(seconds, "seconds at work for one run"),
    "agent": Key(text, "the agent of the project's file that runs", of_agent=False),
    "journal": Key(text, "the file that keeps the sessions", path=True, of_agent=False),
    "thinking": Key(choice(*THINKING_MODES), "the model's thinking", of_agent=False),
}
"""Every setting, in the order in which it is shown."""
