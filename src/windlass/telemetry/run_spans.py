"""Events of a session in, operations on spans out: pure, so that a trace is what the events say.

The law: times are those of the facts; a delta has none, and is stamped when it comes. What was said
is told only when that is asked for, and only as watchers are told it, or as the model was shown it
where nothing of that is kept from watchers.
"""

from collections.abc import Callable, Iterator
from typing import final

import msgspec
from msgspec.structs import replace

from windlass.core.events import (
    AttemptFailed,
    AttemptStarted,
    CallAnswered,
    CallDelta,
    CallFinished,
    CallJudged,
    CallStarted,
    Compacted,
    Event,
    Hydrated,
    Nested,
    ReplyEnd,
    RunEnded,
    RunResumed,
    RunStarted,
    RunSuspended,
    StepProposed,
    TextDelta,
    ThinkingDelta,
    UsageDelta,
)
from windlass.core.messages import Charge, Ledger, ToolCall
from windlass.core.setup import Setup
from windlass.core.state import State
from windlass.core.verdicts import Allow, Ask, Invalid, Modify
from windlass.telemetry.chats import Chat, asked, spent
from windlass.telemetry.content import (
    as_instructions,
    as_messages,
    as_prompt,
    as_reply,
    as_result,
    as_tools,
)
from windlass.telemetry.conventions import Words
from windlass.telemetry.operations import Attributes, Close, Key, Mark, Measure, Op, Open

Known = Callable[[str], State | None]
"""What the facts of a session add up to, if that can be had."""


