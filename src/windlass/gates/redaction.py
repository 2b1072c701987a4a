"""Redaction: what matches is taken out of a call's texts before the call is made.

The law: what was taken out is told nowhere, only where it stood. Texts are changed at any depth;
what cannot be changed without changing the shape of the call, a key that matches, denies.
Numbers are no texts.
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
"""A regular expression, or what makes a text of a text."""

REDACTED = "[redacted]"


class _KeyNeedsRedaction(Exception):
    """A key would have to be redacted."""


class RedactGate:
    """Modifies the calls whose texts match; allows the others as they are."""

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
        told = [_identify_redaction(what), listed, replacement]
        self.name = f"{name}@{digest(told)[:12]}"

    async def judge(self, request: GateRequest) -> Verdict:
        if not self._applies_to(request):
            return Allow(self._title)
        known: Any = request.tool.parameters.get("properties", {})
        try:
            self._check_keys(name for name in request.arguments if name not in known)
            redacted = {name: self._redact_value(one) for name, one in request.arguments.items()}
        except _KeyNeedsRedaction:
            told = "A name inside the arguments would have to be redacted: leave it out."
            return Deny(told, self._title)
        changed = [name for name, one in redacted.items() if one != request.arguments[name]]
        if not changed:
            return Allow(self._title)
        # A name of the model's own is not told: it may be what somebody wants to know.
        where = dict.fromkeys(name if name in known else "an argument" for name in changed)
        return Modify(redacted, f"Redacted in {', '.join(where)}.", self._title)

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:  # noqa: ARG002
        return Allow(self._title)

    def _applies_to(self, request: GateRequest) -> bool:
        call = PreparedCall(request.tool, request.arguments)
        return any(
            pattern.match(call, piece) is not MatchResult.NO
            for pattern in self._tool_patterns
            for piece in call.pieces
        )

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
    """A gate that takes out of a call's texts what matches a regular expression, or as you say.

    `tools`: patterns of the calls that it looks at, as in rules: `send`, `@external`.
    """
    return RedactGate(what, tools=tools, name=name, replacement=replacement)


def _make_replacer(what: str | re.Pattern[str], replacement: str) -> Callable[[str], str]:
    try:
        pattern = re.compile(what)
    except re.error as error:
        raise ConfigError(f"{what!r} is no regular expression: {error}") from None
    if pattern.search(""):
        raise ConfigError(
            f"{pattern.pattern!r} matches a text that is empty: say what it looks for"
        )
    if pattern.search(replacement):
        # It would be redacted again each time that it is judged.
        raise ConfigError(f"{pattern.pattern!r} matches its own replacement {replacement!r}")
    return lambda text: pattern.sub(lambda _: replacement, text)


def _identify_redaction(what: Redaction) -> list[object]:
    if isinstance(what, re.Pattern):
        return [what.pattern, int(what.flags)]
    if isinstance(what, str):
        return [what, int(re.compile(what).flags)]
    return [f"{what.__module__}.{getattr(what, '__qualname__', type(what).__name__)}"]
