"""One trial: a session that is begun, or resumed, in its own copy of the workspace.

Invariant: a trial is found again by its name. Whatever died in between, the next call resumes
it, and nothing that was paid for or done is paid for or done again.
"""

import asyncio
import fcntl
import re
import shutil
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, TypeAlias

from msgspec.structs import replace as replace_struct

from windlass.agent.agent import Agent
from windlass.agent.options import RunOptions, parts_of
from windlass.core.errors import ConfigError, NothingToDo, SessionBusy, SetupDrifted
from windlass.core.events import AttemptStarted, Fact, RunEnded
from windlass.core.limits import Budget, Limits
from windlass.core.question import Question
from windlass.core.result import RunFailed, RunResult
from windlass.core.session_summary import TRIAL_PREFIX
from windlass.core.setup import describe_drift
from windlass.core.verdicts import PersonAnswer
from windlass.evaluation.cases import Case, ForkPoint
from windlass.evaluation.forks import begin_fork, prepare_fork_agent
from windlass.evaluation.records import TrialRecord, count_kept, read_calls_below
from windlass.evaluation.reports import find_disturbance
from windlass.ports import Journal
from windlass.private_files import make_private_folder

TRIAL_KEY = "trial"
"""The key of a trial's run: the same prompt in the same session never begins a second one."""
SESSIONS_AT_ONCE = 500
"""Sessions of a page while the recorded trials of an evaluation are looked for."""
_TRIAL_NAME = re.compile(r"(?P<case>[^/]+)/(?P<number>[0-9]+)(\.[0-9]+)?")
BUSY_WAIT_S = 1.0
"""How often to look whether a trial that another process runs has ended."""
ANSWERS_MAX = 100
"""Questions of one trial that are answered; a run that asks on and on is left waiting."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One of the times that a case is tried."""

    evaluation: str
    case: Case
    number: int
    """From 1 to the number of repeats."""
    retry: int = 1
    """Counts on if the one before said nothing about the agent: no money, or no provider."""
    workspace: Path | None = None
    """The copy of the case's workspace that this trial works in; None if it has none."""

    @property
    def session(self) -> str:
        """The session of the trial: a trial that was killed resumes in it."""
        again = f".{self.retry}" if self.retry > 1 else ""
        return f"{TRIAL_PREFIX}{self.evaluation}/{self.case.id}/{self.number}{again}"


AgentMaker: TypeAlias = Callable[[Trial], "Agent[Any] | AbstractAsyncContextManager[Agent[Any]]"]
"""Makes the agent of a trial, with tools for its workspace. A context manager may close it."""
AnswerQuestion: TypeAlias = Callable[[Question], PersonAnswer | None]
"""Plays the person who is asked. None leaves the question open."""


async def find_recorded_trials(journal: Journal, evaluation: str) -> dict[str, int]:
    """Return the highest number of a recorded trial of each case, by the id of the case."""
    begins = f"{TRIAL_PREFIX}{evaluation}/"
    found: dict[str, int] = {}
    cursor: str | None = None
    while True:
        page = await journal.sessions(begins, limit=SESSIONS_AT_ONCE, cursor=cursor)
        for summary in page:
            # The sessions of judges are below those of the trials, and have longer names.
            named = _TRIAL_NAME.fullmatch(summary.session.removeprefix(begins))
            if named and summary.session.startswith(begins):
                case = named["case"]
                found[case] = max(found.get(case, 0), int(named["number"]))
        cursor = page.cursor
        if cursor is None:
            return found


def use_agent(agent: Agent[Any]) -> AgentMaker:
    """Return a maker that gives the same agent to every trial."""

    def make(trial: Trial) -> Agent[Any]:
        if trial.case.workspace:
            raise ConfigError(
                f"case {trial.case.id} has a workspace, and an agent's tools are bound to one "
                "folder: pass a function that makes the agent of a trial"
            )
        return agent

    return make


