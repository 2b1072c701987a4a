"""Each fact with its texts masked, by whatever masks a text.

The law: a fact in which nothing changes is the same object, and costs no more than the look at its
texts. What no fact may lack is held by the match, which is closed.
"""

from collections.abc import Callable
from typing import Any, TypeVar, assert_never, cast, final

import msgspec
from msgspec.structs import replace

from windlass.core.events import (
    Allotted,
    AttemptFailed,
    AttemptStarted,
    CallAnswered,
    CallFinished,
    CallJudged,
    CallLate,
    CallStarted,
    Compacted,
    Fact,
    Heeded,
    Hydrated,
    NoteGiven,
    Recalled,
    ReplyJudged,
    RunEnded,
    RunResumed,
    RunStarted,
    Steered,
    StepProposed,
)
from windlass.core.faults import Fault
from windlass.core.messages import (
    Assistant,
    Content,
    File,
    Image,
    Result,
    Said,
    Text,
    Thinking,
    ToolCall,
    ToolSpec,
)
from windlass.core.setup import Setup
from windlass.core.verdicts import Allow, Ask, Deny, Invalid, Misfit, Modify

T = TypeVar("T")
StructT = TypeVar("StructT", bound=msgspec.Struct)
Verdict = Allow | Ask | Deny | Modify | Invalid | Misfit
Bounds = RunStarted | RunResumed | RunEnded | AttemptFailed
InRun = (
    CallJudged | CallAnswered | ReplyJudged | NoteGiven | Recalled | Compacted | Steered | Hydrated
)
BARE: frozenset[type[Fact]] = frozenset((AttemptStarted, CallStarted, Allotted, Heeded))
"""The facts that hold no text of anybody's."""


