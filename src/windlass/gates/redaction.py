"""Redaction: text that matches is removed from the arguments of a call before it runs.

Invariant: the removed text appears nowhere, only the name of the argument where it was. Texts are
changed at any depth. A key that matches denies the call: it cannot be changed without changing the
shape of the arguments. Numbers are left alone.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from windlass.core.errors import ConfigError
from windlass.core.setup import digest
from windlass.core.verdicts import Allow, Deny, Modify, Verdict
from windlass.gates.globs import MatchResult
from windlass.gates.patterns import PreparedCall, parse_pattern
from windlass.ports import GateRequest

Redaction: TypeAlias = str | re.Pattern[str] | Callable[[str], str]
"""A regular expression, or a function from text to redacted text."""

REDACTED = "[redacted]"


class _KeyNeedsRedaction(Exception):
    """The name of a field inside the arguments would have to be redacted."""


class RedactGate:
    """A gate that modifies calls whose texts match, and allows all others."""

    judges_replies = False

    def __init__(
        self,
        what: Redaction,
        *,
        tools: str | Sequence[str] = "*",
        name: str = "redact",
        replacement: str = REDACTED,
    ) -> None:
        listed = (tools,) if isinstance(tools, str) else tuple(tools)
        self._tool_patterns = [parse_pattern(pattern) for pattern in listed]
        self._change_text = what if callable(what) else _make_replacer(what, replacement)
        self._title = name
        identity = [_identify_redaction(what), listed, replacement]
        self.name = f"{name}@{digest(identity)[:12]}"

    async def judge(self, request: GateRequest) -> Verdict:
        """Allow the call, with what must not leave replaced in its arguments."""
        call = PreparedCall(request.tool, request.arguments)
        if not any(
            pattern.match(call, piece) is not MatchResult.NO
            for pattern in self._tool_patterns
            for piece in call.pieces
        ):
            return Allow(self._title)
        declared: Any = request.tool.parameters.get("properties", {})
        arguments = request.arguments
        try:
            self._check_keys(name for name in arguments if name not in declared)
            redacted = {name: self._redact_value(value) for name, value in arguments.items()}
        except _KeyNeedsRedaction:
            reason = "The name of a field in the arguments would have to be redacted: leave it out."
            return Deny(reason, self._title)
        changed = [name for name, value in redacted.items() if value != arguments[name]]
        if not changed:
            return Allow(self._title)
        # A name that the model made up is not repeated: it may hold what must not be seen.
        where = dict.fromkeys(name if name in declared else "an argument" for name in changed)
        return Modify(redacted, f"Redacted in {', '.join(where)}.", self._title)

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:  # noqa: ARG002
        """Allow every reply: only calls are changed."""
        return Allow(self._title)

    def _redact_value(self, value: object) -> object:
        if isinstance(value, str):
            return self._change_text(value)
        if isinstance(value, list):
            return [self._redact_value(item) for item in cast("list[object]", value)]
        if isinstance(value, Mapping):
            fields = cast("Mapping[str, object]", value)
            self._check_keys(fields)
            return {key: self._redact_value(item) for key, item in fields.items()}
        return value

    def _check_keys(self, keys: Iterable[str]) -> None:
        if any(self._change_text(key) != key for key in keys):
            raise _KeyNeedsRedaction


def redact(
    what: Redaction,
    *,
    tools: str | Sequence[str] = "*",
    name: str = "redact",
    replacement: str = REDACTED,
) -> RedactGate:
    """A gate that removes text from the arguments of calls.

    `what`: a regular expression for the text to remove, or a function from text to redacted text.
    `tools`: patterns of the calls to look at, as in rules: `send`, `@external`.
    `name`: of the gate, in records. `replacement`: what replaces removed text.
    Raises ConfigError for an expression that is not valid, or would match the empty text or its own
    replacement.
    """
    return RedactGate(what, tools=tools, name=name, replacement=replacement)


def _make_replacer(what: str | re.Pattern[str], replacement: str) -> Callable[[str], str]:
    try:
        pattern = re.compile(what)
    except re.error as error:
        raise ConfigError(f"{what!r} is not a regular expression: {error}") from None
    if pattern.search(""):
        raise ConfigError(
            f"{pattern.pattern!r} matches the empty text: it must match at least one character"
        )
    if pattern.search(replacement):
        # Each round of judging would change the call again.
        raise ConfigError(f"{pattern.pattern!r} matches its own replacement {replacement!r}")
    return lambda text: pattern.sub(lambda _: replacement, text)


def _identify_redaction(what: Redaction) -> list[object]:
    if isinstance(what, re.Pattern):
        return [what.pattern, int(what.flags)]
    if isinstance(what, str):
        return [what, int(re.compile(what).flags)]
    return [f"{what.__module__}.{getattr(what, '__qualname__', type(what).__name__)}"]
