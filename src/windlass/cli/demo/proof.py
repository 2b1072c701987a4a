"""What the files say when the demo has ended: what happened, and that nothing happened twice.

Three independent records must agree: the journal, the outbox that the tool wrote, and the meter
that the model kept.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple, TypeVar

from windlass.cli.demo.task import (
    CUSTOMER_NOTE,
    JOURNAL,
    PAYMENTS,
    PAYMENTS_FILE,
    PRICE,
    SCRIPT_LINES,
    SESSION,
    read_meter,
    read_outbox,
    refund_key,
)
from windlass.core.events import (
    AttemptFailed,
    AttemptStarted,
    CallJudged,
    CallStarted,
    Fact,
    KnowledgeRecalled,
    RunResumed,
    StepProposed,
)
from windlass.core.fold.run import fold
from windlass.core.messages import Ledger, Usage
from windlass.core.verdicts import Deny
from windlass.journals.codec import RecordProblem
from windlass.journals.sqlite.journal import SqliteJournal

FactT = TypeVar("FactT", bound=Fact)


class ProofCheck(NamedTuple):
    """One condition of the proof, with a text for each result."""

    holds: bool
    success: str
    failure: str
    details: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvidence:
    """What the run left in its files."""

    sessions: Mapping[str, Sequence[Fact]]
    """The facts of the run's session and of its sub-agents' sessions, by name."""
    problems: Sequence[RecordProblem]
    ledger: Ledger
    outcome: str
    sent: Sequence[str]
    """The lines of the outbox."""
    requests: Sequence[str]
    """The lines of the model's own meter."""
    payments: str
    report_written: bool
    kills: int

    @property
    def facts(self) -> Sequence[Fact]:
        """The facts of all sessions."""
        return [fact for facts in self.sessions.values() for fact in facts]

    def facts_of(self, kind: type[FactT]) -> list[FactT]:
        return [fact for fact in self.facts if isinstance(fact, kind)]

    @property
    def survived_kill(self) -> bool:
        """Whether the one kill came in a call: its start is the first process's last fact."""
        own = self.sessions.get(SESSION, ())
        before = [own[fact.seq - 2] for fact in own if isinstance(fact, RunResumed)]
        return self.kills == len(before) == 1 and isinstance(before[0], CallStarted)

    @property
    def subagent_sessions(self) -> Sequence[Sequence[Fact]]:
        """The sessions of sub-agents."""
        return [facts for name, facts in self.sessions.items() if name != SESSION]

    @property
    def lookup_counts(self) -> Sequence[int]:
        """How often the note was recalled, the skill read, and the clerk called."""
        own = self.sessions.get(SESSION, ())
        # The id of a call is unique only within its session.
        names = {
            call.id: call.name
            for step in own
            if isinstance(step, StepProposed)
            for call in step.reply.calls
        }
        ran = Counter(names[fact.call_id] for fact in own if isinstance(fact, CallStarted))
        recalled = sum(CUSTOMER_NOTE in fact.text for fact in self.facts_of(KnowledgeRecalled))
        return recalled, ran["skill"], ran["clerk"]

    @property
    def denial_count(self) -> int:
        return sum(isinstance(judged.verdict, Deny) for judged in self.facts_of(CallJudged))


async def gather_evidence(folder: Path, kills: int) -> RunEvidence:
    """Read everything again, from the files alone."""
    with SqliteJournal(folder / JOURNAL) as journal:
        names = sorted(summary.session for summary in await journal.sessions())
        problems = [problem for name in names for problem in await journal.verify(name)]
        sessions = {} if problems else {name: await journal.read(name) for name in names}
    state = fold(SESSION, sessions.get(SESSION, ()))
    return RunEvidence(
        sessions=sessions,
        problems=problems,
        ledger=state.ledger,
        outcome=(state.run.outcome if state.run else None) or "open",
        sent=read_outbox(folder),
        requests=read_meter(folder),
        payments=_read_text(folder / PAYMENTS_FILE),
        report_written=(folder / "report.md").exists(),
        kills=kills,
    )


def _read_text(path: Path) -> str:
    """The text of a file; empty if it does not exist."""
    return path.read_text("utf-8") if path.exists() else ""