@dataclass(frozen=True, slots=True)
class TrialRunner:
    """Runs the trials of one evaluation."""

    make_agent: AgentMaker
    journal: Journal
    folder: Path
    """Where the copies of workspaces are kept."""
    budget: Budget | None = None
    answer: AnswerQuestion | None = None
    drive: bool = True
    caller: str = ""
    limits: Limits | None = None
    """Of each trial, beside those of the agent: the tighter ones hold."""

    async def find_trial(self, trial: Trial) -> Trial:
        """Return the trial as it is to be run: a new one if the last said nothing of the agent."""
        while True:
            facts = await self.journal.read(trial.session)
            record = self.read_record(trial, facts)
            if not facts or find_disturbance(record) not in ("error", "not_run"):
                return self.place(trial, trial.retry)
            trial = replace(trial, retry=trial.retry + 1)

    def place(self, trial: Trial, retry: int) -> Trial:
        """Return a retry of a trial, with the folder that it works in."""
        trial = replace(trial, retry=retry)
        if not trial.case.workspace:
            return trial
        return replace(trial, workspace=self.folder.joinpath(*trial.session.split("/")))

    def read_record(self, trial: Trial, facts: Sequence[Fact]) -> TrialRecord:
        kept = count_kept(facts, trial.case)
        return TrialRecord(trial.case, trial.session, facts, kept, trial.workspace)

    async def read_whole_record(self, trial: Trial, facts: Sequence[Fact]) -> TrialRecord:
        """Return the record for scorers: with what sub-agents did."""
        record = self.read_record(trial, facts)
        below = await read_calls_below(self.journal, trial.session, record.calls)
        return replace(record, below=below)

    async def find_end(self, trial: Trial) -> float | None:
        """Return when a recorded trial ended, in seconds since the epoch; None if it has not."""
        return self.read_record(trial, await self.journal.read(trial.session)).ended_at

    async def run(self, trial: Trial) -> TrialRecord:
        """Run a trial to its end, or to a question, and return what is on record.

        Raises ConfigError if it was begun with another agent or another prompt.
        """
        if not self.drive and (trial.workspace is not None or trial.case.fork is not None):
            raise ConfigError(
                f"case {trial.case.id}: workers cannot run a case with a workspace or a fork, "
                "which needs an agent of its own: leave `drive` out"
            )
        if self.limits is not None and trial.case.fork is not None:
            raise ConfigError(
                f"case {trial.case.id}: a fork uses the limits of its agent: pass them to "
                "the agent, and leave `limits` out"
            )
        async with _hold_workspace(trial.workspace):
            is_new = not await self.journal.read(trial.session)
            if trial.workspace is not None:
                await asyncio.to_thread(prepare_workspace, trial, is_new=is_new)
            async with self._open_agent(trial) as agent:
                try:
                    await self._check_same_agent(agent, trial)
                    await self._drive(agent, trial, is_new=is_new)
                except SetupDrifted as error:
                    raise _other_agent_error(trial, error) from None
        return await self.read_whole_record(trial, await self.journal.read(trial.session))

    @asynccontextmanager
    async def _open_agent(self, trial: Trial) -> AsyncGenerator[Agent[Any]]:
        async with AsyncExitStack() as stack:
            made = self.make_agent(trial)
            agent = made if isinstance(made, Agent) else await stack.enter_async_context(made)
            own = agent.with_journal(self.journal)
            own = await prepare_fork_agent(
                own,
                trial.case,
                trial.session,
                has_workspace=trial.workspace is not None,
                budget=self.budget,
            )
            stack.push_async_callback(own.aclose)
            yield own

    async def _check_same_agent(self, agent: Agent[Any], trial: Trial) -> None:
        """Raise SetupDrifted if the trial was begun with another agent: they must not be mixed."""
        record = self.read_record(trial, await self.journal.read(trial.session))
        recorded = record.setup
        has_worked = any(isinstance(fact, AttemptStarted | RunEnded) for fact in record.own_facts)
        if recorded is None or not has_worked:
            return
        offered = parts_of(agent).setup
        if parts_of(agent).instructions is not None:
            # They are made for each run, so that they say nothing about the agent.
            offered = replace_struct(offered, instructions=recorded.instructions)
        drift = [*describe_drift(recorded, offered)]
        name = parts_of(agent).world.agent
        if record.agent_name not in (None, name):
            drift.insert(
                0, f"agent {record.agent_name or '(unnamed)'} became {name or '(unnamed)'}"
            )
        if drift:
            raise SetupDrifted(tuple(drift))

    async def _drive(self, agent: Agent[Any], trial: Trial, *, is_new: bool) -> None:
        """Do what the trial needs, and answer its questions if an answer is configured."""
        if trial.case.fork is None:
            result = await self._settle(self._start(agent, trial))
        else:
            if is_new:
                await self._begin_fork(trial.case.fork, trial.session)
            result = await self._settle(self._go_on(agent, trial.session))
        for _ in range(ANSWERS_MAX):
            question = _next_question(result)
            verdict = self.answer(question) if self.answer and question else None
            if question is None or verdict is None:
                return
            result = await self._settle(
                agent.answer(
                    question.session,
                    question.call_id,
                    verdict,
                    digest=question.digest,
                    by="evaluation",
                    consent=trial.case.fork is not None,
                )
            )

    async def _start(self, agent: Agent[Any], trial: Trial) -> RunResult[Any]:
        """Begin the run, or find the one that was begun before, and wait for it."""
        options = RunOptions(
            key=TRIAL_KEY,
            caller=self.caller,
            budgets=[self.budget] if self.budget is not None else [],
            drive=self.drive,
        )
        if self.limits is not None:
            options["limits"] = self.limits
        handle = await agent.start(trial.case.build_prompt(), session=trial.session, **options)
        return await handle.result()

    async def _go_on(self, agent: Agent[Any], session: str) -> RunResult[Any] | None:
        """Continue a fork, from exactly the record that it was made at."""
        while True:
            try:
                return await agent.resume(session, consent=True)
            except NothingToDo:
                return None
            except SessionBusy:
                # Another process runs the same evaluation, and has this trial.
                await asyncio.sleep(BUSY_WAIT_S)

    async def _begin_fork(self, point: ForkPoint, session: str) -> None:
        try:
            await begin_fork(self.journal, point, session)
        except ConfigError:
            # Another process that runs the same evaluation may have been first.
            if not await self.journal.read(session):
                raise

    async def _settle(self, work: Awaitable[RunResult[Any] | None]) -> RunResult[Any] | None:
        """Wait for a run. One that failed is on record, and its report says so."""
        try:
            return await work
        except RunFailed as failed:
            return failed.result


