"""Checks what a fleet did against what it may do, in the manner of Jepsen.

Clients note each operation when it begins and when it was acknowledged; the journal, the provider
and the service outside have their own records. From all of them together follows whether anything
was lost, done twice or done by two drivers at once.

The law: only an acknowledgement counts. A message whose acknowledgement was lost may have been kept
or not; it may still count at most once.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from proof.fleet.effects import EffectLine
from proof.fleet.provider import StepAsked
from windlass.core.audit.replay import replay
from windlass.core.control_facts import RunPaused
from windlass.core.events import (
    CallFinished,
    Fact,
    MailRefused,
    RunEnded,
    RunResumed,
    RunStarted,
    SteeringGiven,
    StepProposed,
)

LAST_FACTS = 8
"""How many facts of a run that does not end are shown."""
MailLane = Literal["control", "prompts"]


@dataclass(frozen=True, slots=True)
class PostedMessage:
    """A message that a client posted. Without a number it was never acknowledged."""

    lane: MailLane
    text: str
    number: int | None


@dataclass(slots=True)
class SessionHistory:
    """All that is known of one session."""

    session: str
    posted: list[PostedMessage] = field(default_factory=list[PostedMessage])
    facts: Sequence[Fact] = ()
    effects: Sequence[EffectLine] = ()
    requests: Sequence[StepAsked] = ()
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    """The version of each worker, by its name. Versions have different configurations."""
    excused: frozenset[str] = frozenset()
    """Workers that were stopped or cut off at some time. Each may repeat the one request that it
    had recorded and not made yet, because no provider knows of fencing tokens."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that must not happen."""

    kind: str
    session: str
    words: str


def check_history(history: SessionHistory, calls: int) -> list[Violation]:
    """Return everything that is wrong with a session whose run makes so many calls."""
    checks = (
        ("run not finished", _check_end(history)),
        ("message lost or heeded twice", _check_mail(history)),
        ("record not sound", _check_record(history)),
        ("effect twice", _check_effects_twice(history)),
        ("effect lost", _check_effects_lost(history, calls)),
        ("two drivers", _check_drivers(history)),
        ("driven by another version", _check_versions(history)),
        ("asked again once on record", _check_requests(history)),
    )
    return [Violation(kind, history.session, words) for kind, found in checks for words in found]


def _check_end(history: SessionHistory) -> Iterator[str]:
    ends = [fact for fact in history.facts if isinstance(fact, RunEnded)]
    starts = [fact for fact in history.facts if isinstance(fact, RunStarted)]
    if len(ends) != len(starts) or not ends:
        yield f"{len(starts)} runs began and {len(ends)} ended; {_describe_last(history.facts)}"
    for end in ends:
        if end.outcome != "completed":
            yield f"it ended as {end.outcome}: {end.reason}"


def _describe_last(facts: Sequence[Fact]) -> str:
    """Return what a run stands at that does not end, and why it was paused if it was."""
    names = [type(fact).__name__ for fact in facts[-LAST_FACTS:]]
    reasons = [fact.reason for fact in facts if isinstance(fact, RunPaused)]
    return f"its last facts are {', '.join(names)}; pauses: {reasons}"


def _check_mail(history: SessionHistory) -> Iterator[str]:
    """Every acknowledged message is heeded or refused by exactly one fact, with its own words."""
    taken: Counter[tuple[str, int]] = Counter()
    texts: dict[tuple[str, int], str] = {}
    for fact in history.facts:
        match fact:
            case RunStarted() if fact.mail:
                place = ("prompts", fact.mail)
                texts[place] = _prompt_text(fact)
            case SteeringGiven() if fact.mail:
                place = ("control", fact.mail)
                texts[place] = _prompt_text(fact)
            case MailRefused():
                place = (fact.lane, fact.mail)
            case _:
                continue
        taken[place] += 1
    for message in history.posted:
        if message.number is None:
            continue
        place = (message.lane, message.number)
        if taken[place] != 1:
            yield f"message {place} was acknowledged and heeded {taken[place]} times"
        elif texts.get(place, message.text) != message.text:
            yield f"message {place} was heeded with other words"
    for place, times in taken.items():
        if times > 1:
            yield f"message {place} was heeded {times} times"
        if place in texts and texts[place] not in {message.text for message in history.posted}:
            yield f"message {place} was posted by nobody"


def _prompt_text(fact: RunStarted | SteeringGiven) -> str:
    return "".join(getattr(part, "text", "") for part in fact.prompt)


def _check_record(history: SessionHistory) -> Iterator[str]:
    numbers = [fact.seq for fact in history.facts]
    if numbers != list(range(1, len(numbers) + 1)):
        yield "its facts are not numbered one after the other"
        return
    if not replay(history.session, history.facts).is_same:
        yield "its facts do not lead to the same moves again"


def _performed(history: SessionHistory) -> Counter[str]:
    return Counter(line.key for line in history.effects if line.kind == "effect")


def _check_effects_twice(history: SessionHistory) -> Iterator[str]:
    for key, times in _performed(history).items():
        if times > 1:
            yield f"{key} happened {times} times"


def _check_effects_lost(history: SessionHistory, calls: int) -> Iterator[str]:
    """Every call of the script has an effect, and what is reported as done was done."""
    performed = _performed(history)
    if len(performed) < calls:
        yield f"{len(performed)} effects of {calls}"
    finished = sum(
        isinstance(fact, CallFinished) and fact.result.kind == "value" for fact in history.facts
    )
    if finished > len(performed):
        yield f"{finished} calls are reported as done, and {len(performed)} were"


def _check_drivers(history: SessionHistory) -> Iterator[str]:
    """A token has one worker, each driver that acted opened the run, and tokens only grow."""
    workers: defaultdict[int, set[str]] = defaultdict(set)
    openings = sum(isinstance(fact, RunStarted | RunResumed) for fact in history.facts)
    acted = {line.token for line in history.effects if line.kind != "refused"}
    if len(acted) > openings:
        yield f"{len(acted)} drivers acted, and {openings} opened the run"
    latest: dict[str, int] = {}
    for line in history.effects:
        workers[line.token].add(line.worker)
        if line.kind == "refused":
            continue
        if line.token < latest.get(line.key, 0):
            yield f"{line.key}: a driver with token {line.token} acted after a later one"
        latest[line.key] = line.token
    for token, names in workers.items():
        if len(names) > 1:
            yield f"token {token} was used by {', '.join(sorted(names))}"


def _check_versions(history: SessionHistory) -> Iterator[str]:
    """A run goes on with the configuration that it began with, whatever is upgraded meanwhile."""
    workers = {asked.worker for asked in history.requests}
    workers |= {line.worker for line in history.effects}
    versions = {history.versions.get(worker, "") for worker in workers}
    if len(versions) > 1:
        yield f"workers of the versions {', '.join(sorted(versions))} drove it"


def _check_requests(history: SessionHistory) -> Iterator[str]:
    """No reply is asked for once a later one was: then it was on record."""
    highest = 0
    steps = sum(isinstance(fact, StepProposed) for fact in history.facts)
    excuses = set(history.excused)
    for asked in history.requests:
        if asked.step < highest:
            if asked.worker in excuses:
                excuses.discard(asked.worker)
                continue
            yield f"{asked.worker} asked for reply {asked.step} after reply {highest}"
        highest = max(highest, asked.step)
    if highest != steps:
        yield f"{steps} replies are on record, and {highest} were asked for"