def summarize_events(found: RunEvidence) -> Iterable[tuple[str, str]]:
    """What happened: a title and a line for each kind of event."""
    replies = len(found.facts_of(StepProposed))
    failed = len(found.facts_of(AttemptFailed))
    started = len(found.facts_of(CallStarted))
    resumed = len(found.facts_of(RunResumed))
    notes, skills, asked = found.lookup_counts
    usage = found.ledger.usage or Usage()
    yield "steps", f"{replies}, in {replies + failed} attempts: {failed} stalled"
    denied = found.denial_count
    yield "calls", f"{started + denied}: {started} ran, {denied} denied by the gate"
    yield "looked up", f"{notes} note in {JOURNAL}, {skills} skill, {asked} answer from a sub-agent"
    yield "processes", f"{resumed + 1}: {found.kills} killed with SIGKILL in the middle of a refund"
    chain = "broken" if found.problems else "verified"
    kept = f"{len(found.facts)} records in {len(found.sessions)} sessions"
    yield "journal", f"{kept}, chain {chain}"
    price = f"a made-up price (${PRICE.input} in, ${PRICE.output} out per million)"
    spent = f"${found.ledger.usd or Decimal(0):.4f} for about {usage.total:,} tokens"
    yield "cost", f"{spent}, at {price}; nothing was charged"


def run_checks(found: RunEvidence) -> list[ProofCheck]:
    """The conditions of the proof, each with its result."""
    keys = {refund_key(line) for line in found.sent}
    return [
        ProofCheck(
            len(found.sent) == len(keys) == 1
            and keys <= {s.key for s in found.facts_of(CallStarted)},
            "The refund was sent once. All of outbox.txt, 1 line with 1 key:",
            f"outbox.txt should hold one refund. Lines: {len(found.sent)}, keys: {len(keys)}.",
            found.sent,
        ),
        _check_paid_once(found),
        ProofCheck(
            found.lookup_counts == (1, 1, 1) and len(found.subagent_sessions) == 1,
            "Nothing was looked up twice: the note, the skill and the clerk's answer were in the "
            "journal when the second process opened it.",
            "the note, the skill and the clerk should be looked up once each: "
            f"{found.lookup_counts}, in {len(found.subagent_sessions)} sessions of sub-agents",
        ),
        ProofCheck(
            found.payments == PAYMENTS and found.denial_count == 1,
            "The call that the gate denied never ran: payments.csv is unchanged.",
            f"payments.csv changed, or {found.denial_count} calls were denied instead of one",
        ),
        ProofCheck(
            found.outcome == "completed" and found.report_written and found.survived_kill,
            "Killed in the middle of the refund, the run finished: report.md is written.",
            f"after {found.kills} kills the run is {found.outcome}",
        ),
        ProofCheck(
            bool(found.facts) and not found.problems,
            f"The journal is intact: {len(found.facts)} records, each chained to the one before.",
            f"the journal is damaged: {'; '.join(map(str, found.problems)) or 'it is empty'}",
        ),
    ]


def _check_paid_once(found: RunEvidence) -> ProofCheck:
    """The model's meter against the journal, for the agent and the clerk together."""
    replies = len(found.facts_of(StepProposed))
    failed = len(found.facts_of(AttemptFailed))
    attempts = len(found.facts_of(AttemptStarted))
    lines = sum(map(len, SCRIPT_LINES.values()))
    metered = len(found.requests)
    by_clerk = sum(" clerk," in line for line in found.requests)
    nested = [fact for facts in found.subagent_sessions for fact in facts]
    nested_attempts = sum(isinstance(fact, AttemptStarted) for fact in nested)
    return ProofCheck(
        metered == attempts == replies + failed
        and replies == lines
        and by_clerk == nested_attempts,
        f"No reply was paid for twice. The model's own meter counts {metered} requests: "
        f"{replies} replies, {by_clerk} of them to the clerk, and {failed} that stalled.",
        f"the model's meter counts {metered} requests, {by_clerk} by the clerk; the journal "
        f"{attempts}, {nested_attempts} by the clerk, with {replies} replies and {failed} failed; "
        f"there should be {lines} replies",
    )
