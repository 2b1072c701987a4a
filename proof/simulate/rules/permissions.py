"""Rules for permissions: the gate or a person allowed each call, with exactly these arguments."""

import json
from dataclasses import dataclass, field
from typing import Any

from proof.simulate.outside import OutsideWorld
from proof.simulate.people import call_number
from proof.simulate.plan_calls import EFFECTS
from proof.simulate.play import PlayedSession
from proof.simulate.rules.broken import require
from proof.simulate.rules.effects import is_code
from windlass.core.events import (
    CallAnswered,
    CallJudged,
    CallStarted,
    Fact,
    LookupsPlanned,
    RunResumed,
    StepProposed,
)
from windlass.core.messages import ToolCall
from windlass.core.setup import digest
from windlass.core.tool_search import unwrap_call
from windlass.core.verdicts import Allow, Ask, Deny, Grant, InvalidCall, Modify

Arguments = dict[str, Any]


def check_permissions(played: PlayedSession) -> None:
    """G2, G6, L2: a call runs only with its own permission, and with the permitted arguments."""
    effects = {effect.key: effect.number for effect in played.outside.effects}
    for facts in (played.facts, *played.inner.values()):
        book = _PermissionBook(played.outside)
        if facts and is_code(facts[0]):
            # What people granted to the run is granted to its code.
            answers = (fact for fact in played.facts if isinstance(fact, CallAnswered))
            book.grants += [fact.grant for fact in answers if fact.grant is not None]
        for fact in facts:
            book.add_fact(fact)
        for key, arguments in book.started.items():
            if key in effects:
                number = effects[key]
                require(number == call_number(arguments), f"T4: {key} did {number}: {arguments}")


@dataclass(slots=True)
class _PermissionBook:
    """What the gate and people have said about each call so far."""

    outside: OutsideWorld
    calls: dict[str, ToolCall] = field(default_factory=dict[str, ToolCall])
    asked: dict[str, tuple[Arguments, Ask]] = field(
        default_factory=dict[str, tuple[Arguments, Ask]]
    )
    permitted: dict[str, Arguments] = field(default_factory=dict[str, Arguments])
    doubted: dict[str, Arguments] = field(default_factory=dict[str, Arguments])
    """The arguments of writes that had started, and whose permission is not believed."""
    began: set[str] = field(default_factory=set[str])
    """The writes that have started."""
    grants: list[Grant] = field(default_factory=list[Grant])
    started: dict[str, Arguments] = field(default_factory=dict[str, Arguments])
    """The arguments of each started call, by its idempotency key."""

    def add_fact(self, fact: Fact) -> None:
        match fact:
            case StepProposed(reply):
                self.calls.update({call.id: unwrap_call(call) for call in reply.calls})
            case LookupsPlanned(calls):
                self.calls.update({call.id: call for call in calls})
            case CallJudged():
                self._add_verdict(fact)
            case CallAnswered():
                self._add_answer(fact)
            case CallStarted(call_id, key):
                require(call_id in self.permitted, f"L2: {call_id} ran without permission")
                require(call_id not in self.asked, f"G6: {call_id} ran while its question was open")
                self.started[key] = self.permitted[call_id]
                if EFFECTS.get(self.calls[call_id].name, "write") == "write":
                    self.began.add(call_id)
            case RunResumed(doubted=doubted):
                # A permission that is not believed is worth nothing until the call is judged again.
                for call_id in doubted:
                    self._doubt(call_id)
            case _:
                pass

    def _doubt(self, call_id: str) -> None:
        """Take a permission back. A write that had started keeps its arguments."""
        arguments = self.permitted.pop(call_id, None)
        if arguments is not None and call_id in self.began:
            self.doubted[call_id] = arguments

    def _add_verdict(self, fact: CallJudged) -> None:
        call_id = fact.call_id
        verdict = fact.verdict
        before = self.permitted.pop(call_id, None)
        looked_up = self.doubted.pop(call_id, None)
        if isinstance(verdict, InvalidCall | Deny):
            return
        if isinstance(verdict, Ask) and verdict.rule == "interrupted":
            before = before or looked_up
        if before is not None:  # The call was interrupted, and its outcome was looked up.
            arguments = before
        else:
            arguments = fact.arguments or json.loads(self.calls[call_id].arguments)
            self._check_verdict(fact, arguments)
        if isinstance(verdict, Ask):
            self.asked[call_id] = (verdict.arguments or arguments, verdict)
        else:
            self.permitted[call_id] = arguments
        if isinstance(verdict, Modify):
            self.permitted[call_id] = verdict.arguments

    def _check_verdict(self, fact: CallJudged, arguments: Arguments) -> None:
        """Check that the verdict is the planned one, unless a grant answers the question."""
        verdict = fact.verdict
        planned = self.outside.call_plan(call_number(arguments)).judgement
        own = getattr(verdict, "arguments", None) or arguments
        granted = self._is_granted(self.calls[fact.call_id].name, own)
        mismatch = f"G2: {fact.call_id} was judged {verdict}, but {planned} was planned"
        if planned in ("ask", "ask_other"):
            # With keys, the grant of an approver whose process died is not believed.
            is_void = self.outside.plan.more.has_keys and isinstance(verdict, Ask)
            is_right = isinstance(verdict, Ask) != granted or is_void
            require(is_right, f"{mismatch}; granted: {granted}")
        else:
            kind = {"allow": Allow, "modify": Modify}.get(planned, Deny)
            require(isinstance(verdict, kind), mismatch)

    def _is_granted(self, tool: str, arguments: Arguments) -> bool:
        mine = (grant for grant in self.grants if grant.tool == tool)
        return any(grant.pattern or grant.digest == digest(arguments) for grant in mine)

    def _add_answer(self, fact: CallAnswered) -> None:
        require(fact.call_id in self.asked, f"G6: {fact.call_id} was answered without a question")
        arguments, question = self.asked.pop(fact.call_id)
        require(fact.digest == digest(arguments), f"G6: {fact} is for different arguments")
        if fact.grant is not None:
            self.grants.append(fact.grant)
        if isinstance(fact.verdict, Deny):
            return
        given_at = fact.accepted_at or fact.at
        late = question.expires_at is not None and given_at > question.expires_at
        require(not late, f"G6: {fact.call_id} was allowed after its question had expired")
        number = call_number(arguments)
        said = [
            one
            for one in self.outside.replies
            if (one.call_id, one.number) == (fact.call_id, number)
        ]
        require(any(one.leave for one in said), f"G6: no person allowed {fact.call_id}")
        verdict = fact.verdict
        self.permitted[fact.call_id] = (
            verdict.arguments if isinstance(verdict, Modify) else arguments
        )
