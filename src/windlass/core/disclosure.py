"""What a viewer sees of an agent: its instructions, its tools, its policy and its host.

Invariant: `show_event` alone decides it, for every fact and delta. What people and protocols show
is projected from what it returns, so no protocol can show more. A field that is hidden has its
default, which leaves it out of the JSON, and the event names it in `hidden`. Only the words of a
verdict or a fault, which every record has, are empty instead.
"""

from collections.abc import Collection, Mapping
from typing import Any, Literal, TypeVar, get_args
from urllib.parse import urlsplit

from msgspec.structs import replace

from windlass.core.control_facts import CallWaiting, RunQueued
from windlass.core.deltas import AttemptDiscarded, AttemptRetrying, NestedEvent
from windlass.core.errors import ConfigError, Fault
from windlass.core.events import (
    AttemptFailed,
    CallJudged,
    Event,
    ReplyJudged,
    RunEnded,
    RunResumed,
    RunStarted,
    RunSuspended,
)
from windlass.core.rate_limits import PRIORITY_KEY
from windlass.core.session_summary import TAGS_KEY
from windlass.core.setup import OUTPUT_KEY, Setup
from windlass.core.suggestions import suggest_names
from windlass.core.verdicts import (
    PERSON_KEY,
    Allow,
    Ask,
    Deny,
    InvalidCall,
    Modify,
    OutputMismatch,
)

AgentPart = Literal["instructions", "tools", "policy", "host"]
"""`instructions`: what the model is told. `tools`: their names, descriptions and schemas. `policy`:
its name, its rules, and its reasons. `host`: folders, addresses, and what the host program says."""
AGENT_PARTS: tuple[AgentPart, ...] = get_args(AgentPart)
EVERYTHING: frozenset[AgentPart] = frozenset(AGENT_PARTS)
NOTHING: frozenset[AgentPart] = frozenset()
SETUP_PARTS: Mapping[str, AgentPart | None] = {
    "model": None,
    "fallbacks": None,
    "instructions": "instructions",
    "tools": "tools",
    "gate": "policy",
    "judge_replies": None,
    "withhold_replies": None,
    "output_schema": None,
    "limits": None,
    "session_limits": None,
    "budgets": None,
    "compaction": None,
    "summariser": None,
    "hydration": "tools",
    "recalls": None,
    "retries": None,
    "rules": None,
}
"""By the field of a setup: the part of the agent that it tells about; None: any viewer may see it.
A field that is not named here is hidden as `host`."""
OWN_KEYS = frozenset(
    ("label", "windlass_limits", "windlass_service", OUTPUT_KEY, PERSON_KEY, PRIORITY_KEY, TAGS_KEY)
)
"""Keys of a run's context that tell about its caller and its start."""
HIDDEN_WORD = "[hidden]"
AnyEvent = TypeVar("AnyEvent", bound=Event)
JudgedCall = Allow | Deny | Modify | Ask | InvalidCall | OutputMismatch


def check_parts(names: Collection[str]) -> frozenset[AgentPart]:
    """Return the parts of an agent that are shown; `all` is every one. Raises ConfigError."""
    if "all" in names:
        return EVERYTHING
    for name in names:
        if name not in AGENT_PARTS:
            known = (*AGENT_PARTS, "all")
            raise ConfigError(
                f"an agent has no part {name!r} to show: it is one of {', '.join(known)}."
                f"{suggest_names(name, known)}"
            )
    return frozenset(part for part in AGENT_PARTS if part in names)


def show_event(event: AnyEvent, parts: frozenset[AgentPart]) -> AnyEvent:
    """Return an event as a viewer sees it who may see these parts of the agent."""
    if parts == EVERYTHING:
        return event
    if isinstance(event, NestedEvent):
        return replace(event, event=show_event(event.event, parts))
    changes = _find_changes(event, parts)
    if not changes:
        return event
    hidden = tuple(name for names in changes.values() for name in names[1])
    fields = {field: value for field, (value, _) in changes.items()}
    return replace(event, **fields, hidden=(*event.hidden, *hidden))