@final
class FactMask:
    """Masks facts, given what masks a text and returns the same object if it need not."""

    __slots__ = ("_text",)

    def __init__(self, text: Callable[[str], str]) -> None:
        self._text = text

    def fact(self, fact: Fact) -> Fact:
        """The fact without its secrets; the same object if it has none."""
        match fact:
            case StepProposed():
                reply = self._reply(fact.reply)
                return fact if reply is fact.reply else replace(fact, reply=reply)
            case CallFinished() | CallLate():
                result = self._result(fact.result)
                return fact if result is fact.result else replace(fact, result=result)
            case AttemptStarted() | CallStarted() | Allotted() | Heeded():
                return fact
            case RunStarted() | RunResumed() | RunEnded() | AttemptFailed():
                return self._of_run(fact)
            case _:
                return self._in_run(fact)

    def _in_run(self, fact: InRun) -> InRun:
        text = self._text
        match fact:
            case CallJudged(_, verdict, arguments, resource=resource):
                resource = None if resource is None else text(resource)
                arguments = self._json(arguments)
                verdict = self._verdict(verdict)
                return _with(fact, verdict=verdict, arguments=arguments, resource=resource)
            case CallAnswered(_, verdict, by=by):
                return _with(fact, verdict=self._verdict(verdict), by=text(by))
            case ReplyJudged(verdict):
                return _with(fact, verdict=self._verdict(verdict))
            case NoteGiven(told) | Recalled(told):
                return _with(fact, text=text(told))
            case Compacted(note=note):
                return _with(fact, note=text(note))
            case Steered(prompt, by):
                return _with(fact, prompt=_each(self._content, prompt), by=text(by))
            case Hydrated(calls):
                return _with(fact, calls=_each(self._call, calls))
            case _:
                assert_never(fact)

    def _of_run(self, fact: Bounds) -> Bounds:
        text = self._text
        match fact:
            case AttemptFailed(fault, partial=partial):
                return _with(fact, fault=self._fault(fault), partial=text(partial))
            case RunEnded(_, reason, fault, partial):
                fault = fault and self._fault(fault)
                return _with(fact, reason=text(reason), fault=fault, partial=text(partial))
            case RunResumed(drift, setup, reaped):
                setup = setup and self.setup(setup)
                drift, reaped = _each(text, drift), _each(text, reaped)
                return _with(fact, drift=drift, setup=setup, reaped=reaped)
            case RunStarted():
                return self._run_started(fact)

    def setup(self, setup: Setup) -> Setup:
        """The set-up without its secrets. What an agent offers must be what is recorded."""
        tools = _each(self._spec, setup.tools)
        schema = self._json(setup.output_schema)
        told = self._text(setup.instructions)
        return _with(setup, instructions=told, tools=tools, output_schema=schema)

    def _run_started(self, fact: RunStarted) -> RunStarted:
        return _with(
            fact,
            prompt=_each(self._content, fact.prompt),
            setup=fact.setup and self.setup(fact.setup),
            caller=self._text(fact.caller),
            context=self._json(fact.context),
        )

    def _spec(self, spec: ToolSpec) -> ToolSpec:
        description = self._text(spec.description)
        return _with(spec, description=description, parameters=self._json(spec.parameters))

    def _reply(self, reply: Assistant) -> Assistant:
        parts = _each(self._said, reply.parts)
        return reply if parts is reply.parts else replace(reply, parts=parts)

    def _result(self, result: Result) -> Result:
        content = _each(self._content, result.content)
        return result if content is result.content else replace(result, content=content)

    def _said(self, part: Said) -> Said:
        match part:
            case Text(told):
                masked = self._text(told)
                return part if masked is told else Text(masked)
            case Thinking(told):
                masked = self._text(told)
                # The signature vouches for what was thought, and for nothing else.
                return part if masked is told else Thinking(masked)
            case ToolCall():
                return self._call(part)

    def _call(self, call: ToolCall) -> ToolCall:
        arguments = self._text(call.arguments)
        return call if arguments is call.arguments else replace(call, arguments=arguments)

    def _content(self, part: Content) -> Content:
        match part:
            case Text(told):
                masked = self._text(told)
                return part if masked is told else Text(masked)
            case Image(url=url):
                return part if url is None else _with(part, url=self._text(url))
            case File(name=name, data=data, url=url):
                data = data and self._bytes(part.media_type, data)
                return _with(part, name=self._text(name), data=data, url=url and self._text(url))

    def _bytes(self, media_type: str, data: bytes) -> bytes:
        """A document that is a text is masked like one."""
        if not media_type.startswith("text/") and not media_type.endswith(("json", "xml", "yaml")):
            return data
        told = data.decode("utf-8", "surrogateescape")
        masked = self._text(told)
        return data if masked is told else masked.encode("utf-8", "surrogateescape")

    def _fault(self, fault: Fault) -> Fault:
        return _with(fault, message=self._text(fault.message))

    def _verdict(self, verdict: Verdict) -> Any:  # noqa: ANN401 - of the kind that it was
        match verdict:
            case Allow(rule):
                return _with(verdict, rule=self._text(rule))
            case Deny(reason, rule):
                return _with(verdict, reason=self._text(reason), rule=self._text(rule))
            case Modify(arguments, reason, rule):
                arguments, reason = self._json(arguments), self._text(reason)
                return _with(verdict, arguments=arguments, reason=reason, rule=self._text(rule))
            case Ask(question, rule, arguments=arguments):
                arguments, question = self._json(arguments), self._text(question)
                return _with(verdict, question=question, rule=self._text(rule), arguments=arguments)
            case Invalid(message=message) | Misfit(message):
                return _with(verdict, message=self._text(message))

    def _json(self, value: T) -> T:
        """A JSON value, masked at any depth."""
        return cast("T", self._value(value))

    def _value(self, value: object) -> object:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            fields = cast("dict[str, object]", value)
            new = {self._text(key): self._value(one) for key, one in fields.items()}
            same = all(a is b and new[a] is fields[b] for a, b in zip(new, fields, strict=False))
            return fields if same and len(new) == len(fields) else new
        if isinstance(value, list):
            items = cast("list[object]", value)
            masked = [self._value(one) for one in items]
            same = all(a is b for a, b in zip(masked, items, strict=True))
            return items if same else masked
        return value


def _with(struct: StructT, **fields: object) -> StructT:
    changed = {name: new for name, new in fields.items() if new is not getattr(struct, name)}
    return replace(struct, **changed) if changed else struct


def _each(mask: Callable[[T], T], items: tuple[T, ...]) -> tuple[T, ...]:
    masked = [mask(item) for item in items]
    for new, old in zip(masked, items, strict=True):
        if new is not old:
            return tuple(masked)
    return items
