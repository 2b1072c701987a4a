"""One evaluation under way: its trials are run and scored, and its report grows with them."""

import asyncio
import hashlib
import itertools
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, TypedDict

from windlass.agent.agent import Agent
from windlass.agent.options import BuiltAgent, parts_of
from windlass.core.errors import ConfigError
from windlass.core.limits import Budget, Limits, Money
from windlass.core.setup import Setup
from windlass.core.text_clip import clip_line
from windlass.environ import xdg_folder
from windlass.evaluation.cases import Case
from windlass.evaluation.checks import build_scorers
from windlass.evaluation.judges import TrialJudge
from windlass.evaluation.records import TrialRecord
from windlass.evaluation.reports import (
    Report,
    TrialReport,
    find_disturbance,
    report_case,
    report_trial,
)
from windlass.evaluation.scorers import describe_unscored
from windlass.evaluation.scores import SHOWN_CHARS, Score, Scorer, name_scorer, score_trial
from windlass.evaluation.stored_reports import StoredEvaluation, read_evaluation, store_evaluation
from windlass.evaluation.trials import AgentMaker, AnswerQuestion, Trial, TrialRunner, use_agent
from windlass.ports import Journal

AT_ONCE = 4
REPEAT_MAX = 10_000
STORE_EVERY_S = 2.0
"""How often progress is written to the journal, for watchers."""
_NAME = re.compile(r"[A-Za-z0-9_.:@=-]{1,120}")


class EvaluateOptions(TypedDict, total=False):
    """The options of an evaluation. Each has a default."""

    repeat: int
    """How often each case is tried; 1 by default."""
    at_once: int
    """Trials that run at the same time; 4 by default."""
    budget: Budget | Money | None
    """The most that all trials and judges may cost together, in US dollars; or a shared budget,
    which may also limit tokens. It holds across processes and crashes."""
    journal: Journal | None
    """Where the trials are kept; the agent's own by default. Needed with a function."""
    folder: Path | None
    """Where the copies of workspaces are kept; a folder of the user's by default."""
    answer: AnswerQuestion | None
    """Answers what a person would be asked. Without it, a trial that asks stays waiting."""
    caller: str
    """On whose behalf the trials are run: for the gate, and for the owner of the sessions."""
    drive: bool
    """Whether this process runs the trials, which is the default. If not, workers do."""
    limits: Limits | None
    """Of each trial: steps, tokens, dollars, seconds. Those of the agent hold as well."""
    on_progress: "Callable[[EvaluationProgress], None] | None"
    """Is called when a trial begins and when it ends; must return at once."""


@dataclass(slots=True)
class EvaluationProgress:
    """How far an evaluation is."""

    total: int
    done: int = 0
    passed: int = 0
    failed: int = 0
    usd: Decimal = Decimal(0)
    """What is known to be spent by the agent and the judges."""
    running: list[str] = field(default_factory=list[str])
    """The sessions of the trials that run now."""
    last: TrialReport | None = None
    """The trial that ended last."""
    last_was_recorded: bool = False
    """Whether that trial had ended before this call, so that it was only scored."""
    recorded: int = 0
    """Trials that had ended before this call."""
    recorded_at: float = 0.0
    """When the latest of them ended, in seconds since the epoch."""


