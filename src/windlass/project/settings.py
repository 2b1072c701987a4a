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

from windlass.core.suggestions import suggest_names

PermissionMode: TypeAlias = Literal["ask", "read-only", "allow-all"]
ThinkingMode: TypeAlias = Literal["show", "fold", "hide"]

PERMISSION_MODES: tuple[PermissionMode, ...] = ("ask", "read-only", "allow-all")
THINKING_MODES: tuple[ThinkingMode, ...] = ("show", "fold", "hide")
NO_LIMIT = "none"
"""How a file says that there is no limit: TOML has no null."""
STEPS_DEFAULT = 25

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h)?")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600}
_FLAG_WORDS = {"true": True, "yes": True, "on": True, "1": True} | {
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
    max_steps: int | None = STEPS_DEFAULT
    max_usd: Decimal | None = None
    max_tokens: int | None = None
    timeout: float | None = None
    agent: str = ""
    journal: str = ""
    thinking: ThinkingMode = "show"


class InvalidSetting(Exception):
    """A value is not what its key may be; the words say what it may."""


@dataclass(frozen=True, slots=True)
class SettingKey:
    """One setting."""

    parse: Callable[[object], object]
    """A value as a file or a variable has it to the value itself; raises Unfit."""
    description: str
    """What it is for, in a line."""
    is_path: bool = False
    """Names a file, which is meant from where the name was written."""
    per_agent: bool = True
    """May stand in `[agents.NAME]` as well."""


def parse_text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidSetting('a text, such as "…"')
    return value


def parse_texts(value: object) -> tuple[str, ...]:
    """A list, or one text with commas."""
    if isinstance(value, str):
        return tuple(part for part in (one.strip() for one in value.split(",")) if part)
    items = cast("list[object]", value) if isinstance(value, list | tuple) else [None]
    if not all(isinstance(item, str) for item in items):
        raise InvalidSetting('a list of texts, such as ["a", "b"]')
    return tuple(cast("list[str]", items))


def parse_flag(value: object) -> bool:
    found = _FLAG_WORDS.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise InvalidSetting("true or false")
    return found


def parse_count(value: object) -> int | None:
    if value in (None, NO_LIMIT):
        return None
    given = int(value) if isinstance(value, str) and value.isdecimal() else value
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise InvalidSetting(f'a whole number above zero, or "{NO_LIMIT}"')
    return given


def parse_usd(value: object) -> Decimal | None:
    if value in (None, NO_LIMIT):
        return None
    try:
        given = Decimal(str(value).removeprefix("$")) if not isinstance(value, bool) else None
    except InvalidOperation:
        given = None
    if given is None or not given.is_finite() or given <= 0:
        raise InvalidSetting(f'US dollars above zero, such as 0.50, or "{NO_LIMIT}"')
    return given


def parse_seconds(value: object) -> float | None:
    if value in (None, NO_LIMIT):
        return None
    found = _DURATION.fullmatch(str(value)) if not isinstance(value, bool) else None
    given = float(found[1]) * _UNIT_SECONDS[found[2] or "s"] if found else 0.0
    if given <= 0 or not math.isfinite(given):
        raise InvalidSetting(
            f'a time above zero, such as 90, "90s", "15m" or "2h", or "{NO_LIMIT}"'
        )
    return given


def parse_choice(*options: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value not in options:
            near = suggest_names(value, options) if isinstance(value, str) else ""
            raise InvalidSetting(f"one of {', '.join(options)}.{near}")
        return cast("str", value)

    return parse


SETTING_KEYS: Mapping[str, SettingKey] = {
    "model": SettingKey(parse_text, "the model that is asked, as provider:model"),
    "fallbacks": SettingKey(parse_texts, "models that are asked when the first one keeps failing"),
    "instructions": SettingKey(parse_text, "the system prompt"),
    "tools": SettingKey(
        parse_texts, "the tools that are offered: all, none, core, read-only, or patterns"
    ),
    "permission_mode": SettingKey(
        parse_choice(*PERMISSION_MODES), "what happens to calls that change things"
    ),
    "policy": SettingKey(parse_text, "a file of rules, instead of a permission mode", is_path=True),
    "flow_guard": SettingKey(
        parse_flag, "ask before private data can leave along with outside text"
    ),
    "mcp_config": SettingKey(
        parse_text, "MCP servers; without it, the project's .mcp.json", is_path=True
    ),
    "max_steps": SettingKey(parse_count, "replies of the model in one run"),
    "max_usd": SettingKey(parse_usd, "US dollars for one run"),
    "max_tokens": SettingKey(parse_count, "tokens for one run"),
    "timeout": SettingKey(parse_seconds, "seconds at work for one run"),
    "agent": SettingKey(parse_text, "the agent of the project's file that runs", per_agent=False),
    "journal": SettingKey(
        parse_text, "the file that keeps the sessions", is_path=True, per_agent=False
    ),
    "thinking": SettingKey(parse_choice(*THINKING_MODES), "the model's thinking", per_agent=False),
}
"""Every setting, in the order in which it is shown."""
