"""Plan a run, and open it: from what a caller asks for to the first facts of the run.

Invariant: everything that is given is checked before anything is written. A plan needs no journal.
An opening gets the session as it is found under the lease, returns the facts that begin or resume a
run, and raises ForOperator if none may.
"""

import os
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, cast, get_args

import msgspec
from msgspec.structs import replace

from windlass.agent import lazy_imports
from windlass.agent.event_stream import KnowsTrace
from windlass.agent.options import (
    AgentParts,
    Briefing,
    EarlierMessage,
    OnBusy,
    OnPartial,
    PromptInput,
    RunOptions,
    check_prompt,
    name_session,
    suggest_option,
)
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
from windlass.core.fold.control import find_start
from windlass.core.limits import Budget, Limits, tighten_limits
from windlass.core.messages import ContentPart, Label, Message, TextPart, UserMessage
from windlass.core.rate_limits import PRIORITY_KEY
from windlass.core.schema import JsonSchema
from windlass.core.session_summary import (
    TAGS_KEY,
    check_session,
    check_tags,
    check_text,
    describe_half,
)
from windlass.core.setup import OUTPUT_KEY, LoopPolicy, Setup, WorkFolder, describe_drift
from windlass.core.state import State
from windlass.core.suggestions import suggest_names
from windlass.ports import RefusesContent, UndoableTools

