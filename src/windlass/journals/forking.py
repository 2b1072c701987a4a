"""Forks: a new session that begins as a copy of an old one, up to a record.

Any journal will do, also a program's own store of facts.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from msgspec.structs import replace

from windlass.core.errors import ConfigError, JournalCorrupt, SessionBusy
from windlass.core.events import (
    RULES_VERSION,
    CallFinished,
    CallJudged,
    Fact,
    RunEnded,
    RunQueued,
    RunResumed,
    RunStarted,
    SessionImported,
)
from windlass.core.fold.run import fold
from windlass.core.messages import ToolResult
from windlass.core.session_summary import check_session, row_of
from windlass.core.setup import Setup, digest
from windlass.core.state import CallState, State
from windlass.core.verdicts import Ask, stamp_question
from windlass.journals.completing import complete_journal
from windlass.journals.wording import no_session_error, session_exists_error
from windlass.ports.journals import GivenJournal, Journal

FORKS_MAX = 1_000
"""Forks of a session at one record that get a name by themselves."""


async def fork(
    journal: GivenJournal, session: str, at: int, into: str | None = None, *, detached: bool = False
) -> str:
    """Begin a new session with the first `at` records of another one; returns its name.

    Without `into` the new session is named after the old one: `<session>~<at>`. The old session is
    only read. What happens later in one of the two is not seen in the other.

    What was under way at record `at` belongs to the old session; the fork cannot know how it ended.
    A request to the model counts as all that was reserved for it, as after a crash. A call that may
    have had an effect is not run again: its outcome counts as unknown, and the run's rule
    `on_unknown` decides whether the model gets this as the result or a person is asked. Reads are
    made again. A call that a person had allowed and that had not begun is asked about again, and so
    is one that some of several people had agreed to. With `detached`, the fork does not draw on the
    shared budgets that were given with the runs, and does not belong to their traces and keys: it
    is a trial, not a part of the work.

    Raises ConfigError if there is no such session or record, or if `into` exists already, and
    JournalCorrupt if the old session was changed without the user's key: the copy would be signed.
    """
    journal = complete_journal(journal)
    facts = await journal.read(check_session(session))
    await _refuse_forged(journal, session)
    if not facts:
        raise await no_session_error(journal, session)
    if not 1 <= at <= len(facts):
        raise ConfigError(f"session {session!r} has records 1 to {len(facts)}, but no record {at}")
    copied = _copy_records(session, facts, at, detached=detached)
    for name in _fork_names(session, at, into):
        if await has_waiting_prompts(journal, name):
            continue
        # The append is refused if the name is taken, so two forks at once get different names.
        with suppress(SessionBusy):
            await journal.append(name, copied, row_of(fold(name, copied)))
            return name
    if into is not None:
        raise session_exists_error(into)
    raise ConfigError(f"session {session!r} has {FORKS_MAX} forks at record {at}; name the new one")


async def _refuse_forged(journal: Journal, session: str) -> None:
    """Raise JournalCorrupt if a session was changed without the user's key."""
    forgeries = await journal.find_forgeries(session)
    if forgeries:
        raise JournalCorrupt(
            f"session {session!r} will not be forked: {forgeries[0]}. If you moved the journal "
            "here or restored it from a backup, run `windlass sessions verify --accept`."
        )


def _copy_records(
    session: str, facts: Sequence[Fact], at: int, *, detached: bool = False
) -> list[Fact]:
    """Return the records that the fork begins with: the first `at`, and what settles open calls."""
    # A fork is its own session: it does not work for a parent, and is not deleted with one.
    copied = [
        replace(fact, parent="") if isinstance(fact, RunStarted) else fact for fact in facts[:at]
    ]
    if detached:
        copied = [_detach(fact) for fact in copied]
    if any(isinstance(fact, SessionImported) for fact in facts[at:]):
        # The copied records came from a file too, although the fact that says so comes later.
        state = fold(session, copied)
        mark = SessionImported(session, state.unfinished_calls, seq=state.seq + 1, at=state.at)
        copied.append(mark)
    return copied + _settle_open_calls(fold(session, copied))


