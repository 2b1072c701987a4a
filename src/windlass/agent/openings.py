"""The facts that open a run: a new one, one that was left open, one whose question is answered.

Each function gets the session as it is found, and raises ForOperator if no run may be opened so.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from windlass.agent.options import Briefing, InstructionFunction, read_own_limits
from windlass.core.decide.undoing import UndoPlan
from windlass.core.errors import (
    ConfigError,
    ForOperator,
    NothingToDo,
    RunUnfinished,
    SessionBusy,
    SetupDrifted,
)
from windlass.core.events import (
    RULES_VERSION,
    Fact,
    RunContinued,
    RunResumed,
    RunStarted,
)
from windlass.core.limits import Budget, Limits, tighten_limits
from windlass.core.messages import ContentPart, Label, Message, TextPart
from windlass.core.secrets.mask import Mask
from windlass.core.session_summary import check_text
from windlass.core.setup import Setup, describe_drift
from windlass.core.state import StartKey, State
from windlass.core.work_folder import WorkFolder
from windlass.ports import World


class RunTask(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is for, and what the program that runs it says about it."""

    prompt: tuple[ContentPart, ...]
    caller: str = ""
    context: Mapping[str, Any] = msgspec.field(default_factory=dict[str, Any])
    pinned: bool = False
    parent: str = ""
    """The call that a sub-agent works for."""
    labels: tuple[Label, ...] = ()
    earlier: tuple[Message, ...] = ()
    """A conversation from elsewhere that a new session goes on with."""
    key: str = ""
    """The caller's own name for this start, which must not happen twice."""
    trace: str = ""
    """The trace that the run belongs to, as in a `traceparent` header."""
    mail: int = 0
    """The number of the prompt in the queue of the session."""
    on_partial: Literal["", "fail", "restart"] = ""
    """What happens when a reply breaks off after some of it was seen; empty: as the agent says."""
    budgets: tuple[Budget, ...] = ()
    """Shared budgets that this run draws on, besides those of the agent."""
    own_folder: bool = False
    """Whether a new session works in a folder of the caller's own."""
    folder: WorkFolder | None = None
    """The folder of the run that a sub-agent or code works for."""


class StartRepeated(ForOperator):
    """A start with this key has happened in this session already."""