class EvaluationRun:
    """One call of `evaluate`."""

    def __init__(
        self,
        agent: Agent[Any] | AgentMaker,
        cases: Sequence[Case],
        name: str,
        scorers: Sequence[Scorer],
        options: EvaluateOptions,
    ) -> None:
        for option in options:
            if option not in EvaluateOptions.__optional_keys__:
                raise ConfigError(f"evaluate() has no option {option!r}")
        self._name = check_evaluation_name(name)
        self._cases = cases
        self._repeat = _check_count("repeat", options.get("repeat", 1))
        self.at_once = _check_count("at_once", options.get("at_once", AT_ONCE))
        self._scorers = list(scorers)
        # Built first: a check that is wrong is found before anything is paid for.
        self._checks = {case.id: build_scorers(case) for case in cases}
        self._warnings = describe_unscored(
            [(case, self._scorers + self._checks[case.id]) for case in cases]
        )
        self._journal = choose_journal(agent, options.get("journal"))
        self._budget = make_budget(name, options.get("budget"))
        self._runner = self._make_runner(agent, options)
        self._on_progress = options.get("on_progress")
        self._reports: dict[tuple[str, int], TrialReport] = {}
        self._setup: Setup | None = None
        self._agent_name = ""
        self._unpriced = set[str]()
        self._is_dry = False
        self._stored_at = 0.0
        self._earlier: StoredEvaluation | None = None
        self.progress = EvaluationProgress(total=len(cases) * self._repeat)

    def warn_of_unscored_cases(self, ids: Sequence[str]) -> None:
        """Say in the report that recorded trials of other cases were left out."""
        if ids:
            names = clip_line(", ".join(ids), SHOWN_CHARS)
            self._warnings.append(f"The trials of cases that were not given are left out: {names}.")

    def _make_runner(self, agent: Agent[Any] | AgentMaker, options: EvaluateOptions) -> TrialRunner:
        return TrialRunner(
            agent if callable(agent) else use_agent(agent),
            self._journal,
            options.get("folder") or _choose_folder(self._journal),
            self._budget,
            options.get("answer"),
            options.get("drive", True),
            options.get("caller", ""),
            options.get("limits"),
        )

    def list_trials(self) -> list[Trial]:
        """Return all trials, the first of each case first: early numbers then say something."""
        return [
            Trial(self._name, case, number)
            for number in range(1, self._repeat + 1)
            for case in self._cases
        ]

    async def begin(self) -> None:
        """Read what is kept under the name, and say that it continues."""
        self._earlier = await self._read_earlier()
        await self._store()

    async def give_up(self) -> None:
        """Keep the report of before if nothing was done: another agent was refused."""
        if self._earlier is not None and not self._reports:
            await store_evaluation(self._journal, self._earlier)

    async def _read_earlier(self) -> StoredEvaluation | None:
        try:
            return await read_evaluation(self._journal, self._name)
        except ConfigError:
            # It cannot be read, and is written again.
            return None

    async def score_only(self) -> Report:
        """Score what is on record."""
        for trial in self.list_trials():
            found = await self._find_recorded(trial)
            facts = await self._journal.read(found.session)
            if facts:
                record = await self._runner.read_whole_record(found, facts)
                await self._score(found, record, record.ended_at)
            else:
                self._note(trial, TrialReport(session=trial.session, status="not_run"))
        return await self.finish()

    async def _find_recorded(self, trial: Trial) -> Trial:
        """Return the trial as it was last run: its latest retry that has records."""
        found = await self._runner.find_trial(trial)
        if found.retry > 1 and not await self._journal.read(found.session):
            return self._runner.place(trial, found.retry - 1)
        return found

    async def run_trial(self, trial: Trial) -> None:
        trial = await self._runner.find_trial(trial)
        if self._is_dry and not await self._journal.read(trial.session):
            self._note(trial, TrialReport(session=trial.session, status="not_run"))
            return
        self.progress.running.append(trial.session)
        self._tell()
        try:
            ended_at = await self._runner.find_end(trial)
            record = await self._runner.run(trial)
            await self._score(trial, record, ended_at)
        finally:
            self.progress.running.remove(trial.session)
        if time.monotonic() - self._stored_at > STORE_EVERY_S:
            await self._store()

    async def _score(self, trial: Trial, record: TrialRecord, recorded_at: float | None) -> None:
        """Score a trial. `recorded_at` says when it ended, if that was before this call."""
        self._setup = self._setup or record.setup
        self._agent_name = self._agent_name or record.agent_name or ""
        self._unpriced.update(record.unpriced_models)
        scores: list[Score] = []
        if find_disturbance(record) is None:
            scorers = [*self._scorers, *self._checks[trial.case.id]]
            scores = [
                score for scorer in scorers for score in await self._score_one(scorer, record)
            ]
        report = report_trial(record, scores)
        # The trials that were to follow would only find that the money is used up.
        self._is_dry = self._is_dry or report.status == "not_run"
        self._note(trial, report, recorded_at)

    async def _score_one(self, scorer: Scorer, record: TrialRecord) -> list[Score]:
        if not isinstance(scorer, TrialJudge):
            return await score_trial(scorer, record)
        return await scorer.judge_trial(record, self._journal, self._budget)

    def _note(self, trial: Trial, report: TrialReport, recorded_at: float | None = None) -> None:
        self._reports[trial.case.id, trial.number] = report
        progress = self.progress
        progress.done += 1
        progress.passed += report.status == "passed"
        progress.failed += report.status == "failed"
        progress.usd += report.usd or 0
        progress.usd += sum((score.usd or Decimal(0) for score in report.scores), Decimal(0))
        progress.last = report
        progress.last_was_recorded = recorded_at is not None
        if recorded_at is not None:
            progress.recorded += 1
            progress.recorded_at = max(progress.recorded_at, recorded_at)
        self._tell()

    def _tell(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self.progress)

    def build_report(self) -> Report:
        """Return what was found so far."""
        setup = self._setup
        budget = self._budget
        names = [name_scorer(scorer) for scorer in self._scorers]
        return Report(
            name=self._name,
            repeat=self._repeat,
            cases=tuple(
                report_case(
                    case,
                    [
                        self._reports[case.id, number]
                        for number in range(1, self._repeat + 1)
                        if (case.id, number) in self._reports
                    ],
                )
                for case in self._cases
            ),
            model=setup.model.name if setup else "",
            instructions=setup.instructions if setup else "",
            agent=self._agent_name,
            scorers=tuple(names),
            budget_usd=budget.usd if budget else None,
            budget_tokens=budget.tokens if budget else None,
            created=time.time(),
            warnings=tuple(self._warnings),
            unpriced=tuple(sorted(self._unpriced)),
        )

    async def finish(self) -> Report:
        await self._store()
        return self.build_report()

    async def _store(self) -> None:
        self._stored_at = time.monotonic()
        report = self.build_report() if self._reports else None
        stored = StoredEvaluation(
            name=self._name,
            trials=self.progress.total,
            caller=self._runner.caller,
            updated=time.time(),
            report=report,
        )
        await store_evaluation(self._journal, stored)