@final
class Scope:
    """One session of a trace: a run, its attempts and its calls, and those that work for it."""

    def __init__(
        self,
        agent: str,
        session: str,
        parent: Key | None,
        *,
        known: Known,
        now: Callable[[], float],
        say: bool,
    ) -> None:
        self._agent, self._session, self._parent = agent, session, parent
        self._known, self._now, self._say = known, now, say
        self._key: Key = (session, "run")
        self._called = {Words.AGENT: agent} if agent else {}
        self._common = {Words.CONVERSATION: session, **self._called}
        self._began: float | None = None
        self._setup: Setup | None = None
        self._chat: Chat | None = None
        self._named: dict[str, ToolCall] = {}
        """The calls of the run, with the arguments that count."""
        self._calls: dict[str, float] = {}
        """When the calls under way began."""
        self._below: dict[str, Scope] = {}
        self._ledger = Ledger()
        self._told_first: Attributes = {}
        """What the model is told before all else."""
        self._said = ""

    def read(self, event: Event) -> Iterator[Op]:
        """What an event does to the spans."""
        match event:
            case TextDelta() | ThinkingDelta() | CallDelta() | UsageDelta() | ReplyEnd():
                self._hear()
            case Nested(call_id, agent, session, inner):
                yield from self._nested(call_id, agent, session).read(inner)
            case RunStarted() | RunResumed():
                yield self._open(event)
            case RunEnded(outcome, fault=fault, charge=charge):
                error = "" if outcome == "completed" else fault.kind if fault else outcome
                words = fault.message if fault and self._say else ""
                yield from self.end(event.at, outcome, error, charge, words)
            case RunSuspended():
                yield from self.end(self._now(), "suspended")
            case _ if self._began is not None:
                yield from self._within(event)
            case _:
                pass

    def _within(self, event: Event) -> Iterator[Op]:
        """What happens between the two ends of a run."""
        match event:
            case AttemptStarted():
                self._chat = Chat(self._session, event)
                yield self._chat.open(self._key, {**self._common, **self._shown(event)})
            case AttemptFailed(fault, charge):
                words = fault.message if self._say else ""
                yield from self._reply(event.at, charge, {}, error=fault.kind, words=words)
            case StepProposed():
                yield from self._proposed(event)
            case Compacted(how=how) if self._chat is None:
                yield Mark(self._key, Words.COMPACTED, event.at, {Words.HOW: how})
            case Compacted(charge=charge):
                yield from self._reply(event.at, charge, {})
            case Hydrated(calls):
                self._named |= {call.id: call for call in calls}
            case CallJudged() | CallAnswered():
                yield from self._judged(event)
            case CallStarted(call_id):
                yield self._call(call_id, event.at)
            case CallFinished():
                yield from self._finished(event)
            case _:
                pass

    def end(
        self,
        at: float,
        outcome: str,
        error: str = "",
        charge: Charge | None = None,
        words: str = "",
    ) -> Iterator[Op]:
        """The run ends here, and with it all that was under way in it."""
        began, self._began = self._began, None
        if began is None:
            return
        for below in self._below.values():
            yield from below.end(at, outcome, error or outcome)
        for call_id in tuple(self._calls):
            yield from self._over(call_id, at, error or outcome, {})
        yield from self._reply(at, charge, {}, error=error or outcome)
        told = {Words.OUTCOME: outcome, **spent(self._ledger.usage, self._ledger.usd)}
        if self._said:
            told[Words.OUTPUT_MESSAGES] = self._said
        common = {Words.OPERATION: Words.INVOKE_AGENT, **self._called}
        failed = {Words.ERROR: error} if error else {}
        yield Measure(self._key, Words.AGENT_DURATION, max(0.0, at - began), common | failed)
        yield Close(self._key, at, told, error, words)

    def _open(self, event: RunStarted | RunResumed) -> Open:
        state = self._known(self._session)
        self._began, self._ledger, self._said = event.at, Ledger(), ""
        self._setup = event.setup or (state.setup if state else None)
        setup, told = self._setup, dict[str, str]()
        self._told_first = self._fixed(setup)
        for call in state.step.calls if state and state.step else ():
            self._named[call.id] = replace(call.call, arguments=call.arguments or "")
        if self._say and isinstance(event, RunStarted):
            told[Words.INPUT_MESSAGES] = as_prompt(event.prompt)
        attributes = {
            Words.OPERATION: Words.INVOKE_AGENT,
            **self._common,
            **(asked(setup.model.name) if setup else {}),
            **self._told_first,
            **told,
        }
        name = f"{Words.INVOKE_AGENT} {self._agent}".rstrip()
        resumed = self._session if isinstance(event, RunResumed) else None
        return Open(self._key, self._parent, name, "internal", event.at, attributes, resumed)

    def _fixed(self, setup: Setup | None) -> Attributes:
        if not self._say or setup is None:
            return {}
        told = {Words.INSTRUCTIONS: as_instructions(setup.instructions)}
        return told | ({Words.TOOL_DEFINITIONS: as_tools(setup.tools)} if setup.tools else {})

    def _shown(self, started: AttemptStarted) -> Attributes:
        """What the model is shown, unless watchers may not see all of that."""
        state, setup = self._known(self._session), self._setup
        if not self._say or started.purpose != "main":
            return {}
        if not state or not setup or setup.withhold_replies:
            return self._told_first
        return {**self._told_first, Words.INPUT_MESSAGES: as_messages(state.shown)}

    def _hear(self) -> None:
        # What is withheld comes late, and says nothing of when it was there.
        chat, setup = self._chat, self._setup
        if chat is not None and not chat.heard and not (setup and setup.withhold_replies):
            chat.hear(self._now())

    def _proposed(self, event: StepProposed) -> Iterator[Op]:
        self._named |= {call.id: call for call in event.reply.calls}
        told: dict[str, str | list[str]] = {Words.FINISH_REASONS: [Words.FINISHES[event.stop]]}
        if self._say:
            said = told[Words.OUTPUT_MESSAGES] = as_reply(event.reply, event.stop)
            self._said = "" if event.reply.calls else said
        yield from self._reply(event.at, event.charge, told)

    def _reply(
        self,
        at: float,
        charge: Charge | None,
        more: Attributes,
        *,
        error: str = "",
        words: str = "",
    ) -> Iterator[Op]:
        """The request under way is over, if there is one."""
        if charge is not None:
            self._ledger = self._ledger.add(charge)
        chat, self._chat = self._chat, None
        if chat is not None:
            yield from chat.close(at, charge, more, error=error, words=words)

    def _tool(self, call_id: str) -> dict[str, str]:
        """Which tool is meant. A name that no tool has is the model's own words."""
        call, setup = self._named.get(call_id), self._setup
        return {Words.TOOL: call.name} if call and setup and setup.tool(call.name) else {}

    def _call(self, call_id: str, at: float) -> Open:
        self._calls[call_id] = at
        attributes = {
            Words.OPERATION: Words.EXECUTE_TOOL,
            **self._tool(call_id),
            Words.TOOL_TYPE: Words.FUNCTION,
            Words.TOOL_CALL: call_id,
            **self._common,
        }
        call = self._named.get(call_id)
        if self._say and call is not None and call.arguments:
            attributes[Words.TOOL_ARGUMENTS] = call.arguments
        name = f"{Words.EXECUTE_TOOL} {attributes.get(Words.TOOL, '')}".rstrip()
        return Open(self._call_key(call_id), self._key, name, "internal", at, attributes)

    def _call_key(self, call_id: str) -> Key:
        return self._session, f"call:{call_id}"

    def _finished(self, event: CallFinished) -> Iterator[Op]:
        call_id, given = event.call_id, event.result
        if call_id not in self._calls:
            # A crash interrupted it, and what became of it was found out.
            told = {Words.TOOL_CALL: call_id, **self._tool(call_id), Words.RESULT_KIND: given.kind}
            yield Mark(self._key, Words.CALL_SETTLED, event.at, told)
            return
        more = {Words.TOOL_RESULT: as_result(given)} if self._say else {}
        yield from self._over(call_id, event.at, "" if given.kind == "value" else given.kind, more)

    def _over(self, call_id: str, at: float, error: str, more: Attributes) -> Iterator[Op]:
        began, key = self._calls.pop(call_id), self._call_key(call_id)
        common = {Words.OPERATION: Words.EXECUTE_TOOL, **self._tool(call_id), **self._called}
        failed = {Words.ERROR: error} if error else {}
        yield Measure(key, Words.TOOL_DURATION, max(0.0, at - began), common | failed)
        yield Close(key, at, more, error)

    def _judged(self, event: CallJudged | CallAnswered) -> Iterator[Op]:
        call_id, verdict = event.call_id, event.verdict
        given = verdict.arguments if isinstance(verdict, Modify | Ask) else None
        if given is None and isinstance(event, CallJudged):
            given = event.arguments
        if given is not None and call_id in self._named:
            text = msgspec.json.encode(given).decode()
            self._named[call_id] = replace(self._named[call_id], arguments=text)
        if isinstance(event, CallJudged) and isinstance(verdict, Allow):
            return
        told = {Words.TOOL_CALL: call_id, **self._tool(call_id)}
        told[Words.VERDICT] = type(verdict).__name__.lower()
        if not isinstance(verdict, Invalid) and verdict.rule:
            told[Words.RULE] = verdict.rule
        judged = isinstance(event, CallJudged)
        name = Words.CALL_JUDGED if judged else Words.CALL_ANSWERED
        yield Mark(self._key, name, event.at, told)

    def _nested(self, call_id: str, agent: str, session: str) -> "Scope":
        if session not in self._below:
            parent = self._call_key(call_id) if call_id in self._calls else self._key
            self._below[session] = Scope(
                agent, session, parent, known=self._known, now=self._now, say=self._say
            )
        return self._below[session]