class RunOpenings:
    """Opens runs with one setup."""

    def __init__(
        self,
        setup: Setup,
        world: World,
        mask: Mask,
        instructions: InstructionFunction | None = None,
        undo_setup: Setup | None = None,
    ) -> None:
        self.setup = setup
        """That of a run which is not limited further."""
        self._undo_setup = undo_setup or setup
        self._world = world
        self._mask = mask
        self._instructions = instructions

    def open_new(self, state: State, task: RunTask, *, needs_folder: bool = True) -> Sequence[Fact]:
        """Open a new run. Raises RunUnfinished if the last one has not ended.

        `needs_folder`: False for a run that is paused before it does anything. Raises
        WorkspaceMissing if the folder of the session is not here, and ConfigError for earlier
        messages in a session that has a conversation already.
        """
        _check_start(state, task)
        if needs_folder:
            self.require_folder(state)
        number = state.run.number + 1 if state.run else 1
        setup = self._setup_for(Briefing(state.session, number, task.caller, task.context))
        setup = add_budgets(setup, task.budgets)
        return (
            RunStarted(
                number,
                task.prompt,
                # A setup is recorded once, and again only when it changes.
                None if state.recorded_setup == setup else setup,
                task.caller,
                dict(task.context),
                task.pinned,
                task.parent,
                task.labels,
                rules=RULES_VERSION,
                agent=self._world.agent,
                earlier=task.earlier,
                key=task.key,
                trace=task.trace,
                mail=task.mail,
                # Recorded here, so that no later driver and no watcher changes it.
                on_partial=task.on_partial or setup.rules.on_partial,
                folder=self._choose_folder(state, task),
            ),
        )

    def _choose_folder(self, state: State, task: RunTask) -> WorkFolder | None:
        """Return the folder of a new run: the session's, its caller's, or None, the agent's own.

        Raises ConfigError if it cannot be made.
        """
        if state.has_folder:
            return state.folder
        if task.own_folder and self._world.folders is not None:
            return self._world.folders.create(task.caller)
        return task.folder

    def require_folder(self, state: State) -> None:
        """Raise WorkspaceMissing if the folder of a session is not here."""
        if state.folder is not None:
            self._world.find_folder(state.folder)

    def open_undo(
        self,
        state: State,
        plan: UndoPlan,
        *,
        seq: int,
        caller: str,
        limits: Limits | None = None,
        parent: str = "",
        labels: tuple[Label, ...] = (),
    ) -> Sequence[Fact]:
        """Open a run that undoes calls, by a plan that was made at record `seq`.

        `parent` is the call that it works for, and `labels` what that one brings, if there is one.

        Raises RunUnfinished if the last run has not ended, SessionBusy if the plan is outdated.
        """
        _require_ended(state)
        if state.seq != seq:
            raise SessionBusy(f"session {state.session} has gone on meanwhile: undo it again")
        self.require_folder(state)
        number = state.run.number + 1 if state.run else 1
        setup = self._undo_setup
        if limits is not None:
            setup = replace(setup, limits=limits)
        started = RunStarted(
            number,
            (TextPart(plan.describe()),),
            None if state.recorded_setup == setup else setup,
            caller,
            # The gate may judge by it, and the command line finds its folder there.
            dict(state.run.context) if state.run else {},
            parent=parent,
            labels=labels,
            rules=RULES_VERSION,
            agent=self._world.agent,
            folder=state.folder,
        )
        return (started, plan.make_fact(number))

    def _setup_for(self, briefing: Briefing) -> Setup:
        setup = self._limited_setup(briefing.context)
        if self._instructions is None:
            return setup
        instructions = check_text("instructions", self._instructions(briefing))
        setup = replace(setup, instructions=instructions)
        return self._mask.mask_setup(setup)

    def _limited_setup(self, context: Mapping[str, Any]) -> Setup:
        """Return the setup with the limits of a run, where they are stricter than the agent's."""
        cap = read_own_limits(context)
        if cap is None:
            return self.setup
        return replace(self.setup, limits=tighten_limits(self.setup.limits, cap))

    def _take_over(self, state: State, *, consent: bool) -> RunResumed:
        """Take over a run that was left open; from here on, the limits of this agent count.

        Raises NothingToDo if no run is open, WorkspaceMissing if its folder is not here, and
        SetupDrifted if the setup differs without consent.
        """
        if not state.is_active or state.setup is None:
            raise _no_open_run(state)
        self.require_folder(state)
        if state.run is not None and state.run.is_undo:
            return self._take_over_undo(state, consent=consent)
        offered = self._limited_setup(state.run.context if state.run is not None else {})
        if self._instructions is not None:
            # They were made for the run when it began, and stay the same until it ends.
            offered = replace(offered, instructions=state.setup.instructions)
        kept = [budget for budget in state.setup.budgets if budget.with_run]
        offered = add_budgets(offered, kept)
        changed = tuple(describe_drift(state.setup, offered))
        if changed and not consent:
            raise SetupDrifted(changed)
        setup = None if state.recorded_setup == offered else offered
        return RunResumed(changed, setup, rules=RULES_VERSION)

    def _take_over_undo(self, state: State, *, consent: bool) -> RunResumed:
        """Take over a run that undoes calls. Its limits were given when it began, and stay."""
        recorded = state.recorded_setup or self._undo_setup
        offered = replace(self._undo_setup, limits=recorded.limits)
        changed = tuple(describe_drift(recorded, offered))
        if changed and not consent:
            raise SetupDrifted(changed)
        return RunResumed(changed, None if recorded == offered else offered, rules=RULES_VERSION)

    def open_resumed(self, state: State, *, consent: bool) -> Sequence[Fact]:
        """Open a run that was left open. A pause stays in force."""
        return (self._take_over(state, consent=consent),)

    def open_continued(self, state: State, *, consent: bool, by: str = "") -> Sequence[Fact]:
        """Open a run that was left open, and end its pause if it is paused."""
        resumed = self._take_over(state, consent=consent)
        if state.run is None or state.run.pause is None:
            return (resumed,)
        return (resumed, RunContinued(by))


def add_budgets(setup: Setup, budgets: Sequence[Budget]) -> Setup:
    """Return the setup of an agent with the shared budgets that were given with a run."""
    if not budgets:
        return setup
    return replace(setup, budgets=(*setup.budgets, *budgets))


def find_start(state: State, key: str) -> StartKey | None:
    """Return the start that a caller named so in this session, if there was one."""
    return next((start for start in state.start_keys if start.key == key), None)


def _check_start(state: State, task: RunTask) -> None:
    """Raise ForOperator if no new run may begin in a session."""
    if task.key and find_start(state, task.key) is not None:
        raise StartRepeated(f"session {state.session} has a run with the key {task.key!r}")
    _require_ended(state)
    if task.earlier and state.seq:
        raise ConfigError(
            f"messages=…: session {state.session} has a conversation of its own already. "
            "Leave `messages` out to go on with it, or leave `session` out to begin a new one."
        )
    _require_undone(state)


def _require_ended(state: State) -> None:
    if state.is_active:
        raise RunUnfinished(
            f"the last run of session {state.session} has not ended: "
            "resume, answer or abandon it first"
        )


def _require_undone(state: State) -> None:
    if state.run is not None and state.run.undo_due:
        raise RunUnfinished(
            f"the last run of session {state.session} ended as {state.run.outcome}, and what it "
            "did is to be undone first: resume the session"
        )


def _no_open_run(state: State) -> NothingToDo:
    return NothingToDo(f"session {state.session} has no open run")