async def run_together(runs: Sequence[EvaluationRun], at_once: int) -> list[Report]:
    """Run and score the trials of several evaluations, some at a time, and return their reports.

    The first trials of all come first: if the money is used up, all have got as far.
    """
    for run in runs:
        await run.begin()
    turns = itertools.zip_longest(*(run.list_trials() for run in runs))
    waiting = (
        (run, trial)
        for turn in turns
        for run, trial in zip(runs, turn, strict=True)
        if trial is not None
    )

    async def work() -> None:
        for run, trial in waiting:
            await run.run_trial(trial)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(at_once, sum(run.progress.total for run in runs))):
                group.create_task(work())
    except BaseExceptionGroup as errors:
        for run in runs:
            await run.give_up()
        # The others were released: the next call resumes them.
        raise errors.exceptions[0] from None
    return [await run.finish() for run in runs]


def check_evaluation_name(name: str) -> str:
    """Return the name of an evaluation. Raises ConfigError if it cannot be one."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"name={name!r}: the name of an evaluation has 1 to 120 letters, digits or any of "
            "_ . : @ = -"
        )
    return name


def _check_count(name: str, count: int) -> int:
    if not 1 <= count <= REPEAT_MAX:
        raise ConfigError(f"{name}={count}: it must be a number from 1 to {REPEAT_MAX}")
    return count


def choose_journal(agent: Agent[Any] | AgentMaker, given: Journal | None) -> Journal:
    if given is not None:
        return given
    if isinstance(agent, BuiltAgent):
        return parts_of(agent).world.journal
    raise ConfigError("evaluate(): pass `journal` if the agent is made by a function")


def _choose_folder(journal: Journal) -> Path:
    """Return where copies of workspaces are kept: not among those of another journal."""
    place = f"{getattr(journal, 'name', '')}\0{Path.cwd()}"
    digest = hashlib.sha256(place.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return xdg_folder("STATE", ".local/state") / "workspaces" / digest


def make_budget(name: str, given: Budget | Money | None) -> Budget | None:
    if given is None or isinstance(given, Budget):
        return given
    return Budget(f"eval/{name}", usd=given)
