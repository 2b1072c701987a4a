"""What may be said of a call or a reply, by a gate, by a person, or by the runtime itself."""

from typing import Any, Literal

import msgspec

from windlass.core.messages import Label


class Allow(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="verdict", tag="allow"
):
    """The call may run as it is."""

    rule: str = ""


class Deny(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="verdict", tag="deny"
):
    """The call may not run; the reason is told to the model."""

    reason: str
    rule: str = ""


class Modify(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="verdict", tag="modify"
):
    """The call may run with other arguments."""

    arguments: dict[str, Any]
    reason: str
    rule: str = ""


class Ask(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="verdict", tag="ask"
):
    """A person must say; the run waits for as long as that takes."""

    question: str
    rule: str = ""
    expires_at: float | None = None
    arguments: dict[str, Any] | None = None
    """Those that would run if the answer is yes; None for the call's own."""


class InvalidCall(
    msgspec.Struct, frozen=True, omit_defaults=True, tag_field="verdict", tag="invalid"
):
    """The call is none: an unknown tool, or arguments that fit no schema. Not a gate's to give."""

    code: Literal["unknown_tool", "invalid_arguments", "arguments_truncated"]
    message: str


class OutputMismatch(
    msgspec.Struct, frozen=True, omit_defaults=True, tag_field="verdict", tag="misfit"
):
    """A final reply does not fit the output type. Not a gate's to give."""

    message: str


class Grant(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a person allowed for the rest of a session.

    It lifts a question only where the session holds no more than it held when it was given.
    """

    tool: str
    digest: str = ""
    """Of the arguments, if it is for exactly these."""
    pattern: str = ""
    """Else a pattern as in a rule, such as `bash(git status*)`."""
    labels: tuple[Label, ...] = ()


class AllowAlways(msgspec.Struct, frozen=True):
    """An answer: yes, and do not ask again in this session.

    Without a pattern that is for exactly this call; with one, for the calls that it means.
    """

    pattern: str = ""
    rule: str = ""


Verdict = Allow | Deny | Modify | Ask
AnswerVerdict = Allow | Deny | Modify
PersonAnswer = AnswerVerdict | AllowAlways
"""What a person may answer."""


def is_sound_verdict(verdict: object, kinds: object) -> bool:
    """Whether this is a verdict through and through, so that it can be written down."""
    try:
        msgspec.convert(msgspec.to_builtins(verdict), type=kinds)
    except (msgspec.ValidationError, TypeError):
        return False
    return isinstance(verdict, Allow | Deny | Modify | Ask)
