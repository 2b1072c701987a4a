"""What a person allowed for the rest of a session, applied to the questions that come after.

The law: a grant lifts a question and nothing else. It must cover the very call that would run: its
exact arguments, or every piece of it for certain, as a rule's pattern would; and the session may
hold no more than it held when the grant was given. A denial is never lifted.
"""

from collections.abc import Collection, Iterable, Mapping
from copy import deepcopy
from functools import lru_cache
from os import PathLike, fspath
from typing import Any

from windlass.core.errors import ConfigError
from windlass.core.messages import Label, ToolSpec
from windlass.core.setup import digest
from windlass.core.verdicts import Allow, Ask, Deny, Grant, Modify, Verdict
from windlass.gates.globs import MatchResult
from windlass.gates.patterns import CallPattern, CallPiece, PreparedCall, parse_pattern
from windlass.ports import Gate, GateRequest


class GrantGate:
    """A gate whose questions are not asked again where a person has answered for more than one.

    `root`: the folder where relative paths begin, as in the rules.
    """

    def __init__(self, gate: Gate, *, root: str | PathLike[str] | None = None) -> None:
        self.gate = gate
        self._root = fspath(root) if root is not None else None

    @property
    def name(self) -> str:
        """The inner gate's own: what a person allows is no other policy."""
        return self.gate.name

    @property
    def judges_replies(self) -> bool:
        return self.gate.judges_replies

    async def judge(self, request: GateRequest) -> Verdict:
        # The grant is for what would run, and not for what the gate may have scribbled on.
        kept = deepcopy(dict(request.arguments)) if request.grants else {}
        verdict = await self.gate.judge(request)
        if not isinstance(verdict, Ask) or not request.grants:
            return verdict
        arguments = kept if verdict.arguments is None else verdict.arguments
        call = PreparedCall(request.tool, arguments, self._root)
        by = describe_coverage(call, request.grants, request.labels)
        if by is None:
            return verdict
        rule = f"{verdict.rule or self.name}, granted: {by}"
        if verdict.arguments is None:
            return Allow(rule)
        return Modify(verdict.arguments, "A person allowed it with these arguments.", rule)

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:
        return await self.gate.judge_reply(session, text)


def describe_coverage(
    call: PreparedCall, grants: Iterable[Grant], labels: Collection[Label]
) -> str | None:
    """What of the grants covers a call, in words; None if they do not."""
    valid = [grant for grant in grants if _is_grant_valid(grant, call.tool, labels)]
    exact = digest(dict(call.arguments))
    if any(grant.digest == exact for grant in valid):
        return "exactly this call"
    patterns = [found for grant in valid if (found := _parse_recorded_pattern(grant.pattern))]
    by = [_find_covering_pattern(patterns, call, piece) for piece in call.pieces]
    named = [pattern.text for pattern in by if pattern is not None]
    return " + ".join(dict.fromkeys(named)) if len(named) == len(by) else None


def make_grant(
    tool: ToolSpec, arguments: Mapping[str, Any], pattern: str, labels: Collection[Label]
) -> Grant:
    """The grant that answers a question about this call; without a pattern, for exactly this call.

    Raises ConfigError for a pattern that cannot be meant: it is none, or does not cover the call.
    """
    held = tuple(sorted(labels))
    if not pattern:
        return Grant(tool.name, digest(dict(arguments)), labels=held)
    call = PreparedCall(tool, arguments)
    try:
        meant = parse_pattern(pattern)
    except ConfigError as error:
        hint = _suggest_pattern(call, pattern)
        raise ConfigError(f"{error}.{hint}" if hint else str(error)) from None
    for piece in call.pieces:
        if meant.match(call, piece) is not MatchResult.YES:
            what = f"`{piece.display_text}`" if piece.display_text else f"this call of {tool.name}"
            told = (
                f"{pattern!r} does not cover {what} for certain.{_suggest_pattern(call, pattern)}"
            )
            raise ConfigError(f"{told} Without a pattern, a yes is for exactly this call.")
    return Grant(tool.name, pattern=meant.text, labels=held)


def _is_grant_valid(grant: Grant, tool: ToolSpec, labels: Collection[Label]) -> bool:
    """Whether a grant is for this tool, and for a session that holds what this one does."""
    # That the tool sends out was known, so its own first call does not end the grant.
    known = {*grant.labels, *(label for label in tool.labels if label == "external")}
    return grant.tool == tool.name and known.issuperset(labels)


def _find_covering_pattern(
    patterns: Iterable[CallPattern], call: PreparedCall, piece: CallPiece
) -> CallPattern | None:
    return next((one for one in patterns if one.match(call, piece) is MatchResult.YES), None)


@lru_cache(maxsize=256)
def _parse_recorded_pattern(pattern: str) -> CallPattern | None:
    """A pattern that was recorded; one that cannot be read any more covers nothing."""
    try:
        return parse_pattern(pattern) if pattern else None
    except ConfigError:
        return None


def _suggest_pattern(call: PreparedCall, pattern: str) -> str:
    """What was perhaps meant: the same for the tool that was asked about."""
    inside = pattern.partition("(")[2].removesuffix(")") if "(" in pattern else pattern
    meant = (
        _parse_recorded_pattern(f"{call.tool.name}({inside.strip()})") if inside.strip() else None
    )
    if meant is None or meant.text == pattern.strip():
        return ""
    if all(meant.match(call, piece) is MatchResult.YES for piece in call.pieces):
        return f" Did you mean {meant.text}?"
    return ""
