"""Each fact with its texts masked, by whatever masks a text.

The law: a fact in which nothing changes is the same object, and costs no more than the look at its
texts. What no fact may lack is held by the match, which is closed.
"""

from collections.abc import Callable
from typing import Any, TypeVar, assert_never, cast, final

import msgspec
from msgspec.structs import replace

from windlass.core.events import (
    AttemptFailed,
    AttemptStarted,
    BudgetAllotted,
    CallAnswered,
    CallFinished,
    CallJudged,
    CallLate,
    CallStarted,
    ContextCompacted,
    Fact,
    KnowledgeRecalled,
    LookupsPlanned,
    NoteGiven,
    ReplyJudged,
    RunEnded,
    RunResumed,
    RunStarted,
    SteeringGiven,
    SteeringTaken,
    StepProposed,
)
from windlass.core.faults import Fault
from windlass.core.messages import (
    AssistantMessage,
    ContentPart,
    FilePart,
    ImagePart,
    ReplyPart,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from windlass.core.setup import Setup
from windlass.core.verdicts import Allow, Ask, Deny, InvalidCall, Modify, OutputMismatch

T = TypeVar("T")
StructT = TypeVar("StructT", bound=msgspec.Struct)
AnyVerdict = Allow | Ask | Deny | Modify | InvalidCall | OutputMismatch
RunBoundary = RunStarted | RunResumed | RunEnded | AttemptFailed
TextFact = (
    CallJudged
    | CallAnswered
    | ReplyJudged
    | NoteGiven
    | KnowledgeRecalled
    | ContextCompacted
    | SteeringGiven
    | LookupsPlanned
)
TEXTLESS_FACTS: frozenset[type[Fact]] = frozenset(
    (AttemptStarted, CallStarted, BudgetAllotted, SteeringTaken)
)
"""The facts that hold no text of anybody's."""


@final
class FactMask:
    """Masks facts, given what masks a text and returns the same object if it need not."""

    __slots__ = ("_mask_text",)

    def __init__(self, text: Callable[[str], str]) -> None:
        self._mask_text = text

    def mask_fact(self, fact: Fact) -> Fact:
        """The fact without its secrets; the same object if it has none."""
        match fact:
            case StepProposed():
                reply = self._mask_reply(fact.reply)
                return fact if reply is fact.reply else replace(fact, reply=reply)
            case CallFinished() | CallLate():
                result = self._mask_result(fact.result)
                return fact if result is fact.result else replace(fact, result=result)
            case AttemptStarted() | CallStarted() | BudgetAllotted() | SteeringTaken():
                return fact
            case RunStarted() | RunResumed() | RunEnded() | AttemptFailed():
                return self._mask_boundary(fact)
            case _:
                return self._mask_in_run(fact)

    def _mask_in_run(self, fact: TextFact) -> TextFact:
        text = self._mask_text
        match fact:
            case CallJudged(_, verdict, arguments, resource=resource):
                resource = None if resource is None else text(resource)
                arguments = self._mask_json(arguments)
                verdict = self._mask_verdict(verdict)
                return _replace_changed(
                    fact, verdict=verdict, arguments=arguments, resource=resource
                )
            case CallAnswered(_, verdict, by=by):
                return _replace_changed(fact, verdict=self._mask_verdict(verdict), by=text(by))
            case ReplyJudged(verdict):
                return _replace_changed(fact, verdict=self._mask_verdict(verdict))
            case NoteGiven(told) | KnowledgeRecalled(told):
                return _replace_changed(fact, text=text(told))
            case ContextCompacted(note=note):
                return _replace_changed(fact, note=text(note))
            case SteeringGiven(prompt, by):
                return _replace_changed(
                    fact, prompt=_mask_each(self._mask_content, prompt), by=text(by)
                )
            case LookupsPlanned(calls):
                return _replace_changed(fact, calls=_mask_each(self._mask_call, calls))
            case _:
                assert_never(fact)

    def _mask_boundary(self, fact: RunBoundary) -> RunBoundary:
        text = self._mask_text
        match fact:
            case AttemptFailed(fault, partial=partial):
                return _replace_changed(fact, fault=self._mask_fault(fault), partial=text(partial))
            case RunEnded(_, reason, fault, partial):
                fault = fault and self._mask_fault(fault)
                return _replace_changed(
                    fact, reason=text(reason), fault=fault, partial=text(partial)
                )
            case RunResumed(drift, setup, reaped):
                setup = setup and self.mask_setup(setup)
                drift, reaped = _mask_each(text, drift), _mask_each(text, reaped)
                return _replace_changed(fact, drift=drift, setup=setup, reaped=reaped)
            case RunStarted():
                return self._mask_run_started(fact)

    def mask_setup(self, setup: Setup) -> Setup:
        """The set-up without its secrets. What an agent offers must be what is recorded."""
        tools = _mask_each(self._mask_spec, setup.tools)
        schema = self._mask_json(setup.output_schema)
        told = self._mask_text(setup.instructions)
        return _replace_changed(setup, instructions=told, tools=tools, output_schema=schema)

    def _mask_run_started(self, fact: RunStarted) -> RunStarted:
        return _replace_changed(
            fact,
            prompt=_mask_each(self._mask_content, fact.prompt),
            setup=fact.setup and self.mask_setup(fact.setup),
            caller=self._mask_text(fact.caller),
            context=self._mask_json(fact.context),
        )

    def _mask_spec(self, spec: ToolSpec) -> ToolSpec:
        description = self._mask_text(spec.description)
        return _replace_changed(
            spec, description=description, parameters=self._mask_json(spec.parameters)
        )

    def _mask_reply(self, reply: AssistantMessage) -> AssistantMessage:
        parts = _mask_each(self._mask_reply_part, reply.parts)
        return reply if parts is reply.parts else replace(reply, parts=parts)

    def _mask_result(self, result: ToolResult) -> ToolResult:
        content = _mask_each(self._mask_content, result.content)
        return result if content is result.content else replace(result, content=content)

    def _mask_reply_part(self, part: ReplyPart) -> ReplyPart:
        match part:
            case TextPart(told):
                masked = self._mask_text(told)
                return part if masked is told else TextPart(masked)
            case ThinkingPart(told):
                masked = self._mask_text(told)
                # The signature vouches for what was thought, and for nothing else.
                return part if masked is told else ThinkingPart(masked)
            case ToolCall():
                return self._mask_call(part)

    def _mask_call(self, call: ToolCall) -> ToolCall:
        arguments = self._mask_text(call.arguments)
        return call if arguments is call.arguments else replace(call, arguments=arguments)

    def _mask_content(self, part: ContentPart) -> ContentPart:
        match part:
            case TextPart(told):
                masked = self._mask_text(told)
                return part if masked is told else TextPart(masked)
            case ImagePart(url=url):
                return part if url is None else _replace_changed(part, url=self._mask_text(url))
            case FilePart(name=name, data=data, url=url):
                data = data and self._mask_bytes(part.media_type, data)
                return _replace_changed(
                    part, name=self._mask_text(name), data=data, url=url and self._mask_text(url)
                )

    def _mask_bytes(self, media_type: str, data: bytes) -> bytes:
        """A document that is a text is masked like one."""
        if not media_type.startswith("text/") and not media_type.endswith(("json", "xml", "yaml")):
            return data
        told = data.decode("utf-8", "surrogateescape")
        masked = self._mask_text(told)
        return data if masked is told else masked.encode("utf-8", "surrogateescape")

    def _mask_fault(self, fault: Fault) -> Fault:
        return _replace_changed(fault, message=self._mask_text(fault.message))

    def _mask_verdict(self, verdict: AnyVerdict) -> Any:  # noqa: ANN401 - of the kind that it was
        match verdict:
            case Allow(rule):
                return _replace_changed(verdict, rule=self._mask_text(rule))
            case Deny(reason, rule):
                return _replace_changed(
                    verdict, reason=self._mask_text(reason), rule=self._mask_text(rule)
                )
            case Modify(arguments, reason, rule):
                arguments, reason = self._mask_json(arguments), self._mask_text(reason)
                return _replace_changed(
                    verdict, arguments=arguments, reason=reason, rule=self._mask_text(rule)
                )
            case Ask(question, rule, arguments=arguments):
                arguments, question = self._mask_json(arguments), self._mask_text(question)
                return _replace_changed(
                    verdict, question=question, rule=self._mask_text(rule), arguments=arguments
                )
            case InvalidCall(message=message) | OutputMismatch(message):
                return _replace_changed(verdict, message=self._mask_text(message))

    def _mask_json(self, value: T) -> T:
        """A JSON value, masked at any depth."""
        return cast("T", self._mask_value(value))

    def _mask_value(self, value: object) -> object:
        if isinstance(value, str):
            return self._mask_text(value)
        if isinstance(value, dict):
            fields = cast("dict[str, object]", value)
            new = {self._mask_text(key): self._mask_value(one) for key, one in fields.items()}
            same = all(a is b and new[a] is fields[b] for a, b in zip(new, fields, strict=False))
            return fields if same and len(new) == len(fields) else new
        if isinstance(value, list):
            items = cast("list[object]", value)
            masked = [self._mask_value(one) for one in items]
            same = all(a is b for a, b in zip(masked, items, strict=True))
            return items if same else masked
        return value


def _replace_changed(struct: StructT, **fields: object) -> StructT:
    changed = {name: new for name, new in fields.items() if new is not getattr(struct, name)}
    return replace(struct, **changed) if changed else struct


def _mask_each(mask: Callable[[T], T], items: tuple[T, ...]) -> tuple[T, ...]:
    masked = [mask(item) for item in items]
    for new, old in zip(masked, items, strict=True):
        if new is not old:
            return tuple(masked)
    return items
