"""A pure interpreter: a random world plays against `decide` and `apply`, without an event loop.

The world answers as the shell may: replies whole, broken or empty; verdicts of every kind; results
in any order; summaries that fail; budgets that are short; a driver that dies between any two facts;
a person who cancels, or says something meanwhile. What it charges, it tells truthfully.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any, assert_never

from msgspec.structs import replace
from typing_extensions import override

from facts import MODEL, PRICE, SESSION, make_setup, make_spec
from windlass.core.decide.next_move import decide
from windlass.core.decide.reserving import covers_amount, usage_cost
from windlass.core.decide.undoing import plan_undo, undo_tool_name
from windlass.core.errors import Fault, NothingToDo
from windlass.core.events import (
    AttemptFailed,
    AttemptStarted,
    BudgetAllotted,
    BudgetAwaited,
    BudgetWaitEnded,
    CallAnswered,
    CallFinished,
    CallJudged,
    CallLate,
    CallStarted,
    ContextCompacted,
    Fact,
    KnowledgeRecalled,
    LimitsRaised,
    LookupsPlanned,
    MailRefused,
    NoteGiven,
    ReplyJudged,
    Reservation,
    RunContinued,
    RunEnded,
    RunPaused,
    RunReleased,
    RunResumed,
    RunStarted,
    SteeringGiven,
    SteeringTaken,
    StepProposed,
)
from windlass.core.fold.run import apply_fact
from windlass.core.limits import Amount, Budget, Limits, RaisedLimits, SessionLimits
from windlass.core.messages import (
    ArgumentChange,
    AssistantMessage,
    Charge,
    ReplyPart,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    ToolResults,
    Usage,
    UserMessage,
)
from windlass.core.moves import (
    AwaitBudget,
    ClearedCall,
    Compact,
    DrawBudget,
    EndRun,
    JudgeCalls,
    JudgeReply,
    LookUp,
    Move,
    PauseRun,
    ProposedCall,
    RecallKnowledge,
    RemindModel,
    RequestReply,
    RunCalls,
    StayPaused,
    StayWaiting,
    Summarize,
    TakeSteering,
    WaitForAnswers,
)
from windlass.core.setup import (
    Compaction,
    Hydration,
    LoopPolicy,
    ModelInfo,
    Reference,
    Setup,
    digest,
)
from windlass.core.state import State
from windlass.core.verdicts import (
    Allow,
    AnswerVerdict,
    Ask,
    Deny,
    Grant,
    InvalidCall,
    Modify,
    OutputMismatch,
)
from windlass.core.view import Prompt

MOVES_MAX = 2_000
"""A run that needs more moves than this does not end."""
RAW = ("", "{}", '{"a": 1}', '{"a":1}', '{"b": [null, "x"]}', '{"a": 1', "[1]", "not JSON", "  ")
NAMES = ("look", "touch", "send", "nonesuch", "no such/tool", "")
HABITS = [(name, raw) for name in NAMES for raw in RAW]
MODIFIED: tuple[dict[str, Any], ...] = ({"a": 2}, {"b": {}}, {})
RESULTS = (
    ToolResult.from_text("value", "done"),
    ToolResult.from_text("value", "done"),
    ToolResult.from_text("value", "done"),
    ToolResult.from_text("value", "much " * 60),
    ToolResult.from_text("error", "it broke"),
    ToolResult.from_text("timed_out", "too slow"),
    ToolResult("value", ()),
)
SUMMARISER = "test:summariser"
HELPER = "test:helper"
PLENTY = Amount(Decimal(10**6), 10**9)
LABELLED = (
    replace(make_spec("look"), labels=("untrusted",)),
    replace(make_spec("touch", "idempotent"), labels=("private",)),
    replace(make_spec("send", "write"), labels=("external",)),
)


class DriverDied(Exception):
    """The driver is gone; the facts are all that is left."""


def draw_setup(random: Random) -> Setup:
    """A set-up of any kind: each of its settings is drawn by itself."""
    pick = random.choice
    priced = ModelInfo(MODEL, PRICE, pick([None, 120, 300, 1_000]), output_max=1_000)
    summariser = ModelInfo(SUMMARISER, PRICE, 200, output_max=100)
    limits = Limits(
        steps=pick([1, 2, 5, 12, 30]),
        tokens=pick([None, None, 5_000]),
        usd=pick([None, None, Decimal("0.05")]),
    )
    hydration = Hydration(references=(Reference(r"#(\w+)", "look", "id"),), calls_max=2)
    budgets = (Budget("team", tokens=6_000), Budget("house", usd=Decimal("0.06")))
    return make_setup(
        model=priced,
        tools=LABELLED,
        limits=limits,
        rules=_draw_policy(random),
        session_limits=SessionLimits(steps=pick([None, None, 14]), tokens=pick([None, 9_000])),
        budgets=pick([(), (), budgets[:1], budgets]),
        compaction=_draw_compaction(random),
        summariser=pick([None, None, summariser]),
        hydration=pick([None, hydration]),
        recalls=pick([False, True]),
        judge_replies=pick([False, True]),
    )


def _draw_policy(random: Random) -> LoopPolicy:
    pick = random.choice
    return LoopPolicy(
        on_limit=pick(["stop", "answer"]),
        on_partial=pick(["fail", "restart"]),
        on_budget=pick(["stop", "pause"]),
        on_unknown=pick(["tell", "ask"]),
        tool_choice=pick(["auto", "required", "look"]),
        same_call_note=pick([1, 3]),
        budget_wait_s=pick([0.0, 3.0, 600.0]),
    )


def _draw_compaction(random: Random) -> Compaction:
    strategies: list[Any] = ["mask", "summary", "window"]
    return Compaction(
        strategies=tuple(random.sample(strategies, random.randint(0, 3))),
        window=random.choice([None, 150, 400]),
        cool_down=random.choice([1, 5]),
        summary_tokens=20,
    )


@dataclass(repr=False)
class RandomSession:
    """One session, played to the end of each of its runs."""

    random: Random
    setup: Setup
    state: State = field(default_factory=lambda: State(SESSION))
    facts: list[Fact] = field(default_factory=list[Fact])
    prompts: list[Prompt] = field(default_factory=list[Prompt])
    summaries: list[Prompt] = field(default_factory=list[Prompt])
    moves: list[tuple[State, Move]] = field(default_factory=list[tuple[State, Move]])
    """Each move, with the state that it was decided from."""
    states: list[State] = field(default_factory=list[State])
    """After each fact."""
    habit: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The calls that this model likes to make."""
    deaths: int = 3
    """How often a driver may still die."""

    @override
    def __repr__(self) -> str:
        told = "\n".join(map(repr, self.facts))
        return f"Play of {self.setup!r}:\n{told}"

    def play_runs(self, count: int) -> "RandomSession":
        for number in range(1, count + 1):
            setup = self.setup if number == 1 or self._chance(0.3) else None
            prompt = self._choose("Do it.", f"Do #a and #b of run {number}, then #a.")
            pinned = self._chance(0.2)
            self._play_run(RunStarted(number, (TextPart(prompt),), setup, pinned=pinned))
        if self._chance(0.3):
            self._undo(count + 1)
        return self

    def _undo(self, number: int) -> None:
        """Undo one of the runs, if it has anything to undo."""
        specs = [replace(spec, undo="write" if spec.name == "send" else "") for spec in LABELLED]
        try:
            plan = plan_undo(self.state, self.facts, specs)
        except NothingToDo:
            return
        undo_specs = tuple(replace(spec, name=undo_tool_name(spec.name)) for spec in LABELLED)
        prompt = (TextPart(plan.describe()),)
        started = RunStarted(number, prompt, replace(self.setup, tools=undo_specs))
        self._play_run(started, plan.make_fact(number))

    def _play_run(self, *opening: Fact) -> None:
        self.habit = self.random.sample(HABITS, self._choose(1, 2, len(HABITS)))
        for _ in range(MOVES_MAX):
            try:
                facts = opening
                opening = ()
                if facts:
                    self._record(*facts, after_s=self._choose(0.0, 1e6))
                self._perform_move()
            except DriverDied:
                # Whoever answers a question is the next driver, without another word.
                opening = () if self.state.is_waiting else (RunResumed(),)
            if not self.state.is_active:
                return
        raise AssertionError("the run has no end")

    def _perform_move(self) -> None:  # noqa: C901, PLR0915 - an arm per move
        if self._chance(0.02):
            self._record(RunEnded("cancelled", "by a person"))
            return
        if self._chance(0.02):
            self._steer()
        if self._chance(0.02):
            self._record(MailRefused(self.state.mail_taken + 1, "cancel", "it was too late"))
        if self._chance(0.02) and self.state.run and self.state.run.pause is None:
            self._record(RunPaused("lunch", by="ann"))
        move = decide(self.state)
        self.moves.append((self.state, move))
        match move:
            case RequestReply() as move:
                self._reason(move)
            case JudgeCalls() as move:
                self._record(*map(self._draw_verdict, move.calls))
            case RunCalls() as move:
                self._act(move)
            case JudgeReply():
                verdict = self._choose(Allow(), Deny("not so"), OutputMismatch("it does not fit"))
                self._record(ReplyJudged(verdict))
            case RemindModel(text, why):
                self._record(NoteGiven(text, why))
            case DrawBudget(budget, wanted):
                self._draw(budget, wanted)
            case AwaitBudget(budget, held, wait_s):
                self._record(BudgetAwaited(budget, held, wait_s))
            case StayWaiting(wait):
                self._end_wait(wait)
            case Compact(upto, note, how):
                self._record(ContextCompacted(upto, note, how))
            case Summarize() as move:
                self._summarise(move)
            case TakeSteering():
                self._record(SteeringTaken())
            case LookUp(calls):
                self._record(LookupsPlanned(calls))
            case RecallKnowledge():
                self._record(
                    KnowledgeRecalled(
                        self._choose("", "It is known."), self._choose((), ("private",))
                    )
                )
            case WaitForAnswers(questions):
                asked, _ = self.random.choice(questions)
                verdict = self._choose(
                    Allow(), Deny("no"), Modify(self._draw_modification(), "safer")
                )
                grant = self._grant(asked.call.name, verdict)
                answer = CallAnswered(
                    asked.id, verdict, digest(asked.decoded_arguments), grant=grant
                )
                self._record(answer, after_s=1e6)
            case PauseRun(reason, needed, cause=cause):
                self._record(RunPaused(reason, cause=cause, needed=needed))
            case StayPaused():
                self._end_pause()
            case EndRun(outcome, reason, fault=fault):
                self._record(RunEnded(outcome, reason, fault))
            case other:
                assert_never(other)

    def _end_wait(self, wait: BudgetAwaited) -> None:
        """The budget is asked again: by this driver or the next one, when it is due or before."""
        after_s = self._choose(0.5, wait.wait_s)
        if self._chance(0.5):
            self._record(BudgetWaitEnded(wait.budget), after_s=after_s)
            return
        self._record(RunReleased("waits"))
        self._record(RunResumed(), after_s=after_s)

    def _end_pause(self) -> None:
        """The driver lets go, and another one goes on much later, perhaps with higher limits."""
        self._record(RunReleased("paused"))
        self._record(RunResumed(), after_s=1e6)
        setup = self.state.setup
        if self._chance(0.5) and setup is not None:
            usd = (setup.limits.usd or 0) + 1
            tokens = (setup.limits.tokens or 0) + 100_000
            self._record(LimitsRaised(RaisedLimits(usd=usd, tokens=tokens)))
        if self.state.run and self.state.run.pause is not None:
            self._record(RunContinued(by="ann"))

    def _steer(self) -> None:
        """Each time in other words, so that it can be found again."""
        if not self.state.takes_steering:
            return
        self._record(SteeringGiven((TextPart(f"By the way, {self.state.seq}."),), by="ann"))

    def _grant(self, name: str, verdict: AnswerVerdict) -> Grant | None:
        always = isinstance(verdict, Allow) and self._chance(0.5)
        return Grant(name, pattern=f"{name}(*)") if always else None

    # ── the model ────────────────────────────────────────────────────────────

    def _reason(self, move: RequestReply) -> None:
        self.prompts.append(move.prompt)
        self._record(
            AttemptStarted(move.step, move.attempt, MODEL, move.reserved, move.landing),
            after_s=move.wait_s,
        )
        if self._chance(0.1):
            self._steer()
        fate = self.random.random()
        paid = self._draw_charge(move.reserved)
        if fate < 0.04:
            self._record(RunEnded("cancelled", "by a person", None, "half a rep", paid))
        elif fate < 0.2:
            self._record(self._draw_failure(paid))
        else:
            stop = self._choose("end", "end", "end", "calls", "calls", "length", "refusal")
            reply = AssistantMessage(tuple(self._draw_reply(move.step)), MODEL)
            self._record(StepProposed(reply, stop, paid))

    def _draw(self, budget: Budget, wanted: Amount) -> None:
        amount = self._choose(wanted, _half(wanted), PLENTY)
        is_dry = not covers_amount(amount, wanted)
        held = self._choose(None, wanted) if is_dry else None
        self._record(BudgetAllotted(budget.name, amount, is_dry, held))

    def _summarise(self, move: Summarize) -> None:
        self.summaries.append(move.prompt)
        model = move.prompt.model
        self._record(AttemptStarted(move.step, 1, model, move.reserved, purpose="compaction"))
        paid = self._draw_charge(move.reserved)
        bill = None if paid is None else replace(paid, model=model, purpose="compaction")
        if self._chance(0.3):
            self._record(AttemptFailed(Fault("server", "it broke", retryable=True), charge=bill))
            return
        self._record(ContextCompacted(move.upto, f"Summary {move.upto}", "summary", bill))

    def _draw_failure(self, paid: Charge | None) -> AttemptFailed:
        kind = self._choose("server", "network", "auth", "context_overflow")
        return AttemptFailed(
            Fault(kind, "it broke", kind not in ("auth", "context_overflow")),
            charge=paid,
            established=self._chance(0.5),
            visible=self._chance(0.2),
            partial=self._choose("", "half a rep"),
            wait_s=self._choose(0.0, 1.0, 16.0),
        )

    def _draw_charge(self, reserved: Reservation) -> Charge | None:
        """What a request cost: a token is from one to five bytes long."""
        if self._chance(0.3):
            return None
        tokens = self.random.randint(reserved.input // 5, reserved.input)
        usage = Usage(tokens, self.random.randint(0, min(9, reserved.output)))
        return Charge(MODEL, usage=usage, usd=usage_cost(PRICE, usage))

    def _draw_reply(self, step: int) -> Iterator[ReplyPart]:
        calls = 0
        for _ in range(self.random.randint(0, 4)):
            match self._choose("text", "thinking", "call", "call", "call"):
                case "text":
                    yield TextPart(self._choose("Hm.", "So."))
                case "thinking":
                    yield ThinkingPart("Let me see.", self._choose(None, "signed"))
                case _:
                    name, raw = self._choose(*self.habit)
                    yield ToolCall(f"c{step}_{calls}", name, raw, self._choose(None, "p"))
                    calls += 1

    # ── the gate and the tools ───────────────────────────────────────────────

    def _draw_verdict(self, proposed: ProposedCall) -> CallJudged:
        call = proposed.call
        resource = self._choose(None, "here", "there")
        if proposed.spec is None:
            return CallJudged(call.id, InvalidCall("unknown_tool", "no such tool"))
        if not is_object(call.arguments or "{}"):
            if self._chance(0.5):
                return CallJudged(call.id, InvalidCall("invalid_arguments", "no arguments"))
            repaired = self._draw_modification(), (ArgumentChange("", "repaired"),)
            return CallJudged(call.id, Allow(), *repaired, resource)
        ask = Ask("May I?")
        modify = Modify(self._draw_modification(), "safer")
        verdicts = Allow(), Allow(), Allow(), Deny("no"), modify, ask
        return CallJudged(call.id, self._choose(*verdicts), None, (), resource)

    def _draw_modification(self) -> dict[str, Any]:
        return dict(self.random.choice(MODIFIED))

    def _act(self, move: RunCalls) -> None:
        fresh = [cleared for cleared in move.calls if not self._reconcile_call(cleared, move)]
        running: list[ClearedCall] = []
        if self.state.is_waiting:
            return
        while fresh or running:
            if fresh and (self._chance(0.6) or not running):
                cleared = fresh.pop(0)
                self._record(CallStarted(cleared.call.id, cleared.key))
                running.append(cleared)
            else:
                done = running.pop(self.random.randrange(len(running)))
                bill = self._draw_charges(done.spending_left)
                self._record(CallFinished(done.call.id, self._choose(*RESULTS), bill))

    def _draw_charges(self, left: Amount) -> tuple[Charge, ...]:
        """Draw what a tool paid to models of its own: no more than it may spend."""
        tokens = 900 if left.tokens is None else min(900, left.tokens)
        usd = Decimal("0.01") if left.usd is None else min(Decimal("0.01"), left.usd)
        if tokens < 1 or usd < 0 or self._chance(0.8):
            return ()
        return (Charge(HELPER, "subagent", Usage(tokens), usd),)

    def _reconcile_call(self, cleared: ClearedCall, move: RunCalls) -> bool:
        """Find out about an interrupted write, as the loop does."""
        if not cleared.interrupted or cleared.repeatable:
            return False
        call_id = cleared.call.id
        found = self._choose("done", "not_done", "unknown")
        if found == "not_done":
            self._record(CallJudged(call_id, Allow("it had not happened")))
        elif found == "unknown" and move.ask_if_unknown:
            self._record(CallJudged(call_id, Ask("Run it again?")))
        else:
            self._record(CallFinished(call_id, ToolResult.from_text("unknown", "who knows")))
        return True

    # ── the journal ──────────────────────────────────────────────────────────

    def _record(self, *facts: Fact, after_s: float = 0.5) -> None:
        for fact in facts:
            placed = replace(fact, seq=self.state.seq + 1, at=self.state.at + after_s)
            self.state = apply_fact(self.state, placed)
            self.facts.append(placed)
            self.states.append(self.state)
        if self._chance(0.02):
            self._record(CallLate("c0_0", ToolResult.from_text("value", "too late")))
        # All facts of one append are there, or none of them.
        if self.deaths and self.state.is_active and self._chance(0.05):
            self.deaths -= 1
            raise DriverDied

    def _chance(self, share: float) -> bool:
        return self.random.random() < share

    def _choose(self, *options: Any) -> Any:
        return self.random.choice(options)


def _half(amount: Amount) -> Amount:
    usd = None if amount.usd is None else amount.usd / 2
    return Amount(usd, None if amount.tokens is None else amount.tokens // 2)


def is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def request_faults(prompt: Prompt) -> list[str]:
    """What a provider would refuse in a request; nothing, if it is valid."""
    messages = list(prompt.messages)
    found = list[str]()
    if not messages or not isinstance(messages[0], UserMessage):
        found.append("it does not begin with the user")
    if messages and isinstance(messages[-1], AssistantMessage):
        found.append("it ends with the assistant")
    ids = [one.id for message in messages for one in calls_of(message)]
    if len(ids) != len(set(ids)):
        found.append("two calls have one id")
    for before, after in zip([None, *messages], [*messages, None], strict=True):
        found += _faults_between(before, after)
    for message in messages:
        found += _faults_within(message)
    return found


def calls_of(message: object) -> Sequence[ToolCall]:
    return message.calls if isinstance(message, AssistantMessage) else ()


def _faults_between(before: object, after: object) -> Iterator[str]:
    wanted = list(calls_of(before))
    given = [item.call for item in after.items] if isinstance(after, ToolResults) else []
    if wanted != given:
        yield f"{wanted} are answered by {given}"
    if isinstance(before, AssistantMessage) and isinstance(after, AssistantMessage):
        yield "the assistant speaks twice in a row"


def _faults_within(message: object) -> Iterator[str]:
    for one in calls_of(message):
        if not is_object(one.arguments):
            yield f"arguments are no object: {one.arguments!r}"
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", one.name):
            yield f"no provider takes the name {one.name!r}"
    if isinstance(message, AssistantMessage) and not (message.text or message.calls):
        yield "the assistant says nothing"
    if isinstance(message, AssistantMessage | UserMessage) and TextPart("") in message.parts:
        yield "an empty piece of text"
