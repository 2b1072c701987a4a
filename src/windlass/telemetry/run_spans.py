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
    ContextCompacted,
    Event,
    LookupsPlanned,
    NestedEvent,
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
from windlass.core.verdicts import Allow, Ask, InvalidCall, Modify
from windlass.telemetry.chats import ChatSpan, model_attributes, usage_attributes
from windlass.telemetry.content import (
    as_instructions,
    as_messages,
    as_prompt,
    as_reply,
    as_result,
    as_tools,
)
from windlass.telemetry.conventions import TelemetryNames
from windlass.telemetry.operations import (
    CloseSpan,
    MetricPoint,
    OpenSpan,
    SpanAttributes,
    SpanEvent,
    SpanKey,
    SpanOperation,
)

StateLookup = Callable[[str], State | None]
"""What the facts of a session add up to, if that can be had."""


@final
class RunSpans:
    """One session of a trace: a run, its attempts and its calls, and those that work for it."""

    def __init__(
        self,
        agent: str,
        session: str,
        parent: SpanKey | None,
        *,
        find_state: StateLookup,
        now: Callable[[], float],
        with_content: bool,
    ) -> None:
        self._agent, self._session, self._parent = agent, session, parent
        self._find_state, self._now, self._with_content = find_state, now, with_content
        self._key: SpanKey = (session, "run")
        self._agent_attributes = {TelemetryNames.AGENT: agent} if agent else {}
        self._common_attributes = {TelemetryNames.CONVERSATION: session, **self._agent_attributes}
        self._began_at: float | None = None
        self._setup: Setup | None = None
        self._chat: ChatSpan | None = None
        self._calls_by_id: dict[str, ToolCall] = {}
        """The calls of the run, with the arguments that count."""
        self._call_began_at: dict[str, float] = {}
        """When the calls under way began."""
        self._nested_runs: dict[str, RunSpans] = {}
        self._ledger = Ledger()
        self._setup_content: SpanAttributes = {}
        """What the model is told before all else."""
        self._final_reply = ""

    def operations_for(self, event: Event) -> Iterator[SpanOperation]:
        """What an event does to the spans."""
        match event:
            case TextDelta() | ThinkingDelta() | CallDelta() | UsageDelta() | ReplyEnd():
                self._mark_first_chunk()
            case NestedEvent(call_id, agent, session, inner):
                yield from self._nested_run(call_id, agent, session).operations_for(inner)
            case RunStarted() | RunResumed():
                yield self._open_run(event)
            case RunEnded(outcome, fault=fault, charge=charge):
                error = "" if outcome == "completed" else fault.kind if fault else outcome
                words = fault.message if fault and self._with_content else ""
                yield from self.end_run(event.at, outcome, error, charge, words)
            case RunSuspended():
                yield from self.end_run(self._now(), "suspended")
            case _ if self._began_at is not None:
                yield from self._operations_in_run(event)
            case _:
                pass

    def _operations_in_run(self, event: Event) -> Iterator[SpanOperation]:
        """What happens between the two ends of a run."""
        match event:
            case AttemptStarted():
                self._chat = ChatSpan(self._session, event)
                yield self._chat.open_span(
                    self._key, {**self._common_attributes, **self._prompt_attributes(event)}
                )
            case AttemptFailed(fault, charge):
                words = fault.message if self._with_content else ""
                yield from self._close_chat(
                    event.at, charge, {}, error=fault.kind, error_message=words
                )
            case StepProposed():
                yield from self._on_step_proposed(event)
            case ContextCompacted(how=how) if self._chat is None:
                yield SpanEvent(
                    self._key, TelemetryNames.COMPACTED, event.at, {TelemetryNames.HOW: how}
                )
            case ContextCompacted(charge=charge):
                yield from self._close_chat(event.at, charge, {})
            case LookupsPlanned(calls):
                self._calls_by_id |= {call.id: call for call in calls}
            case CallJudged() | CallAnswered():
                yield from self._on_call_judged(event)
            case CallStarted(call_id):
                yield self._open_call(call_id, event.at)
            case CallFinished():
                yield from self._on_call_finished(event)
            case _:
                pass

    def end_run(
        self,
        at: float,
        outcome: str,
        error: str = "",
        charge: Charge | None = None,
        error_message: str = "",
    ) -> Iterator[SpanOperation]:
        """The run ends here, and with it all that was under way in it."""
        began, self._began_at = self._began_at, None
        if began is None:
            return
        for below in self._nested_runs.values():
            yield from below.end_run(at, outcome, error or outcome)
        for call_id in tuple(self._call_began_at):
            yield from self._close_call(call_id, at, error or outcome, {})
        yield from self._close_chat(at, charge, {}, error=error or outcome)
        told = {
            TelemetryNames.OUTCOME: outcome,
            **usage_attributes(self._ledger.usage, self._ledger.usd),
        }
        if self._final_reply:
            told[TelemetryNames.OUTPUT_MESSAGES] = self._final_reply
        common = {TelemetryNames.OPERATION: TelemetryNames.INVOKE_AGENT, **self._agent_attributes}
        failed = {TelemetryNames.ERROR: error} if error else {}
        yield MetricPoint(
            self._key, TelemetryNames.AGENT_DURATION, max(0.0, at - began), common | failed
        )
        yield CloseSpan(self._key, at, told, error, error_message)

    def _open_run(self, event: RunStarted | RunResumed) -> OpenSpan:
        state = self._find_state(self._session)
        self._began_at, self._ledger, self._final_reply = event.at, Ledger(), ""
        self._setup = event.setup or (state.setup if state else None)
        setup, told = self._setup, dict[str, str]()
        self._setup_content = self._content_of_setup(setup)
        for call in state.step.calls if state and state.step else ():
            self._calls_by_id[call.id] = replace(call.call, arguments=call.arguments or "")
        if self._with_content and isinstance(event, RunStarted):
            told[TelemetryNames.INPUT_MESSAGES] = as_prompt(event.prompt)
        attributes = {
            TelemetryNames.OPERATION: TelemetryNames.INVOKE_AGENT,
            **self._common_attributes,
            **(model_attributes(setup.model.name) if setup else {}),
            **self._setup_content,
            **told,
        }
        name = f"{TelemetryNames.INVOKE_AGENT} {self._agent}".rstrip()
        resumed = self._session if isinstance(event, RunResumed) else None
        return OpenSpan(self._key, self._parent, name, "internal", event.at, attributes, resumed)

    def _content_of_setup(self, setup: Setup | None) -> SpanAttributes:
        if not self._with_content or setup is None:
            return {}
        told = {TelemetryNames.INSTRUCTIONS: as_instructions(setup.instructions)}
        return told | (
            {TelemetryNames.TOOL_DEFINITIONS: as_tools(setup.tools)} if setup.tools else {}
        )

    def _prompt_attributes(self, started: AttemptStarted) -> SpanAttributes:
        """What the model is shown, unless watchers may not see all of that."""
        state, setup = self._find_state(self._session), self._setup
        if not self._with_content or started.purpose != "main":
            return {}
        if not state or not setup or setup.withhold_replies:
            return self._setup_content
        return {**self._setup_content, TelemetryNames.INPUT_MESSAGES: as_messages(state.shown)}

    def _mark_first_chunk(self) -> None:
        # What is withheld comes late, and says nothing of when it was there.
        chat, setup = self._chat, self._setup
        if chat is not None and not chat.has_first_chunk and not (setup and setup.withhold_replies):
            chat.mark_first_chunk(self._now())

    def _on_step_proposed(self, event: StepProposed) -> Iterator[SpanOperation]:
        self._calls_by_id |= {call.id: call for call in event.reply.calls}
        told: dict[str, str | list[str]] = {
            TelemetryNames.FINISH_REASONS: [TelemetryNames.FINISH_REASON_BY_STOP[event.stop]]
        }
        if self._with_content:
            said = told[TelemetryNames.OUTPUT_MESSAGES] = as_reply(event.reply, event.stop)
            self._final_reply = "" if event.reply.calls else said
        yield from self._close_chat(event.at, event.charge, told)

    def _close_chat(
        self,
        at: float,
        charge: Charge | None,
        more: SpanAttributes,
        *,
        error: str = "",
        error_message: str = "",
    ) -> Iterator[SpanOperation]:
        """The request under way is over, if there is one."""
        if charge is not None:
            self._ledger = self._ledger.add(charge)
        chat, self._chat = self._chat, None
        if chat is not None:
            yield from chat.close_span(at, charge, more, error=error, error_message=error_message)

    def _tool_attributes(self, call_id: str) -> dict[str, str]:
        """Which tool is meant. A name that no tool has is the model's own words."""
        call, setup = self._calls_by_id.get(call_id), self._setup
        return (
            {TelemetryNames.TOOL: call.name}
            if call and setup and setup.find_tool(call.name)
            else {}
        )

    def _open_call(self, call_id: str, at: float) -> OpenSpan:
        self._call_began_at[call_id] = at
        attributes = {
            TelemetryNames.OPERATION: TelemetryNames.EXECUTE_TOOL,
            **self._tool_attributes(call_id),
            TelemetryNames.TOOL_TYPE: TelemetryNames.FUNCTION,
            TelemetryNames.TOOL_CALL: call_id,
            **self._common_attributes,
        }
        call = self._calls_by_id.get(call_id)
        if self._with_content and call is not None and call.arguments:
            attributes[TelemetryNames.TOOL_ARGUMENTS] = call.arguments
        name = f"{TelemetryNames.EXECUTE_TOOL} {attributes.get(TelemetryNames.TOOL, '')}".rstrip()
        return OpenSpan(self._call_key(call_id), self._key, name, "internal", at, attributes)

    def _call_key(self, call_id: str) -> SpanKey:
        return self._session, f"call:{call_id}"

    def _on_call_finished(self, event: CallFinished) -> Iterator[SpanOperation]:
        call_id, given = event.call_id, event.result
        if call_id not in self._call_began_at:
            # A crash interrupted it, and what became of it was found out.
            told = {
                TelemetryNames.TOOL_CALL: call_id,
                **self._tool_attributes(call_id),
                TelemetryNames.RESULT_KIND: given.kind,
            }
            yield SpanEvent(self._key, TelemetryNames.CALL_SETTLED, event.at, told)
            return
        more = {TelemetryNames.TOOL_RESULT: as_result(given)} if self._with_content else {}
        yield from self._close_call(
            call_id, event.at, "" if given.kind == "value" else given.kind, more
        )

    def _close_call(
        self, call_id: str, at: float, error: str, more: SpanAttributes
    ) -> Iterator[SpanOperation]:
        began, key = self._call_began_at.pop(call_id), self._call_key(call_id)
        common = {
            TelemetryNames.OPERATION: TelemetryNames.EXECUTE_TOOL,
            **self._tool_attributes(call_id),
            **self._agent_attributes,
        }
        failed = {TelemetryNames.ERROR: error} if error else {}
        yield MetricPoint(key, TelemetryNames.TOOL_DURATION, max(0.0, at - began), common | failed)
        yield CloseSpan(key, at, more, error)

    def _on_call_judged(self, event: CallJudged | CallAnswered) -> Iterator[SpanOperation]:
        call_id, verdict = event.call_id, event.verdict
        given = verdict.arguments if isinstance(verdict, Modify | Ask) else None
        if given is None and isinstance(event, CallJudged):
            given = event.arguments
        if given is not None and call_id in self._calls_by_id:
            text = msgspec.json.encode(given).decode()
            self._calls_by_id[call_id] = replace(self._calls_by_id[call_id], arguments=text)
        if isinstance(event, CallJudged) and isinstance(verdict, Allow):
            return
        told = {TelemetryNames.TOOL_CALL: call_id, **self._tool_attributes(call_id)}
        told[TelemetryNames.VERDICT] = str(verdict.__struct_config__.tag)
        if not isinstance(verdict, InvalidCall) and verdict.rule:
            told[TelemetryNames.RULE] = verdict.rule
        judged = isinstance(event, CallJudged)
        name = TelemetryNames.CALL_JUDGED if judged else TelemetryNames.CALL_ANSWERED
        yield SpanEvent(self._key, name, event.at, told)

    def _nested_run(self, call_id: str, agent: str, session: str) -> "RunSpans":
        if session not in self._nested_runs:
            parent = self._call_key(call_id) if call_id in self._call_began_at else self._key
            self._nested_runs[session] = RunSpans(
                agent,
                session,
                parent,
                find_state=self._find_state,
                now=self._now,
                with_content=self._with_content,
            )
        return self._nested_runs[session]
