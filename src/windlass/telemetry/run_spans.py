"""Events of a session in, operations on spans out. Pure: a trace says what the events say.

Invariant: times are those of the facts. A delta has no time, and gets that of its arrival. What was
said is exported only on request. Even then a span contains only what watchers see; it contains what
the model was shown only if nothing of that is withheld from watchers.
"""

from collections.abc import Callable, Iterator
from typing import final

import msgspec
from msgspec.structs import replace

from windlass.core.errors import Fault
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
    Outcome,
    ReplyEnd,
    RunEnded,
    RunResumed,
    RunStarted,
    RunSuspended,
    StepProposed,
    TextDelta,
    ThinkingDelta,
    UndoPlanned,
    UsageDelta,
)
from windlass.core.messages import Charge, Ledger, ToolCall
from windlass.core.setup import Setup
from windlass.core.state import State
from windlass.core.verdicts import Allow, Ask, InvalidCall, Modify
from windlass.telemetry.chat_span import ChatSpan, model_attributes, usage_attributes
from windlass.telemetry.content import (
    as_instructions,
    as_messages,
    as_prompt,
    as_reply,
    as_result,
    as_tools,
)
from windlass.telemetry.conventions import OtelNames
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
"""Returns the state of a session, if it is known."""


@final
class RunSpans:
    """The spans of one session in a trace: its run, with attempts, calls and sub-agents."""

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
        self._agent = agent
        self._session = session
        self._parent = parent
        self._find_state = find_state
        self._now = now
        self._with_content = with_content
        self._key: SpanKey = (session, "run")
        self._agent_attributes = {OtelNames.AGENT: agent} if agent else {}
        self._common_attributes = {OtelNames.CONVERSATION: session, **self._agent_attributes}
        self._began_at: float | None = None
        """When the run began; None while no run is open."""
        self._setup: Setup | None = None
        self._chat: ChatSpan | None = None
        """The request to the model that is under way."""
        self._calls_by_id: dict[str, ToolCall] = {}
        """The calls of the run, with the arguments that they are made with."""
        self._call_began_at: dict[str, float] = {}
        """When each call that is under way began, by its id."""
        self._nested_runs: dict[str, RunSpans] = {}
        """The runs of sub-agents, by session."""
        self._ledger = Ledger()
        self._setup_content: SpanAttributes = {}
        """The instructions and tools that each request begins with."""
        self._final_reply = ""

    def operations_for(self, event: Event) -> Iterator[SpanOperation]:
        """Yield what an event does to the spans."""
        match event:
            case TextDelta() | ThinkingDelta() | CallDelta() | UsageDelta() | ReplyEnd():
                self._mark_first_chunk()
            case NestedEvent(call_id, agent, session, inner):
                yield from self._nested_run(call_id, agent, session).operations_for(inner)
            case RunStarted() | RunResumed():
                yield self._open_run(event)
            case RunEnded(outcome, fault=fault, charge=charge):
                error = _error_of_run(outcome, fault)
                message = self._error_message(fault)
                yield from self.end_run(event.at, outcome, error, charge, message)
            case RunSuspended():
                yield from self.end_run(self._now(), "suspended")
            case _ if self._began_at is not None:
                yield from self._operations_in_run(event)
            case _:
                pass

    def _operations_in_run(self, event: Event) -> Iterator[SpanOperation]:
        """Yield what an event between the beginning and the end of a run does."""
        match event:
            case AttemptStarted():
                self._chat = ChatSpan(self._session, event)
                attributes = {**self._common_attributes, **self._prompt_attributes(event)}
                yield self._chat.open_span(self._key, attributes)
            case AttemptFailed(fault, charge):
                message = self._error_message(fault)
                yield from self._close_chat(
                    event.at, charge, {}, error=fault.kind, error_message=message
                )
            case StepProposed():
                yield from self._on_step_proposed(event)
            case ContextCompacted(how=how) if self._chat is None:
                attributes = {OtelNames.HOW: how}
                yield SpanEvent(self._key, OtelNames.COMPACTED, event.at, attributes)
            case ContextCompacted(charge=charge):
                # The model wrote a summary, so this is the end of that request.
                yield from self._close_chat(event.at, charge, {})
            case LookupsPlanned(calls) | UndoPlanned(calls):
                self._calls_by_id |= {call.id: call for call in calls}
            case CallJudged() | CallAnswered():
                yield from self._on_call_judged(event)
            case CallStarted(call_id):
                yield self._open_call(call_id, event.at)
            case CallFinished():
                yield from self._on_call_finished(event)
            case _:
                pass

    def _error_message(self, fault: Fault | None) -> str:
        # The message may quote a prompt or a reply, so it is content.
        return fault.message if fault and self._with_content else ""

    # ── the run ──────────────────────────────────────────────────────────────

    def _open_run(self, event: RunStarted | RunResumed) -> OpenSpan:
        state = self._find_state(self._session)
        setup = event.setup
        if setup is None and state is not None:
            setup = state.setup
        self._began_at = event.at
        self._ledger = Ledger()
        self._final_reply = ""
        self._setup = setup
        self._setup_content = self._content_of_setup(setup)
        if state and state.step:
            # Calls of a step that was proposed before this trace began.
            for call in state.step.calls:
                self._calls_by_id[call.id] = replace(call.call, arguments=call.arguments or "")
        attributes = {
            OtelNames.OPERATION: OtelNames.INVOKE_AGENT,
            **self._common_attributes,
            **self._setup_content,
        }
        if setup is not None:
            attributes |= model_attributes(setup.model.name)
        if self._with_content and isinstance(event, RunStarted):
            attributes[OtelNames.INPUT_MESSAGES] = as_prompt(event.prompt)
        name = f"{OtelNames.INVOKE_AGENT} {self._agent}".rstrip()
        resumed = self._session if isinstance(event, RunResumed) else None
        trace = event.trace if isinstance(event, RunStarted) else ""
        if resumed and state is not None and state.run is not None:
            trace = state.run.trace
        return OpenSpan(
            self._key, self._parent, name, "internal", event.at, attributes, resumed, trace
        )

    def _content_of_setup(self, setup: Setup | None) -> SpanAttributes:
        if not self._with_content or setup is None:
            return {}
        content = {OtelNames.INSTRUCTIONS: as_instructions(setup.instructions)}
        if setup.tools:
            content[OtelNames.TOOL_DEFINITIONS] = as_tools(setup.tools)
        return content

    def end_run(
        self,
        at: float,
        outcome: str,
        error: str = "",
        charge: Charge | None = None,
        error_message: str = "",
    ) -> Iterator[SpanOperation]:
        """End the run, and everything that is still open in it; nothing if no run is open."""
        began_at = self._began_at
        self._began_at = None
        if began_at is None:
            return
        for nested in self._nested_runs.values():
            yield from nested.end_run(at, outcome, error or outcome)
        for call_id in tuple(self._call_began_at):
            yield from self._close_call(call_id, at, error or outcome, {})
        yield from self._close_chat(at, charge, {}, error=error or outcome)
        usage = usage_attributes(self._ledger.usage, self._ledger.usd)
        attributes = {OtelNames.OUTCOME: outcome, **usage}
        if self._final_reply:
            attributes[OtelNames.OUTPUT_MESSAGES] = self._final_reply
        measured = {OtelNames.OPERATION: OtelNames.INVOKE_AGENT, **self._agent_attributes}
        if error:
            measured[OtelNames.ERROR] = error
        duration_s = max(0.0, at - began_at)
        yield MetricPoint(self._key, OtelNames.AGENT_DURATION, duration_s, measured)
        yield CloseSpan(self._key, at, attributes, error, error_message)

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

    # ── requests to the model ────────────────────────────────────────────────

    def _prompt_attributes(self, started: AttemptStarted) -> SpanAttributes:
        """Return what the model is shown, as far as watchers may see it."""
        if not self._with_content or started.purpose != "main":
            return {}
        state = self._find_state(self._session)
        if state is None or self._setup is None or self._setup.withhold_replies:
            return self._setup_content
        return {**self._setup_content, OtelNames.INPUT_MESSAGES: as_messages(state.shown)}

    def _mark_first_chunk(self) -> None:
        if self._chat is None or self._chat.has_first_chunk:
            return
        # A withheld reply is passed on late, which says nothing about when the model sent it.
        if self._setup is None or not self._setup.withhold_replies:
            self._chat.mark_first_chunk(self._now())

    def _on_step_proposed(self, event: StepProposed) -> Iterator[SpanOperation]:
        self._calls_by_id |= {call.id: call for call in event.reply.calls}
        attributes: dict[str, str | list[str]] = {
            OtelNames.FINISH_REASONS: [OtelNames.FINISH_REASON_BY_STOP[event.stop]]
        }
        if self._with_content:
            reply = as_reply(event.reply, event.stop)
            attributes[OtelNames.OUTPUT_MESSAGES] = reply
            # A reply with calls is not the last one.
            self._final_reply = "" if event.reply.calls else reply
        yield from self._close_chat(event.at, event.charge, attributes)

    def _close_chat(
        self,
        at: float,
        charge: Charge | None,
        attributes: SpanAttributes,
        *,
        error: str = "",
        error_message: str = "",
    ) -> Iterator[SpanOperation]:
        """End the request that is under way, if there is one."""
        if charge is not None:
            self._ledger = self._ledger.add(charge)
        chat = self._chat
        self._chat = None
        if chat is not None:
            yield from chat.close_span(
                at, charge, attributes, error=error, error_message=error_message
            )

    # ── calls of tools ───────────────────────────────────────────────────────

    def _open_call(self, call_id: str, at: float) -> OpenSpan:
        self._call_began_at[call_id] = at
        attributes = {
            OtelNames.OPERATION: OtelNames.EXECUTE_TOOL,
            **self._tool_attributes(call_id),
            OtelNames.TOOL_TYPE: OtelNames.FUNCTION,
            OtelNames.TOOL_CALL: call_id,
            **self._common_attributes,
        }
        call = self._calls_by_id.get(call_id)
        if self._with_content and call is not None and call.arguments:
            attributes[OtelNames.TOOL_ARGUMENTS] = call.arguments
        name = f"{OtelNames.EXECUTE_TOOL} {attributes.get(OtelNames.TOOL, '')}".rstrip()
        return OpenSpan(self._call_key(call_id), self._key, name, "internal", at, attributes)

    def _call_key(self, call_id: str) -> SpanKey:
        return self._session, f"call:{call_id}"

    def _tool_attributes(self, call_id: str) -> dict[str, str]:
        """Return the name of the tool. A name that no tool has is text of the model: content."""
        call = self._calls_by_id.get(call_id)
        if call is None or self._setup is None or not self._setup.find_tool(call.name):
            return {}
        return {OtelNames.TOOL: call.name}

    def _on_call_finished(self, event: CallFinished) -> Iterator[SpanOperation]:
        call_id = event.call_id
        result = event.result
        if call_id not in self._call_began_at:
            # It was interrupted by a crash before this trace began, and has been settled now.
            attributes = {
                OtelNames.TOOL_CALL: call_id,
                **self._tool_attributes(call_id),
                OtelNames.RESULT_KIND: result.kind,
            }
            yield SpanEvent(self._key, OtelNames.CALL_SETTLED, event.at, attributes)
            return
        content: dict[str, str] = {}
        if self._with_content:
            content[OtelNames.TOOL_RESULT] = as_result(result)
        error = "" if result.kind == "value" else result.kind
        yield from self._close_call(call_id, event.at, error, content)

    def _close_call(
        self, call_id: str, at: float, error: str, attributes: SpanAttributes
    ) -> Iterator[SpanOperation]:
        duration_s = max(0.0, at - self._call_began_at.pop(call_id))
        key = self._call_key(call_id)
        measured = {
            OtelNames.OPERATION: OtelNames.EXECUTE_TOOL,
            **self._tool_attributes(call_id),
            **self._agent_attributes,
        }
        if error:
            measured[OtelNames.ERROR] = error
        yield MetricPoint(key, OtelNames.TOOL_DURATION, duration_s, measured)
        yield CloseSpan(key, at, attributes, error)

    def _on_call_judged(self, event: CallJudged | CallAnswered) -> Iterator[SpanOperation]:
        self._remember_arguments(event)
        verdict = event.verdict
        # Most calls are allowed; only what stops or changes a call is worth an event.
        if isinstance(event, CallJudged) and isinstance(verdict, Allow):
            return
        attributes = {
            OtelNames.TOOL_CALL: event.call_id,
            **self._tool_attributes(event.call_id),
            # The tag is part of the recorded format, so it does not change with the class name.
            OtelNames.VERDICT: str(verdict.__struct_config__.tag),
        }
        if not isinstance(verdict, InvalidCall) and verdict.rule:
            attributes[OtelNames.RULE] = verdict.rule
        name = OtelNames.CALL_ANSWERED
        if isinstance(event, CallJudged):
            name = OtelNames.CALL_JUDGED
        yield SpanEvent(self._key, name, event.at, attributes)

    def _remember_arguments(self, event: CallJudged | CallAnswered) -> None:
        """Keep the arguments of a call as the verdict or a repair has changed them."""
        verdict = event.verdict
        arguments = verdict.arguments if isinstance(verdict, Modify | Ask) else None
        if arguments is None and isinstance(event, CallJudged):
            arguments = event.arguments
        call = self._calls_by_id.get(event.call_id)
        if arguments is not None and call is not None:
            text = msgspec.json.encode(arguments).decode()
            self._calls_by_id[event.call_id] = replace(call, arguments=text)


def _error_of_run(outcome: Outcome, fault: Fault | None) -> str:
    if outcome == "completed":
        return ""
    return fault.kind if fault else outcome
