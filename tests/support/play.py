"""A pure interpreter: a random world plays against `decide` and `apply`, without an event loop.

The world answers as the shell may: replies whole, broken or empty; verdicts of every kind; results
in any order; a driver that dies between any two facts; a person who cancels.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, assert_never

from msgspec.structs import replace

from facts import MODEL, SESSION
from windlass.core.decide import (
    Act,
    Cleared,
    Finish,
    Gate,
    Hear,
    Hold,
    Proposed,
    Reason,
    Remind,
    Shrink,
    decide,
)
from windlass.core.events import (
    AttemptFailed,
    AttemptStarted,
    CallAnswered,
    CallFinished,
    CallJudged,
    CallLate,
    CallStarted,
    Compacted,
    Fact,
    NoteGiven,
    ReplyJudged,
    RunEnded,
    RunResumed,
    RunStarted,
    StepProposed,
)
from windlass.core.faults import Fault
from windlass.core.fold import apply
from windlass.core.messages import (
    Assistant,
    Change,
    Charge,
    Result,
    Results,
    Said,
    Text,
    Thinking,
    ToolCall,
    Usage,
    User,
)
from windlass.core.setup import Setup, digest
from windlass.core.state import State
from windlass.core.verdicts import Allow, Ask, Deny, Invalid, Misfit, Modify
from windlass.core.view import Prompt

MOVES_MAX = 2_000
"""No run of the sizes played here needs so many moves; one that does has no end."""
RAW = ("", "{}", '{"a": 1}', '{"a":1}', '{"b": [null, "x"]}', '{"a": 1', "[1]", "not JSON", "  ")
NAMES = ("look", "touch", "send", "nonesuch", "no such/tool", "")
HABITS = [(name, raw) for name in NAMES for raw in RAW]
MODIFIED: tuple[dict[str, Any], ...] = ({"a": 2}, {"b": {}}, {})
RESULTS = (
    Result.say("value", "done"),
    Result.say("value", "done"),
    Result.say("value", "done"),
    Result.say("error", "it broke"),
    Result.say("timed_out", "too slow"),
    Result("value", ()),
)


class Died(Exception):
    """The driver is gone; the facts are all that is left."""


@dataclass
class Play:
    """One session, played to the end of each of its runs."""

    random: Random
    setup: Setup
    state: State = field(default_factory=lambda: State(SESSION))
    facts: list[Fact] = field(default_factory=list[Fact])
    prompts: list[Prompt] = field(default_factory=list[Prompt])
    states: list[State] = field(default_factory=list[State])
    habit: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """The calls that this model likes to make."""
    deaths: int = 3
    """How often a driver may still die."""

    def runs(self, count: int) -> "Play":
        for number in range(1, count + 1):
            setup = self.setup if number == 1 or self._chance(0.3) else None
            self._to_the_end(RunStarted(number, (Text("Do it."),), setup))
        return self

    def _to_the_end(self, opening: Fact | None) -> None:
        self.habit = self.random.sample(HABITS, self._pick(1, 2, len(HABITS)))
        for _ in range(MOVES_MAX):
            try:
                if opening is not None:
                    self._record(opening, after_s=self._pick(0.0, 1e6))
                opening = None
                self._move()
            except Died:
                # Whoever answers a question is the next driver, without another word.
                opening = None if self.state.waiting else RunResumed()
            if not self.state.active:
                return
        raise AssertionError("the run has no end")

    def _move(self) -> None:
        if self._chance(0.02):
            self._record(RunEnded("cancelled", "by a person"))
            return
        match decide(self.state):
            case Reason() as move:
                self._reason(move)
            case Gate() as move:
                self._record(*map(self._verdict, move.calls))
            case Act() as move:
                self._act(move)
            case Hear():
                verdict = self._pick(Allow(), Deny("not so"), Misfit("it does not fit"))
                self._record(ReplyJudged(verdict))
            case Remind(text):
                self._record(NoteGiven(text, "same_call"))
            case Shrink(upto, note):
                self._record(Compacted(upto, note))
            case Hold(questions):
                asked, _ = self.random.choice(questions)
                verdict = self._pick(Allow(), Deny("no"), Modify(self._modified(), "safer"))
                bound = digest(asked.decoded)
                self._record(CallAnswered(asked.id, verdict, bound), after_s=1e6)
            case Finish(outcome, reason, fault=fault):
                self._record(RunEnded(outcome, reason, fault))
            case other:
                assert_never(other)

    # ── the model ────────────────────────────────────────────────────────────

    def _reason(self, move: Reason) -> None:
        self.prompts.append(move.prompt)
        self._record(
            AttemptStarted(move.step, move.attempt, MODEL, move.reserved, move.landing),
            after_s=move.wait_s,
        )
        fate = self.random.random()
        if fate < 0.04:
            self._record(RunEnded("cancelled", "by a person", None, "half a rep", self._charge()))
        elif fate < 0.2:
            self._record(self._failure())
        else:
            stop = self._pick("end", "end", "end", "calls", "calls", "length", "refusal")
            reply = Assistant(tuple(self._said(move.step)), MODEL)
            self._record(StepProposed(reply, stop, self._charge()))

    def _failure(self) -> AttemptFailed:
        kind = self._pick("server", "network", "auth")
        return AttemptFailed(
            Fault(kind, "it broke", kind != "auth"),
            charge=self._charge(),
            established=self._chance(0.5),
            visible=self._chance(0.2),
            partial=self._pick("", "half a rep"),
            wait_s=self._pick(0.0, 1.0, 16.0),
        )

    def _charge(self) -> Charge | None:
        if self._chance(0.3):
            return None
        return Charge(MODEL, usage=Usage(self.random.randint(0, 50), self.random.randint(0, 9)))

    def _said(self, step: int) -> Iterator[Said]:
        calls = 0
        for _ in range(self.random.randint(0, 4)):
            match self._pick("text", "thinking", "call", "call", "call"):
                case "text":
                    yield Text(self._pick("Hm.", "So."))
                case "thinking":
                    yield Thinking("Let me see.", self._pick(None, "signed"))
                case _:
                    name, raw = self._pick(*self.habit)
                    yield ToolCall(f"c{step}_{calls}", name, raw, self._pick(None, "p"))
                    calls += 1

    # ── the gate and the tools ───────────────────────────────────────────────

    def _verdict(self, proposed: Proposed) -> CallJudged:
        call, resource = proposed.call, self._pick(None, "here", "there")
        if proposed.spec is None:
            return CallJudged(call.id, Invalid("unknown_tool", "no such tool"))
        if not is_object(call.arguments or "{}"):
            if self._chance(0.5):
                return CallJudged(call.id, Invalid("invalid_arguments", "no arguments"))
            repaired = self._modified(), (Change("", "repaired"),)
            return CallJudged(call.id, Allow(), *repaired, resource)
        ask, modify = Ask("May I?"), Modify(self._modified(), "safer")
        verdicts = Allow(), Allow(), Allow(), Deny("no"), modify, ask
        return CallJudged(call.id, self._pick(*verdicts), None, (), resource)

    def _modified(self) -> dict[str, Any]:
        return dict(self.random.choice(MODIFIED))

    def _act(self, move: Act) -> None:
        fresh = [cleared for cleared in move.calls if not self._reconciled(cleared, move)]
        running: list[str] = []
        if self.state.waiting:
            return
        while fresh or running:
            if fresh and (self._chance(0.6) or not running):
                cleared = fresh.pop(0)
                self._record(CallStarted(cleared.call.id, cleared.key))
                running.append(cleared.call.id)
            else:
                done = running.pop(self.random.randrange(len(running)))
                self._record(CallFinished(done, self._pick(*RESULTS)))

    def _reconciled(self, cleared: Cleared, move: Act) -> bool:
        """Find out about an interrupted write, as the loop does."""
        if not cleared.interrupted or cleared.repeatable:
            return False
        call_id = cleared.call.id
        found = self._pick("done", "not_done", "unknown")
        if found == "not_done":
            self._record(CallJudged(call_id, Allow("it had not happened")))
        elif found == "unknown" and move.ask_unknown:
            self._record(CallJudged(call_id, Ask("Run it again?")))
        else:
            self._record(CallFinished(call_id, Result.say("unknown", "who knows")))
        return True

    # ── the journal ──────────────────────────────────────────────────────────

    def _record(self, *facts: Fact, after_s: float = 0.5) -> None:
        for fact in facts:
            placed = replace(fact, seq=self.state.seq + 1, at=self.state.at + after_s)
            self.state = apply(self.state, placed)
            self.facts.append(placed)
            self.states.append(self.state)
        if self._chance(0.02):
            self._record(CallLate("c0_0", Result.say("value", "too late")))
        # All facts of one append are there, or none of them.
        if self.deaths and self.state.active and self._chance(0.05):
            self.deaths -= 1
            raise Died

    def _chance(self, share: float) -> bool:
        return self.random.random() < share

    def _pick(self, *options: Any) -> Any:
        return self.random.choice(options)


def is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def faults_of(prompt: Prompt) -> list[str]:
    """What a provider would refuse in a request; nothing, if it is valid."""
    messages, found = list(prompt.messages), list[str]()
    if not messages or not isinstance(messages[0], User):
        found.append("it does not begin with the user")
    if messages and isinstance(messages[-1], Assistant):
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
    return message.calls if isinstance(message, Assistant) else ()


def _faults_between(before: object, after: object) -> Iterator[str]:
    wanted = list(calls_of(before))
    given = [item.call for item in after.items] if isinstance(after, Results) else []
    if wanted != given:
        yield f"{wanted} are answered by {given}"
    if isinstance(before, Assistant) and isinstance(after, Assistant):
        yield "the assistant speaks twice in a row"


def _faults_within(message: object) -> Iterator[str]:
    for one in calls_of(message):
        if not is_object(one.arguments):
            yield f"arguments are no object: {one.arguments!r}"
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", one.name):
            yield f"no provider takes the name {one.name!r}"
    if isinstance(message, Assistant) and not (message.text or message.calls):
        yield "the assistant says nothing"
    if isinstance(message, Assistant | User) and Text("") in message.parts:
        yield "an empty piece of text"