Changes = dict[str, tuple[Any, tuple[str, ...]]]
"""By the field of an event: what is shown instead, and the names of what is hidden in it."""


def _find_changes(event: Event, parts: frozenset[AgentPart]) -> Changes:
    match event:
        case RunStarted():
            changes = _hide_setup(event.setup, parts) | _hide_context(event.context, parts)
            if event.folder is not None and "host" not in parts:
                changes["folder"] = (None, ("folder",))
            return changes
        case RunQueued():
            return _hide_context(event.context, parts)
        case RunResumed():
            changes = _hide_setup(event.setup, parts)
            if event.drift and "policy" not in parts:
                changes["drift"] = ((), ("drift",))
            if event.reaped and "host" not in parts:
                changes["reaped"] = ((), ("reaped",))
            return changes
        case CallJudged() | ReplyJudged():
            return _hide_verdict(event.verdict, parts)
        case CallWaiting(questions=questions) | RunSuspended(questions=questions):
            if "policy" in parts or not any(asked.rule for asked in questions):
                return {}
            shown = tuple(replace(asked, rule="") for asked in questions)
            return {"questions": (shown, ("questions.rule",))}
        case AttemptFailed() | RunEnded():
            return {} if "host" in parts else _hide_address(event)
        case AttemptDiscarded() | AttemptRetrying():
            # The fact beside it says why, without the address.
            return {} if "host" in parts else {"reason": ("", ("reason",))}
        case _:
            return {}


def _hide_setup(setup: Setup | None, parts: frozenset[AgentPart]) -> Changes:
    if setup is None:
        return {}
    names = [
        name
        for name in setup.__struct_fields__
        if (part := SETUP_PARTS.get(name, "host")) is not None
        and part not in parts
        and getattr(setup, name)
    ]
    if not names:
        return {}
    empty = Setup(model=setup.model)
    shown = replace(setup, **{name: getattr(empty, name) for name in names})
    return {"setup": (shown, tuple(f"setup.{name}" for name in names))}


def _hide_context(context: Mapping[str, Any], parts: frozenset[AgentPart]) -> Changes:
    names = () if "host" in parts else tuple(key for key in context if key not in OWN_KEYS)
    if not names:
        return {}
    shown = {key: value for key, value in context.items() if key in OWN_KEYS}
    return {"context": (shown, tuple(f"context.{name}" for name in names))}


def _hide_verdict(verdict: JudgedCall, parts: frozenset[AgentPart]) -> Changes:
    match verdict:
        case InvalidCall():
            # It names what the schema expects, or the tools that there are.
            names = () if "tools" in parts else ("message",)
        case Deny() | Modify():
            names = () if "policy" in parts else ("reason", "rule")
        case Allow() | Ask():
            # The question of an `Ask` is for the person who answers it.
            names = () if "policy" in parts else ("rule",)
        case OutputMismatch():
            names = ()
    names = tuple(name for name in names if getattr(verdict, name))
    if not names:
        return {}
    shown = replace(verdict, **dict.fromkeys(names, ""))
    return {"verdict": (shown, tuple(f"verdict.{name}" for name in names))}


def _hide_address(event: AttemptFailed | RunEnded) -> Changes:
    fault = event.fault
    if fault is None:
        return {}
    if fault.is_of_host and fault.message:
        changes: Changes = {"fault": (replace(fault, message=""), ("fault.message",))}
        if isinstance(event, RunEnded) and event.reason:
            changes["reason"] = ("", ("reason",))
        return changes
    if not fault.address:
        return {}
    shown = replace(fault, message=_cut_address(fault.message, fault), address="")
    changes = {"fault": (shown, ("fault.address",))}
    if isinstance(event, RunEnded) and event.reason:
        changes["reason"] = (_cut_address(event.reason, fault), ())
    return changes


def _cut_address(text: str, fault: Fault) -> str:
    """Return a text without the address of a fault, however much of it the text has."""
    split = urlsplit(fault.address)
    for word in (fault.address, split.netloc, split.hostname):
        if word:
            text = text.replace(word, HIDDEN_WORD)
    return text
