"""Verdicts on a call or a reply: by a gate, by a person, or by the runtime itself."""

from typing import Any, Literal

import msgspec

from windlass.core.messages import Label


class Allow(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="verdict", tag="allow"
):
    """The call may run as it is."""

    rule: str = ""
    """The rule that decided, for the record."""


class Deny(
    msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="verdict", tag="deny"
):
    """The call may not run. The model reads the reason."""

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
    """A person must decide. The run waits for as long as that takes."""

    question: str
    rule: str = ""
    expires_at: float | None = None
    """Seconds since the epoch after which only a denial is accepted; None: never."""
    arguments: dict[str, Any] | None = None
    """The arguments that would run if the answer is yes; None for those of the call."""


class InvalidCall(
    msgspec.Struct, frozen=True, omit_defaults=True, tag_field="verdict", tag="invalid"
):
    """The call is not made: an unknown tool, arguments that fit no schema, or one too many.

    Only the runtime gives this verdict, not a gate.
    """

    code: Literal[
        "unknown_tool",
        "invalid_arguments",
        "arguments_truncated",
        "too_many_calls",
        "repeated_call",
    ]
    message: str


class OutputMismatch(
    msgspec.Struct, frozen=True, omit_defaults=True, tag_field="verdict", tag="misfit"
):
    """A final reply does not fit the output type. Only the runtime gives this verdict."""

    message: str


class Grant(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a person allowed for the rest of a session.

    It answers a later question only while the session holds no labels beyond those it held when the
    grant was given.
    """

    tool: str
    digest: str = ""
    """Of the arguments, if the grant is for exactly these."""
    pattern: str = ""
    """Otherwise a pattern as in a rule, such as `bash(git status*)`."""
    labels: tuple[Label, ...] = ()
    described: str = ""
    """Of the tool's description and parameters; empty if the grant is for any."""


class AllowAlways(
    msgspec.Struct, frozen=True, omit_defaults=True, tag_field="verdict", tag="allow_always"
):
    """An answer: yes, and do not ask again in this session.

    Without a pattern it holds for exactly this call, with one for all calls that match it.
    """

    pattern: str = ""
    rule: str = ""


Verdict = Allow | Deny | Modify | Ask
"""What a gate may say."""
AnswerVerdict = Allow | Deny | Modify
"""What settles a question."""
PersonAnswer = AnswerVerdict | AllowAlways
"""What a person may answer."""


def is_sound_verdict(verdict: object, kinds: object) -> bool:
    """Whether this is a verdict of these kinds, with every field valid, so that it can be recorded.

    A gate is code of others: it may return anything.
    """
    try:
        msgspec.convert(msgspec.to_builtins(verdict), type=kinds)
    except (msgspec.ValidationError, TypeError):
        return False
    return isinstance(verdict, Allow | Deny | Modify | Ask)