def _other_agent_error(trial: Trial, error: SetupDrifted) -> ConfigError:
    return ConfigError(
        f"evaluation {trial.evaluation!r} was begun with another agent ({'; '.join(error.drift)}). "
        "Use another name for this one, or go on with the agent as it was."
    )


@asynccontextmanager
async def _hold_workspace(workspace: Path | None) -> AsyncGenerator[None]:
    """Keep other processes that run the same evaluation away from a copy while it is used."""
    if workspace is None:
        yield
        return
    # It is a lock of the kernel, which does not notify when it is free.
    while (held := await asyncio.to_thread(_try_lock, workspace)) is None:  # noqa: ASYNC110
        await asyncio.sleep(BUSY_WAIT_S)
    try:
        yield
    finally:
        held.close()


def _try_lock(workspace: Path) -> IO[bytes] | None:
    """Return a file whose lock the kernel frees when its holder dies; None if it is held."""
    make_private_folder(workspace.parent)
    file = workspace.with_name(f"{workspace.name}.lock").open("wb")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


def _next_question(result: RunResult[Any] | None) -> Question | None:
    if result is None or result.outcome != "suspended":
        return None
    return next(iter(result.questions), None)


def prepare_workspace(trial: Trial, *, is_new: bool) -> None:
    """Copy the workspace of a case for one trial. Raises ConfigError if it is not available.

    A copy appears whole or not at all, so that a crash leaves none that is half there.
    """
    copy = trial.workspace
    assert copy is not None  # noqa: S101 - the caller has looked
    source = Path(trial.case.workspace)
    if not source.is_dir():
        raise ConfigError(f"case {trial.case.id}: there is no folder {source}")
    if copy.resolve().is_relative_to(source.resolve()):
        raise ConfigError(
            f"case {trial.case.id}: the copy {copy} would lie inside of the workspace itself; "
            "choose another `folder`"
        )
    if not is_new:
        if not copy.is_dir():
            raise ConfigError(
                f"{trial.session} has begun, but its workspace {copy} was deleted: use another "
                "name for the evaluation"
            )
        return
    partial = copy.with_name(f"{copy.name}.part")
    for leftover in (partial, copy):
        if leftover.exists():
            shutil.rmtree(leftover)
    make_private_folder(partial.parent)
    shutil.copytree(source, partial, symlinks=True)
    partial.rename(copy)
