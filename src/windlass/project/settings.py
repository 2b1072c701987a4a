"""The settings: the type of each, how it is parsed, and what an error says about it.

One name is used everywhere: `max_usd` in a file is `WINDLASS_MAX_USD` in the environment and
`--max-usd` on the command line.
"""

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, TypeAlias, cast

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.retention import Retention
from windlass.core.session_summary import ENDED_STATES, SessionState
from windlass.core.suggestions import suggest_names
from windlass.journals.wording import parse_journal_name, resolve_journal_name, show_journal_name

PermissionMode: TypeAlias = Literal["ask", "read-only", "allow-edits", "plan", "allow-all"]
EditingKeys: TypeAlias = Literal["emacs", "vi"]
InterpreterMode: TypeAlias = Literal["off", "on", "tools"]
SandboxMode: TypeAlias = Literal["auto", "require"]
BrowserMode: TypeAlias = Literal["off", "on", "unconfined"]
OnFailure: TypeAlias = Literal["keep", "undo"]
ThinkingMode: TypeAlias = Literal["show", "fold", "hide"]
WorkspaceSetting: TypeAlias = Literal["per-caller", "shared"]

PERMISSION_MODES: tuple[PermissionMode, ...] = (
    "ask",
    "read-only",
    "allow-edits",
    "plan",
    "allow-all",
)
EDITING_KEYS: tuple[EditingKeys, ...] = ("emacs", "vi")
INTERPRETER_MODES: tuple[InterpreterMode, ...] = ("off", "on", "tools")
SANDBOX_MODES: tuple[SandboxMode, ...] = ("auto", "require")
BROWSER_MODES: tuple[BrowserMode, ...] = ("off", "on", "unconfined")
ON_FAILURE: tuple[OnFailure, ...] = ("keep", "undo")
THINKING_MODES: tuple[ThinkingMode, ...] = ("show", "fold", "hide")
WORKSPACE_SETTINGS: tuple[WorkspaceSetting, ...] = ("per-caller", "shared")
NO_LIMIT = "none"
"""How a file says that there is no limit, because TOML has no null."""
STEPS_DEFAULT = 25

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h)?")
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_FLAG_WORDS = {"true": True, "yes": True, "on": True, "1": True} | {
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the command line, from whichever layer they come."""

    model: str = ""
    """`provider:model`; if empty, a model that is available is chosen."""
    base_url: str = ""
    """The address of the model's server; if empty, the provider's own."""
    fallbacks: tuple[str, ...] = ()
    instructions: str = ""
    tools: tuple[str, ...] = ("all",)
    permission_mode: PermissionMode = "ask"
    policy: str = ""
    flow_guard: bool = True
    tool_files: tuple[str, ...] = ()
    """Manifests of tools: commands and HTTP requests."""
    interpreter: InterpreterMode = "off"
    """Whether the agent has the tool `python`, and whether its code may call the other tools."""
    browser: BrowserMode = "off"
    """Whether the agent has a browser, and whether that confines the scripts of pages."""
    web_search: str = ""
    """The search engine of the tool `web_search`, as NAME or NAME=ADDRESS; if empty, none."""
    sandbox: SandboxMode = "auto"
    mcp_config: str = ""
    max_steps: int | None = STEPS_DEFAULT
    max_usd: Decimal | None = None
    max_tokens: int | None = None
    timeout: float | None = None
    on_failure: OnFailure = "keep"
    agent: str = ""
    journal: str = ""
    retention: Retention = Retention()
    """How long sessions are kept once they have ended."""
    workspace: WorkspaceSetting = "per-caller"
    """Whether each caller of a service works in its own folder, or all in this one."""
    workspace_store: str = ""
    """The folder that holds the folders of callers; if empty, one in the user's state folder."""
    hooks: tuple[str, ...] = ()
    """Observers and gates of installed packages that are used, by name."""
    thinking: ThinkingMode = "show"
    editing: EditingKeys = "emacs"
    notify: str = "bell"
    """How the terminal says that a question waits, or that a long run has ended."""


class InvalidSetting(Exception):
    """A value is not valid; the message says what the value must be."""


@dataclass(frozen=True, slots=True)
class SettingKey:
    """How one setting is parsed and described."""

    parse: Callable[[object], object]
    """From a value in a file, a variable or a flag to the setting; raises InvalidSetting."""
    description: str
    """What the setting is for, in a line."""
    resolve: Callable[[str, str], str] | None = None
    """For a path: returns it as absolute, from the value and the folder where it was written."""
    per_agent: bool = True
    """May also be set in `[agents.NAME]`."""
    strictness: Callable[[Any], float] | None = None
    """How strict a value is, for settings that allow things: a project can only raise it."""
    of_person: bool = False
    """Only a person can set it: what a project says has no effect, also after trust."""
    show: Callable[[object], str] = str
    """How a value is shown to people, without what is secret in it."""


def parse_text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidSetting('a string, such as "…"')
    return value


def parse_journal(value: object) -> str:
    """A path or a URL; raises InvalidSetting, without the password in it, if it is neither."""
    text = parse_text(value)
    try:
        if text:
            parse_journal_name(text)
    except ConfigError as error:
        raise InvalidSetting(f"a path, memory: or postgresql://… ({error})") from None
    return text


def resolve_path(path: str, folder: str) -> str:
    """The path as an absolute one, as seen from a folder."""
    # Not `Path.resolve`: a path that goes through a link stays as it was written.
    return os.path.normpath(os.path.join(folder, os.path.expanduser(path)))  # noqa: PTH111, PTH118


def parse_texts(value: object) -> tuple[str, ...]:
    """A list of strings, or one string with commas."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        if all(isinstance(item, str) for item in items):
            return tuple(cast("Sequence[str]", items))
    raise InvalidSetting('a list of strings, such as ["a", "b"]')


def parse_flag(value: object) -> bool:
    if isinstance(value, str):
        value = _FLAG_WORDS.get(value.lower())
    if not isinstance(value, bool):
        raise InvalidSetting("true or false")
    return value


def parse_count(value: object) -> int | None:
    if value in (None, NO_LIMIT):
        return None
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    # To Python, True is an int.
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidSetting(f'a whole number above zero, or "{NO_LIMIT}"')
    return value


def parse_usd(value: object) -> Decimal | None:
    if value in (None, NO_LIMIT):
        return None
    try:
        usd = Decimal(str(value).removeprefix("$"))
    except InvalidOperation:
        usd = Decimal(0)
    if not usd.is_finite() or usd <= 0:
        raise InvalidSetting(f'US dollars above zero, such as 0.50, or "{NO_LIMIT}"')
    return usd


def parse_seconds(value: object) -> float | None:
    if value in (None, NO_LIMIT):
        return None
    duration = _DURATION.fullmatch(str(value))
    if duration:
        seconds = float(duration[1]) * _UNIT_SECONDS[duration[2] or "s"]
    else:
        seconds = 0.0
    if seconds <= 0 or not math.isfinite(seconds):
        raise InvalidSetting(
            f'a time above zero, such as 90, "90s", "15m" or "2h", or "{NO_LIMIT}"'
        )
    return seconds


def parse_age(value: object) -> float | None:
    """Seconds, from a text such as 12h, 30d or 4w."""
    if value in (None, NO_LIMIT):
        return None
    found = _AGE.fullmatch(str(value).strip().lower())
    if found is None:
        raise InvalidSetting(f'an age such as "12h", "30d" or "4w", or "{NO_LIMIT}"')
    return float(found[1]) * _UNIT_SECONDS[found[2]]


def parse_retention(value: object) -> Retention:
    """How long sessions are kept, from a text such as `30d` or `30d failed=90d cancelled=1d`."""
    if isinstance(value, Retention):
        return value
    text = re.sub(r"(?<=\d)\s+(?=[smhdw]\b)", "", str(value).lower())
    default, *others = text.split() or [""]
    by_state: dict[SessionState, float | None] = {}
    for other in others:
        state, _, age = other.partition("=")
        if state not in ENDED_STATES:
            raise InvalidSetting(f"after the first age STATE=AGE, of {', '.join(ENDED_STATES)}")
        by_state[state] = parse_age(age)
    return Retention(parse_age(default), by_state)


def show_retention(value: object) -> str:
    """The text of a retention, as it can be set."""
    if not isinstance(value, Retention):
        return str(value)
    others = [f"{state}={_show_age(age)}" for state, age in value.by_state.items()]
    return " ".join([_show_age(value.seconds), *others])


def _show_age(age: float | None) -> str:
    if age is None:
        return NO_LIMIT
    for unit, seconds in reversed(_UNIT_SECONDS.items()):
        if age % seconds == 0:
            return f"{age / seconds:g}{unit}"
    return f"{age:g}s"


def parse_choice(*options: str) -> Callable[[object], str]:
    """A parser that accepts only these words."""

    def parse(value: object) -> str:
        if value not in options:
            if isinstance(value, str):
                hint = suggest_names(value, options)
            else:
                hint = ""
            raise InvalidSetting(f"one of {', '.join(options)}.{hint}")
        return cast("str", value)

    return parse


def limit_strictness(value: float | Decimal | None) -> float:
    """A lower limit is stricter, and no limit is the least strict of all."""
    return -math.inf if value is None else -float(value)


SETTING_KEYS: Mapping[str, SettingKey] = {
    "model": SettingKey(parse_text, "the model, as provider:model"),
    "base_url": SettingKey(parse_text, "the address of the model's server, up to /v1"),
    "fallbacks": SettingKey(parse_texts, "models to use when the first one keeps failing"),
    "instructions": SettingKey(parse_text, "the system prompt"),
    "tools": SettingKey(
        parse_texts, "the tools of the agent: all, none, core, read-only, or patterns"
    ),
    "permission_mode": SettingKey(
        parse_choice(*PERMISSION_MODES),
        "what happens to calls that change things",
        strictness=("allow-all", "allow-edits", "ask", "plan", "read-only").index,
    ),
    "policy": SettingKey(
        parse_text, "a file of rules, instead of a permission mode", resolve=resolve_path
    ),
    "flow_guard": SettingKey(
        parse_flag,
        "ask before private data could be sent out by untrusted text",
        strictness=float,
    ),
    "tool_files": SettingKey(
        parse_texts,
        "files that declare tools: commands and HTTP requests",
        resolve=resolve_path,
        of_person=True,
    ),
    "interpreter": SettingKey(
        parse_choice(*INTERPRETER_MODES),
        "the tool python: off, on, or tools: its code may call the other tools",
        of_person=True,
    ),
    "browser": SettingKey(
        parse_choice(*BROWSER_MODES),
        "web pages in a browser: off, on, or unconfined where Chromium's sandbox does not work",
        of_person=True,
    ),
    "web_search": SettingKey(
        parse_text,
        "the search engine of web_search: brave, tavily, exa, duckduckgo, or searxng=https://…",
        of_person=True,
    ),
    "sandbox": SettingKey(
        parse_choice(*SANDBOX_MODES),
        "auto, or require: do not start where commands run unconfined",
        strictness=("auto", "require").index,
    ),
    "mcp_config": SettingKey(
        parse_text, "MCP servers; without it, the project's .mcp.json", resolve=resolve_path
    ),
    "max_steps": SettingKey(
        parse_count, "replies of the model in one run", strictness=limit_strictness
    ),
    "max_usd": SettingKey(parse_usd, "US dollars for one run", strictness=limit_strictness),
    "max_tokens": SettingKey(parse_count, "tokens for one run", strictness=limit_strictness),
    "timeout": SettingKey(
        parse_seconds, "working time of one run, in seconds", strictness=limit_strictness
    ),
    "on_failure": SettingKey(
        parse_choice(*ON_FAILURE), "keep or undo what a run did that does not complete"
    ),
    "agent": SettingKey(parse_text, "the agent to run, from [agents.NAME]", per_agent=False),
    "journal": SettingKey(
        parse_journal,
        "the journal that keeps the sessions: a path, memory: or postgresql://…",
        resolve=resolve_journal_name,
        per_agent=False,
        show=show_journal_name,
    ),
    "retention": SettingKey(
        parse_retention,
        "how long sessions are kept once they have ended, such as 30d, or 30d failed=90d by state",
        of_person=True,
        show=show_retention,
    ),
    "workspace": SettingKey(
        parse_choice(*WORKSPACE_SETTINGS),
        "per-caller: each caller of a service has a folder of its own; shared: all of them read "
        "and change the files of this folder",
        per_agent=False,
        of_person=True,
    ),
    "workspace_store": SettingKey(
        parse_text,
        "the folder that holds the folders of callers, such as a mount that all workers share",
        resolve=resolve_path,
        per_agent=False,
        of_person=True,
    ),
    "hooks": SettingKey(
        parse_texts,
        "observers and gates of installed packages that are used",
        per_agent=False,
        of_person=True,
    ),
    "thinking": SettingKey(
        parse_choice(*THINKING_MODES), "how the model's thinking is shown", per_agent=False
    ),
    "editing": SettingKey(
        parse_choice(*EDITING_KEYS),
        "the keys that edit a prompt of the chat: emacs or vi",
        per_agent=False,
        of_person=True,
    ),
    "notify": SettingKey(
        parse_text,
        "how you are told that a question waits or a long run has ended: bell, osc9, off, or a "
        "command",
        per_agent=False,
        of_person=True,
    ),
}
"""Every setting, in the order in which it is shown."""
