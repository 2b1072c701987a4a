"""The audit trail: who started, asked, answered and changed what, when and from where. Pure.

Invariant: an entry holds no prompt, no reply and no argument, only their digest: the trail can be
handed to those who may not read the runs.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import msgspec

from windlass.core.control_facts import LimitsRaised, RunContinued, RunPaused, SteeringGiven
from windlass.core.events import AnswerCounted, CallAnswered, CallJudged, Fact, RunEnded, RunStarted
from windlass.core.verdicts import PERSON_KEY, Ask, classify_answer

AUDIT_FORMATS = ("jsonl", "csv")


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the trail."""

    at: float
    """Seconds since the epoch; of an answer, when it was accepted."""
    session: str
    seq: int
    """The number of the record, which `sessions verify` checks."""
    run: int = 0
    agent: str = ""
    caller: str = ""
    """On whose behalf the run works."""
    kind: str
    """`started`, `asked`, `agreed`, `answered`, `steered`, `paused`, `continued`, `limits_raised`
    or `ended`."""
    who: str = ""
    origin: str = ""
    """From where: the way in and the address."""
    is_verified: bool = False
    """Whether a service verified who it was."""
    call_id: str = ""
    tool: str = ""
    decision: str = ""
    """Of an answer `allow`, `modify` or `deny`; of a run how it ended."""
    rule: str = ""
    needs: str = ""
    """Who has to agree to the call, in words."""
    digest: str = ""
    """Of the arguments that were asked about, and that the answer is bound to."""
    signature: str = ""


def list_entries(session: str, facts: Iterable[Fact]) -> Iterator[AuditEntry]:
    """Yield the entries of a session, from its facts."""
    started: RunStarted | None = None
    tools: dict[str, str] = {}
    for fact in facts:
        if isinstance(fact, RunStarted):
            started = fact
        calls = getattr(getattr(fact, "reply", None), "calls", ())
        tools.update((call.id, call.name) for call in calls)
        entry = _make_entry(session, fact)
        if entry is not None:
            yield msgspec.structs.replace(
                entry,
                run=started.run if started else 0,
                agent=started.agent if started else "",
                caller=started.caller if started else "",
                tool=tools.get(entry.call_id, ""),
            )


def _make_entry(session: str, fact: Fact) -> AuditEntry | None:
    make = partial(AuditEntry, at=fact.at, session=session, seq=fact.seq)
    match fact:
        case RunStarted():
            person = str(fact.context.get(PERSON_KEY, ""))
            who = person or fact.caller or "owner"
            return make(kind="started", who=who, is_verified=bool(person))
        case CallJudged(verdict=Ask() as ask):
            needs = ", and ".join(one.describe() for one in ask.approvals)
            return make(
                kind="asked",
                call_id=fact.call_id,
                rule=ask.rule,
                needs=needs,
                digest=fact.digest,
            )
        case CallAnswered() | AnswerCounted():
            return _make_answer_entry(session, fact)
        case SteeringGiven():
            return make(kind="steered", who=fact.by)
        case RunPaused():
            return make(kind="paused", who=fact.by, decision=fact.cause)
        case RunContinued():
            return make(kind="continued", who=fact.by)
        case LimitsRaised():
            return make(kind="limits_raised", who=fact.by)
        case RunEnded():
            return make(kind="ended", who=fact.by, decision=fact.outcome)
        case _:
            return None


def _make_answer_entry(session: str, fact: CallAnswered | AnswerCounted) -> AuditEntry:
    return AuditEntry(
        at=fact.accepted_at or fact.at,
        session=session,
        seq=fact.seq,
        kind="agreed" if isinstance(fact, AnswerCounted) else "answered",
        who=fact.by,
        origin=fact.person.origin if fact.person else "",
        is_verified=fact.person is not None,
        call_id=fact.call_id,
        decision=classify_answer(fact.verdict),
        rule=fact.verdict.rule,
        digest=fact.digest,
        signature=fact.signature,
    )


def encode_entries(entries: Sequence[AuditEntry], form: str) -> str:
    """Return entries as text: a JSON object for each line, or CSV with a head."""
    if form == "jsonl":
        return "".join(f"{msgspec.json.encode(entry).decode()}\n" for entry in entries)
    written = io.StringIO()
    writer = csv.writer(written)
    writer.writerow(AuditEntry.__struct_fields__)
    for entry in entries:
        writer.writerow(_plain_cell(value) for value in msgspec.structs.astuple(entry))
    return written.getvalue()


def _plain_cell(value: object) -> object:
    """Return a value of a cell: a text that a spreadsheet would run as a formula is quoted."""
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return value
