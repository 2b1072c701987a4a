"""Cases from recorded sessions: each trial continues from a record, with another model or prompt.

cases = await cases_from_sessions(journal, query="refund", tools="replay")
"""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace as replace_struct

from windlass.agent.agent import Agent, with_parts
from windlass.agent.openings import add_budgets
from windlass.agent.options import parts_of
from windlass.core.errors import ConfigError, NothingToDo
from windlass.core.events import Fact, RunEnded, RunStarted
from windlass.core.limits import Budget
from windlass.core.session_summary import ENDED_STATES, TRIAL_PREFIX, StateFilter
from windlass.evaluation.cases import Case, ForkPoint, ToolMode, make_id
from windlass.evaluation.records import count_kept, read_calls
from windlass.evaluation.replayed_tools import ReplayedTools, check_fork_tools, record_results
from windlass.gates.grants import GrantGate
from windlass.journals.forking import fork
from windlass.ports import Journal

SESSIONS_MAX = 100


async def cases_from_sessions(  # noqa: PLR0913 - one parameter per filter and choice
    journal: Journal,
    sessions: Sequence[str] = (),
    *,
    query: str | None = None,
    agent: str | None = None,
    state: StateFilter | None = None,
    limit: int = SESSIONS_MAX,
    at: int | None = None,
    tools: ToolMode = "replay",
    allow: Sequence[str] = (),
) -> list[Case]:
    """Return a case for each recorded session: those named, or the latest that pass the filters.

    Without `at`, a case begins with the prompt of the session's last run; with it, after that
    record. Raises ConfigError if a session has no such record, or no run is open there.
    """
    names = list(sessions) or await _find_sessions(
        journal, query=query, agent=agent, state=state, limit=limit
    )
    cases = [await _make_case(journal, name, at, tools=tools, allow=tuple(allow)) for name in names]
    if not cases:
        raise NothingToDo("no recorded session passes the filters")
    return cases


async def _find_sessions(
    journal: Journal, *, query: str | None, agent: str | None, state: StateFilter | None, limit: int
) -> list[str]:
    found: list[str] = []
    cursor: str | None = None
    while len(found) < limit:
        page = await journal.sessions(
            query, agent=agent, state=state or ENDED_STATES, parent="", cursor=cursor
        )
        found += [
            summary.session for summary in page if not summary.session.startswith(TRIAL_PREFIX)
        ]
        cursor = page.cursor
        if cursor is None:
            break
    return found[:limit]


async def _make_case(
    journal: Journal, session: str, at: int | None, *, tools: ToolMode, allow: tuple[str, ...]
) -> Case:
    facts = await journal.read(session)
    starts = [fact.seq for fact in facts if isinstance(fact, RunStarted)]
    if not starts:
        raise ConfigError(f"there is no session {session!r} with a run")
    point = ForkPoint(session=session, at=at or starts[-1], tools=tools, allow=allow)
    check_fork_point(point, facts)
    return Case(id=make_id(f"{session}@{point.at}"), fork=point, tags=("from-session",))


def check_fork_point(point: ForkPoint, facts: Sequence[Fact]) -> None:
    """Raise ConfigError if no run is open after the record where a case begins."""
    if not 1 <= point.at <= len(facts):
        raise ConfigError(
            f"session {point.session!r} has records 1 to {len(facts)}, but no record {point.at}"
        )
    for fact in reversed(facts[: point.at]):
        if isinstance(fact, RunStarted):
            return
        if isinstance(fact, RunEnded):
            break
    raise ConfigError(
        f"session {point.session!r}: no run is open after record {point.at}, so there is nothing "
        "to go on with. Choose a record between the start of a run and its end."
    )


async def begin_fork(journal: Journal, point: ForkPoint, session: str) -> None:
    """Make the session of a trial: the records that it begins with, and none of their rights.

    What runs and budgets of production had been given stays there. Raises ConfigError.
    """
    check_fork_point(point, await journal.read(point.session))
    await fork(journal, point.session, point.at, session, detached=True)


async def prepare_fork_agent(
    agent: Agent[Any], case: Case, session: str, *, has_workspace: bool, budget: Budget | None
) -> Agent[Any]:
    """Return the agent for a trial that was forked: what it calls is replayed or refused.

    What a person allowed in the recorded session counts for nothing here. Raises ConfigError.
    """
    point = case.fork
    if point is None:
        return agent
    check_fork_tools(point, parts_of(agent).setup.tools, has_workspace=has_workspace)
    journal = parts_of(agent).world.journal
    source = await journal.read(point.session)
    own = await journal.read(session)
    tools = ReplayedTools(
        parts_of(agent).world.tools,
        record_results(read_calls(point.session, source, point.at)),
        mode=point.tools,
        allow=point.allow,
        done=read_calls(session, own, count_kept(own, case)),
    )
    gate = parts_of(agent).world.gate
    if isinstance(gate, GrantGate):
        # Without it, no permission for the rest of a session is looked at.
        gate = gate.gate
    world = replace_struct(parts_of(agent).world, tools=tools, gate=gate)
    setup = parts_of(agent).setup
    if budget is not None:
        setup = add_budgets(setup, [budget])
    return with_parts(agent, replace_struct(parts_of(agent), world=world, setup=setup))