KEY_CHARS_MAX = 400
LIMITS_KEY = "windlass_limits"
"""The key of a run's own limits in its context."""
LABELS: tuple[str, ...] = get_args(Label)
UNDO_LIMITS = Limits(seconds=600.0)
"""What a run that undoes calls may use, unless another limit is given."""
_TRACEPARENT = re.compile("[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


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
    """A conversation from elsewhere that a new session continues."""
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
    """Plans and opens runs with one setup."""

    def __init__(self, parts: AgentParts) -> None:
        self.setup = parts.setup
        """That of a run which is not limited further."""
        self._world = parts.world
        self._mask = parts.mask
        self._instructions = parts.instructions
        self._observer = parts.observer

    @cached_property
    def _undo_setup(self) -> Setup:
        """The setup of a run that undoes calls: no model is asked, and nothing else can run.

        Its limits are its own: an agent whose money or time is used up can still take back what it
        did.
        """
        setup = self.setup
        tools = self._world.tools
        return self._mask.mask_setup(
            Setup(
                model=setup.model,
                tools=tools.undo_specs if isinstance(tools, UndoableTools) else (),
                gate=setup.gate,
                limits=UNDO_LIMITS,
                retries=setup.retries,
                # One after another, in the order that was planned.
                rules=LoopPolicy(parallel_tool_calls=False, on_unknown=setup.rules.on_unknown),
            )
        )

    def plan_run(
        self, prompt: PromptInput, session: str | None, options: RunOptions
    ) -> tuple[str, RunTask]:
        """Return the session of a run, and what the run is for. Raises ConfigError."""
        parts = self.check_prompt(prompt)
        task = self._check_options(parts, options) if options else RunTask(prompt=parts)
        if not task.trace and isinstance(self._observer, KnowsTrace):
            task = replace(task, trace=self._observer.current_trace())
        return self.name_session(session, options), task

    def _check_options(self, prompt: tuple[ContentPart, ...], options: RunOptions) -> RunTask:
        known = RunOptions.__optional_keys__
        for option in options:
            if option not in known:
                raise ConfigError(f"run() has no option {option!r}.{suggest_option(option, known)}")
        key = options.get("key", "")
        if not isinstance(key, str) or len(key) > KEY_CHARS_MAX:  # pyright: ignore[reportUnnecessaryIsInstance] - users need not check types
            raise ConfigError(f"key= must be a str of at most {KEY_CHARS_MAX} characters")
        check_choice("on_busy", options.get("on_busy", ""), OnBusy)
        labels = tuple(options.get("labels", ()))
        for label in labels:
            if label not in LABELS:
                raise ConfigError(f"there is no label {label!r}.{suggest_names(label, LABELS)}")
        trace = options.get("trace", "")
        if trace and not _TRACEPARENT.fullmatch(trace):
            raise ConfigError(
                f"trace={trace!r} is not a traceparent: it looks like 00-<32 hex>-<16 hex>-01"
            )
        return RunTask(
            prompt=prompt,
            caller=check_text("caller", str(options.get("caller", ""))),
            context=self._plan_context(options),
            pinned=bool(options.get("pinned", False)),
            labels=labels,
            earlier=self._read_earlier(options.get("messages")),
            key=check_text("key", key),
            trace=trace,
            on_partial=check_choice("on_partial", options.get("on_partial", ""), OnPartial),
            budgets=self._plan_budgets(options.get("budgets", ())),
            own_folder=bool(options.get("own_folder", False)),
        )

    def name_session(self, session: str | None, options: RunOptions) -> str:
        """Return the session of a run: as given, as its key says, or a new one."""
        key = options.get("key", "")
        if session is None and key:
            caller = check_text("caller", str(options.get("caller", "")))
            return name_session(self._world.agent, caller, check_text("key", key))
        return os.urandom(8).hex() if session is None else check_session(session)

    def check_prompt(self, prompt: PromptInput) -> tuple[ContentPart, ...]:
        """Return the parts of a prompt. Raises ConfigError if the model cannot take them."""
        parts = check_prompt(prompt)
        self._refuse_content(parts)
        return parts

    def _refuse_content(self, parts: tuple[ContentPart, ...]) -> None:
        """Raise ConfigError for an image or a file that the model cannot take."""
        model = self._world.models[self.setup.model.name]
        if isinstance(model, RefusesContent):
            refusal = model.content_refusal(parts)
            if refusal is not None:
                raise ConfigError(refusal)

    def _read_earlier(self, messages: Sequence[EarlierMessage] | None) -> tuple[Message, ...]:
        if messages is None:
            return ()
        earlier = lazy_imports.read_messages(messages, self.setup, self._mask)
        for message in earlier:
            if isinstance(message, UserMessage):
                self._refuse_content(message.parts)
        return earlier

    def _plan_budgets(self, given: Sequence[Budget]) -> tuple[Budget, ...]:
        budgets = tuple(replace(budget, with_run=True) for budget in given)
        if budgets:
            check_budgets(add_budgets(self.setup, budgets))
        return budgets

    def _plan_context(self, options: RunOptions) -> Mapping[str, Any]:
        """Return the context with limits, priority and tags, as a journal reads it back."""
        given: Mapping[str, Any] = options.get("context") or {}
        context = given
        limits = options.get("limits")
        if limits is not None:
            if limits.usd is not None and (unpriced := unpriced_models(self.setup)):
                raise ConfigError(_describe_unpriced("Limits", unpriced[0]))
            own = read_own_limits(context)
            if own is not None:
                # A host program may have put limits into the context that the run must not loosen.
                limits = tighten_limits(own, limits)
            # With the defaults written out: a default that changes must not change a recorded run.
            bounds = {name: getattr(limits, name) for name in limits.__struct_fields__}
            context = {**context, LIMITS_KEY: msgspec.to_builtins(bounds)}
        priority = options.get("priority", 0)
        if not isinstance(priority, int):  # pyright: ignore[reportUnnecessaryIsInstance] - users need not check types
            raise ConfigError(f"priority={priority!r} is not a whole number")
        if priority:
            context = {**context, PRIORITY_KEY: priority}
        tags: Mapping[str, str] | None = options.get("tags") or given.get(TAGS_KEY)
        if tags:
            context = {**context, TAGS_KEY: check_tags(tags)}
        if (schema := options.get("output_schema")) is not None:
            JsonSchema(dict(schema))  # Raises SchemaError, which is a ConfigError.
            context = {**context, OUTPUT_KEY: schema}
        try:
            return msgspec.json.decode(msgspec.json.encode(context), type=dict[str, Any])
        except UnicodeEncodeError as error:
            raise ConfigError(describe_half("context", error)) from None
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(
                f"context must be plain data (str, int, float, bool, None, list, dict): {error}"
            ) from None

    def open_new(self, state: State, task: RunTask, *, needs_folder: bool = True) -> Sequence[Fact]:
        """Open a new run. Raises RunUnfinished if the last one has not ended.

        `needs_folder`: False for a run that is paused before it does anything. Raises
        WorkspaceMissing if its folder is not here, ConfigError for messages that do not fit.
        """
        _check_start(state, task)
        if needs_folder and state.folder is not None:
            self.require_folder(state)
        # A run that was accepted before has its number already.
        number = state.run.number + (not state.run.queued_mail) if state.run else 1
        setup = self._limited_setup(task.context)
        if self._instructions is not None:
            briefing = Briefing(state.session, number, task.caller, task.context)
            instructions = check_text("instructions", self._instructions(briefing))
            setup = self._mask.mask_setup(replace(setup, instructions=instructions))
        if task.budgets:
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
            raise SessionBusy(f"session {state.session} has changed in the meantime: undo it again")
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

    def _limited_setup(self, context: Mapping[str, Any]) -> Setup:
        """Return the setup with a run's own output schema, and its limits where they are stricter.

        Limits that are not stricter than the agent's change nothing.
        """
        setup = self.setup
        if isinstance(schema := context.get(OUTPUT_KEY), dict):
            wanted = cast("dict[str, Any]", schema)
            setup = replace(setup, output_schema=wanted, judge_replies=True)
        cap = read_own_limits(context) if LIMITS_KEY in context else None
        if cap is None:
            return setup
        return replace(setup, limits=tighten_limits(setup.limits, cap))

    def _take_over(self, state: State, *, consent: bool) -> RunResumed:
        """Take over a run that was left open; from here on, the limits of this agent count.

        Raises NothingToDo if no run is open, WorkspaceMissing if its folder is not here, and
        SetupDrifted if the setup differs without consent.
        """
        if not state.is_active or state.is_queued or state.setup is None:
            raise NothingToDo(f"session {state.session} has no open run")
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


def check_choice(name: str, value: Any, choices: Any) -> Any:  # noqa: ANN401 - of any Literal
    """Return an option that is one of a few words. Raises ConfigError if it is not."""
    known = get_args(choices)
    if value and value not in known:
        hint = suggest_names(str(value), known)
        raise ConfigError(f"{name}={value!r}: there is no such choice.{hint}")
    return value


def read_own_limits(context: Mapping[str, Any]) -> Limits | None:
    """Return the limits that were given with a run; None if there were none."""
    try:
        return msgspec.convert(context.get(LIMITS_KEY), Limits | None, strict=False)
    except msgspec.ValidationError:
        # Another program may use the same key for something else.
        return None


def check_budgets(setup: Setup) -> None:
    """Raise ConfigError for a limit of money that could not be held."""
    budgets = setup.budgets
    usd_limits = [("Limits", setup.limits.usd), ("SessionLimits", setup.session_limits.usd)]
    usd_limits += [(f"Budget {budget.name}", budget.usd) for budget in budgets]
    unpriced = unpriced_models(setup)
    for owner, usd in usd_limits:
        if usd is not None and unpriced:
            raise ConfigError(_describe_unpriced(owner, unpriced[0]))
    if len({budget.name for budget in budgets}) != len(budgets):
        raise ConfigError("two budgets have the same name")


def unpriced_models(setup: Setup) -> list[str]:
    """Return the names of the models whose price is not known."""
    models = (*setup.models, setup.summariser)
    return [model.name for model in models if model is not None and model.price is None]


def _describe_unpriced(owner: str, model: str) -> str:
    return (
        f"{owner}(usd=…): the price of {model} is not known, so its cost cannot be limited. "
        "Give the model a price, or limit tokens."
    )


def _check_start(state: State, task: RunTask) -> None:
    """Raise ForOperator if no new run may begin in a session."""
    run = state.run
    if run is None or not run.queued_mail or run.queued_mail != task.mail:
        if task.key and find_start(state, task.key) is not None:
            raise StartRepeated(f"session {state.session} has a run with the key {task.key!r}")
        _require_ended(state)
    if task.earlier and state.has_conversation:
        raise ConfigError(
            f"messages=…: session {state.session} already has a conversation. "
            "Leave `messages` out to continue it, or leave `session` out to start a new one."
        )
    if state.run is not None and state.run.undo_due:
        raise RunUnfinished(
            f"the last run of session {state.session} ended as {state.run.outcome}, and what it "
            "did is to be undone first: resume the session"
        )


def _require_ended(state: State) -> None:
    if state.is_active:
        raise RunUnfinished(
            f"the last run of session {state.session} has not ended: "
            "resume, answer or abandon it first"
        )