def _detach(fact: Fact) -> Fact:
    """Return a record without the budgets, the key and the trace that were given with its run."""
    if isinstance(fact, RunQueued):
        fact = replace(fact, key="", digest="")
    if isinstance(fact, RunStarted):
        fact = replace(fact, key="", trace="")
    if not isinstance(fact, RunStarted | RunResumed) or fact.setup is None:
        return fact
    budgets = tuple(budget for budget in fact.setup.budgets if not budget.with_run)
    return replace(fact, setup=replace(fact.setup, budgets=budgets))


async def has_waiting_prompts(journal: Journal, session: str) -> bool:
    """Whether prompts wait for a session, which may have no facts yet: its name is taken."""
    return bool(await journal.read_mail(session, "prompts"))


def _fork_names(session: str, at: int, into: str | None) -> Iterator[str]:
    """Yield the names that the new session may have: the one that was asked for, or free ones."""
    if into is not None:
        yield check_session(into)
        return
    yield f"{session}~{at}"
    yield from (f"{session}~{at}.{nth}" for nth in range(2, FORKS_MAX + 1))


def _settle_open_calls(state: State) -> list[Fact]:
    """Return the facts that settle what belongs to the old session: effects, and a prompt."""
    if state.is_queued and state.run is not None:
        reason = f"its prompt is in the queue of session {state.session}"
        end = RunEnded("cancelled", reason, prompt=state.run.queued_mail)
        return [replace(end, seq=state.seq + 1, at=state.at)]
    if state.setup is None or state.step is None:
        return []
    calls = state.step.calls
    unknown = [call for call in calls if _may_have_had_effect(call, state.setup)]
    # Writes come last: once they are settled, a driver asks again what to do.
    unknown.sort(key=lambda call: _effect_of(call, state.setup) == "write")
    allowed = [call for call in calls if call.phase == "cleared" and call.answered]
    agreed = [call for call in calls if call.phase == "asked" and call.answers]
    if not (unknown or allowed or agreed):
        return []
    facts: list[Fact] = [RunResumed(rules=RULES_VERSION)]
    # Those who agreed did so for the old session. Here everybody is asked from the beginning.
    facts += (_ask_again(call, _question_of(call), "fork", state) for call in agreed)
    for call in allowed:
        # A person allowed one call, so it must not run in two sessions.
        question = (
            f"{call.call.name} was allowed in session {state.session}. May it be called here too?"
        )
        facts.append(_ask_again(call, question, "fork", state))
    ask = state.setup.rules.on_unknown == "ask"
    facts += (_settle_unknown_call(call, state, ask=ask) for call in unknown)
    return [replace(fact, seq=state.seq + nth, at=state.at) for nth, fact in enumerate(facts, 1)]


def _may_have_had_effect(call: CallState, setup: Setup) -> bool:
    return call.phase in ("started", "interrupted") and _effect_of(call, setup) != "read"


def _effect_of(call: CallState, setup: Setup | None) -> str:
    spec = setup.find_tool(call.call.name) if setup else None
    # A tool that is no longer known may have written.
    return spec.effect if spec else "write"


def _settle_unknown_call(call: CallState, state: State, *, ask: bool) -> CallFinished | CallJudged:
    if ask:
        question = f"{call.call.name} had started in session {state.session}. Run it again here?"
        return _ask_again(call, question, "interrupted", state)
    message = "Interrupted: it had started, and it is not known whether it took effect."
    result = ToolResult.from_text("unknown", message)
    return CallFinished(call.id, result, name=call.call.name)


def _question_of(call: CallState) -> str:
    return call.question.question if call.question else ""


def _ask_again(call: CallState, question: str, rule: str, state: State) -> CallJudged:
    """Return a question about a call in its fork, for those who had to agree to it before."""
    ask = Ask(question, rule, call.question.expires_at if call.question else None)
    if call.approvals and state.run is not None:
        ask = stamp_question(
            replace(ask, approvals=call.approvals), state.run.caller, state.run.context, state.at
        )
    return CallJudged(call.id, ask, digest=digest(call.decoded_arguments))
