"""Why: a record in words and as it is, its place in the chain, replays and comparisons."""

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from windlass.core.audit.differences import same_fact
from windlass.core.audit.explain import explain
from windlass.core.audit.replay import replay
from windlass.core.events import Fact
from windlass.core.phrases import format_count
from windlass.journals.codec import chain_hash, chain_root, encode_fact
from windlass.server.errors import ApiError
from windlass.server.owned_reading import find_problems, read_recorded_facts
from windlass.server.service import Service
from windlass.server.session_directory import OwnedSession

AUDITS_KEPT = 8
TEXT_CHARS_MAX = 20_000
"""Longer texts in a record are cut."""
_NUMBERED_LINE = re.compile(r" {0,3}(\d+)  (.*)", re.DOTALL)
"""A line of an explanation that begins with the number of its record."""


class ExplainedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One record of a session."""

    seq: int
    at: float
    type: str
    explanation: Sequence[str]
    record: object
    hash: str
    previous: str
    chain: str
    """`verified`, or what is wrong with the record."""
    total: int


class ReplayReply(msgspec.Struct, frozen=True):
    """Whether the rules lead to the same records again."""

    agrees: bool
    words: str
    hint: str = ""


class CompareReply(msgspec.Struct, frozen=True, kw_only=True):
    """Where two sessions begin to differ."""

    same: int
    first: int | None
    """The first record that differs; None if all are the same."""
    left: str
    right: str
    left_total: int
    right_total: int


class SessionAudit(msgspec.Struct, frozen=True):
    """What was found out about the records of a session up to a number."""

    lines: Mapping[int, Sequence[str]]
    hashes: Sequence[str]
    problems: Mapping[int, str]


class AuditCache:
    """Explains and checks sessions once, until they have new records."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, int, bool], SessionAudit] = OrderedDict()

    async def read(
        self, service: Service, session: OwnedSession, facts: Sequence[Fact]
    ) -> SessionAudit:
        """Return the audit of a session with these facts, which are as they are in the journal."""
        key = (session.name, len(facts), session.caller.sees_agents)
        audit = self._known.get(key)
        if audit is None:
            audit = await _audit_session(service, session, facts)
            self._known[key] = audit
            while len(self._known) > AUDITS_KEPT:
                self._known.popitem(last=False)
        return audit


async def _audit_session(
    service: Service, session: OwnedSession, facts: Sequence[Fact]
) -> SessionAudit:
    last = chain_root(session.name).hash
    hashes = [last.hex()]
    for fact in facts:
        last = chain_hash(last, encode_fact(fact).body)
        hashes.append(last.hex())
    problems = {found.seq: found.what for found in await find_problems(service.journal, session)}
    shown = await service.read_facts(session)
    return SessionAudit(_explain_records(session.name, shown), hashes, problems)


def _explain_records(session: str, facts: Sequence[Fact]) -> dict[int, Sequence[str]]:
    """Return the lines of the explanation by the number of their record."""
    lines: dict[int, list[str]] = {}
    seq = 0
    for line in explain(session, facts):
        found = _NUMBERED_LINE.fullmatch(line)
        if found is not None:
            seq = int(found[1])
        words = found[2] if found is not None else line[4:]
        lines.setdefault(seq, []).append(words)
    return dict(lines)


async def read_record(
    service: Service, cache: AuditCache, session: OwnedSession, seq: int
) -> ExplainedRecord:
    """Return a record of a session. Raises ApiError 404."""
    facts = await read_recorded_facts(service.journal, session)
    shown = {fact.seq: fact for fact in await service.read_facts(session)}
    fact = shown.get(seq)
    if fact is None:
        raise ApiError(
            404,
            "record_not_found",
            f"The session has no record {seq} that may be shown.",
            f"It has {format_count(len(facts), 'record')}.",
        )
    audit = await cache.read(service, session, facts)
    raw = msgspec.to_builtins(fact)
    problem = audit.problems.get(seq)
    return ExplainedRecord(
        seq=seq,
        at=fact.at,
        type=type(fact).__name__,
        explanation=audit.lines.get(seq, ()),
        record=_clip_value(raw),
        hash=audit.hashes[seq],
        previous=audit.hashes[seq - 1] if seq > 1 else "",
        chain="verified" if problem is None else f"broken: {problem}",
        total=len(facts),
    )


def _clip_value(value: object) -> object:
    """Return plain data with long texts cut."""
    match value:
        case str() if len(value) > TEXT_CHARS_MAX:
            return f"{value[:TEXT_CHARS_MAX]}… ({len(value):,} characters)"
        case dict():
            fields = cast("dict[str, object]", value)
            return {name: _clip_value(item) for name, item in fields.items()}
        case list() | tuple():
            return [_clip_value(item) for item in cast("Sequence[object]", value)]
        case _:
            return value


async def replay_session(service: Service, session: OwnedSession, start: int) -> ReplayReply:
    """Run a session again from its journal, without models and tools."""
    facts = await read_recorded_facts(service.journal, session)
    result = replay(session.name, facts)
    if result.is_same:
        count = max(0, len(facts) - start + 1)
        words = f"The rules lead to the same {format_count(count, 'record')} from here on."
        return ReplayReply(agrees=True, words=words, hint="No model was asked and no tool was run.")
    difference = result.difference or result.other_rules
    assert difference is not None  # noqa: S101 - is_same says so
    if difference.seq < start:
        return ReplayReply(
            agrees=False,
            words=f"It cannot be replayed from here: {difference}.",
            hint="The difference comes earlier.",
        )
    return ReplayReply(agrees=False, words=f"The replay differs: {difference}.")


async def compare_sessions(
    service: Service, session: OwnedSession, other: OwnedSession
) -> CompareReply:
    """Return where two sessions begin to differ."""
    left = await service.read_facts(session)
    right = await service.read_facts(other)
    same = 0
    for mine, yours in zip(left, right, strict=False):
        if not same_fact(mine, yours):
            break
        same += 1
    is_same = same == len(left) == len(right)
    return CompareReply(
        same=same,
        first=None if is_same else same + 1,
        left=_explain_one(session.name, left, same),
        right=_explain_one(other.name, right, same),
        left_total=len(left),
        right_total=len(right),
    )


def _explain_one(session: str, facts: Sequence[Fact], at: int) -> str:
    if at >= len(facts):
        return ""
    lines = _explain_records(session, facts[: at + 1]).get(facts[at].seq, ())
    return " ".join(line.strip() for line in lines[:3])
