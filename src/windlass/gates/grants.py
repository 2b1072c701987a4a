"""What a person allowed for the rest of a session, applied to later questions.

Invariant: a grant answers a question and does nothing else; it never lifts a denial. It must cover
the call that would run: its exact arguments, or every piece of it for certain, as the pattern of a
rule would. The tool must be described as it was then, and the session must not hold more labels.
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
from windlass.gates.patterns import CallPattern, PreparedCall, parse_pattern
from windlass.ports import Gate, GateRequest


class GrantGate:
    """A gate whose questions are not asked if a person has already allowed such calls.

    `root`: the folder where relative paths start, as in `RuleGate`.
    """

    def __init__(self, gate: Gate, *, root: str | PathLike[str] | None = None) -> None:
        self.gate = gate
        self._root = fspath(root) if root is not None else None

    @property
    def name(self) -> str:
        """The name of the inner gate: what a person allows does not make it another policy."""
        return self.gate.name

    @property
    def judges_replies(self) -> bool:
        return self.gate.judges_replies

    async def judge(self, request: GateRequest) -> Verdict:
        if not request.grants:
            return await self.gate.judge(request)
        # Copied first: the inner gate could change them, and the grant is for what would run.
        arguments = deepcopy(dict(request.arguments))
        verdict = await self.gate.judge(request)
        if not isinstance(verdict, Ask) or verdict.approvals:
            # What certain people have to agree to, they are asked about each time.
            return verdict
        if verdict.arguments is not None:
            arguments = verdict.arguments
        call = PreparedCall(request.tool, arguments, request.folder or self._root)
        coverage = describe_coverage(call, request.grants, request.labels)
        if coverage is None:
            return verdict
        rule = f"{verdict.rule or self.name}, granted: {coverage}"
        if verdict.arguments is None:
            return Allow(rule)
        return Modify(verdict.arguments, "A person allowed it with these arguments.", rule)

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:
        return await self.gate.judge_reply(session, text)


def describe_coverage(
    call: PreparedCall, grants: Iterable[Grant], labels: Collection[Label]
) -> str | None:
    """Which of the grants cover a call, in words; None if they do not cover all of it."""
    valid = [grant for grant in grants if _is_grant_valid(grant, call.tool, labels)]
    exact = digest(dict(call.arguments))
    if any(grant.digest == exact for grant in valid):
        return "exactly this call"
    parsed = [_parse_recorded_pattern(grant.pattern) for grant in valid]
    patterns = [pattern for pattern in parsed if pattern is not None]
    texts: list[str] = []
    for piece in call.pieces:
        covering = (found for found in patterns if found.match(call, piece) is MatchResult.YES)
        pattern = next(covering, None)
        if pattern is None:
            return None
        texts.append(pattern.text)
    return " + ".join(dict.fromkeys(texts))


def make_grant(
    tool: ToolSpec, arguments: Mapping[str, Any], pattern: str, labels: Collection[Label]
) -> Grant:
    """The grant for an answer to a question about this call.

    Without a pattern it is for exactly this call. Raises ConfigError if the pattern is not valid or
    does not cover the call.
    """
    held = tuple(sorted(labels))
    if not pattern:
        exact = digest(dict(arguments))
        return Grant(tool.name, exact, labels=held, described=digest_description(tool))
    call = PreparedCall(tool, arguments)
    try:
        parsed = parse_pattern(pattern)
    except ConfigError as error:
        hint = _suggest_pattern(call, pattern)
        raise ConfigError(f"{error}.{hint}" if hint else str(error)) from None
    for piece in call.pieces:
        if parsed.match(call, piece) is not MatchResult.YES:
            if piece.display_text:
                what = f"`{piece.display_text}`"
            else:
                what = f"this call of {tool.name}"
            hint = _suggest_pattern(call, pattern)
            raise ConfigError(
                f"{pattern!r} does not cover {what} for certain.{hint} "
                "Without a pattern, a yes is for exactly this call."
            )
    described = digest_description(tool)
    return Grant(tool.name, pattern=parsed.text, labels=held, described=described)


def digest_description(tool: ToolSpec) -> str:
    """Identify what a person could know of a tool, which its server may change."""
    return digest([tool.description, tool.parameters])


def _is_grant_valid(grant: Grant, tool: ToolSpec, labels: Collection[Label]) -> bool:
    """Whether a grant is for this tool, and was given when the session held these labels."""
    if grant.tool != tool.name or grant.described not in ("", digest_description(tool)):
        return False
    # The person who gave the grant knew what calls of this tool bring into the session, so the
    # tool's own labels are expected. A tool that sends data out is the exception: what it brings
    # in (untrusted, private) is just what must be asked about before it sends again.
    own_labels = tool.labels
    if "external" in own_labels:
        own_labels = ("external",)
    return {*grant.labels, *own_labels}.issuperset(labels)


@lru_cache(maxsize=256)
def _parse_recorded_pattern(pattern: str) -> CallPattern | None:
    """The pattern of a recorded grant. None if this version cannot read it: it covers nothing."""
    try:
        return parse_pattern(pattern) if pattern else None
    except ConfigError:
        return None


def _suggest_pattern(call: PreparedCall, pattern: str) -> str:
    """A hint if the same pattern, written for the tool of the question, would cover the call."""
    value = pattern
    if "(" in pattern:
        value = pattern.partition("(")[2].removesuffix(")")
    if not value.strip():
        return ""
    suggested = _parse_recorded_pattern(f"{call.tool.name}({value.strip()})")
    if suggested is None or suggested.text == pattern.strip():
        return ""
    if all(suggested.match(call, piece) is MatchResult.YES for piece in call.pieces):
        return f" Did you mean {suggested.text}?"
    return ""
