"""A gate made of ordered rules.

The law: within one list the first rule that matches decides, and each part of a command is taken
through the list by itself; of the parts the strictest decision counts (deny, then ask, then allow).
A rule that only might match has decided nothing, so both ways are followed and the stricter counts:
doubt never allows, and it does deny. Several gates are composed by `all_of`: the strictest wins.

A rule's examples are checked when the rule is made; one that does not hold is a ConfigError.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Literal, TypeAlias, get_args

import msgspec
from typing_extensions import override

from windlass.core.errors import ConfigError
from windlass.core.suggestions import did_you_mean
from windlass.core.verdicts import Allow, Ask, Deny, Verdict
from windlass.gates.globs import Match, glob
from windlass.gates.patterns import Call, Pattern, Piece, parse
from windlass.gates.written_calls import written_call
from windlass.ports import Request

Decision: TypeAlias = Literal["allow", "ask", "deny"]
Replies: TypeAlias = Sequence[str] | Callable[[str], Allow | Deny]
"""Patterns of replies that are denied, or who judges them."""

STRICTNESS: dict[Decision, int] = {"allow": 0, "ask": 1, "deny": 2}
DECISIONS: tuple[str, ...] = get_args(Decision)


class Rule(msgspec.Struct, frozen=True):
    """What to do with the calls that a pattern means."""

    decision: Decision
    pattern: str
    reason: str = ""
    """For whoever is denied or asked."""
    matches: tuple[str, ...] = ()
    """Calls that the rule must decide, such as `bash(git status)` or just `git status`."""
    not_matches: tuple[str, ...] = ()
    """Calls that it must leave to others."""

    def __post_init__(self) -> None:
        check_decision(self.decision)
        pattern = parse(self.pattern)
        for example in self.matches:
            if not self._decides(pattern, example):
                raise ConfigError(f"{self} does not match its own example {example!r}")
        for example in self.not_matches:
            if self._decides(pattern, example):
                raise ConfigError(f"{self} matches {example!r}, which it says it does not")

    @override
    def __str__(self) -> str:
        return f"{self.decision} {self.pattern}"

    def _decides(self, pattern: Pattern, example: str) -> bool:
        call = written_call(example, tool=pattern.tool, argument=pattern.argument)
        found = [(piece.aside, pattern.match(call, piece)) for piece in call.pieces]
        if self.decision == "allow":
            return all(aside or match is Match.YES for aside, match in found)
        return any(match is not Match.NO for _, match in found)


@dataclass(frozen=True, slots=True)
class Ruling:
    """What the rules say of a call, and why."""

    decision: Decision
    rule: Rule | None
    """None: no rule matched, and the default counts."""
    piece: Piece
    certain: bool = True
    missed: Rule | None = None
    """A rule that would have allowed it, had it been certain to match."""

    @property
    def why(self) -> str:
        """In a sentence."""
        what = f"`{self.piece.shown}`" if self.piece.shown else "it"
        if self.piece.doubt:
            what = f"{what}, which cannot be read with certainty ({self.piece.doubt}),"
        if self.rule is None:
            near = f"; {self.missed} does not match it for certain" if self.missed else ""
            return f"no rule decides {what}{near}"
        return f"{what} {'matches' if self.certain else 'might match'} the rule {self.rule}"


class RuleGate:
    """Judges by ordered rules; what none of them decides gets the default.

    `root`: the folder where relative paths begin, so that absolute ones can be told apart.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        *,
        default: Decision = "ask",
        name: str = "rules",
        reply: Replies | None = None,
        root: str | PathLike[str] | None = None,
    ) -> None:
        check_decision(default)
        self.rules = tuple(rules)
        self.default: Decision = default
        self.title = name
        self._patterns = [(rule, parse(rule.pattern)) for rule in self.rules]
        self._reply = (reply,) if isinstance(reply, str) else reply
        self._root = fspath(root) if root is not None else None
        self.name = f"{name}@{self._digest()}"

    @property
    def judges_replies(self) -> bool:
        return self._reply is not None

    async def judge(self, request: Request) -> Verdict:
        ruling = self.rule_on(Call(request.tool, request.arguments, self._root))
        rule = f"{self.title}: {ruling.rule or f'default {self.default}'}"
        reason = ruling.rule.reason if ruling.rule else ""
        match ruling.decision:
            case "allow":
                return Allow(rule)
            case "deny":
                told = "" if reason and ruling.certain else f"Not allowed: {ruling.why}."
                return Deny(f"{told} {reason}".strip(), rule)
            case "ask":
                question = f"May {request.tool.name} be called? {_sentence(ruling.why)}"
                return Ask(f"{question} {reason}".strip(), rule)

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:  # noqa: ARG002
        if callable(self._reply):
            return self._reply(text)
        for pattern in self._reply or ():
            if glob(pattern).match(text) is not Match.NO:
                reason = f"A reply may not look like {pattern!r}."
                return Deny(reason, f"{self.title}: deny reply {pattern}")
        return Allow(f"{self.title}: reply")

    def rule_on(self, call: Call) -> Ruling:
        """The strictest ruling on any piece of the call."""
        rulings = [found for piece in call.pieces if (found := self._rule_on(call, piece))]
        return max(rulings, key=lambda ruling: STRICTNESS[ruling.decision])

    def _rule_on(self, call: Call, piece: Piece) -> Ruling | None:
        """What the list says of one piece; nothing of an aside that no rule speaks of."""
        strictest: Ruling | None = None
        missed: Rule | None = None
        for rule, pattern in self._patterns:
            match = pattern.match(call, piece)
            if match is Match.NO:
                continue
            certain = match is Match.YES
            if rule.decision == "allow" and not certain:
                missed = missed or rule
            strictest = _stricter(strictest, Ruling(rule.decision, rule, piece, certain))
            if certain:
                return strictest
        if piece.aside:
            return strictest if strictest and strictest.decision != "allow" else None
        return _stricter(strictest, Ruling(self.default, None, piece, missed=missed))

    def _digest(self) -> str:
        """Tells these rules from others; their examples are not a part of what they say."""
        reply = self._reply
        if callable(reply):
            reply = (f"{reply.__module__}.{getattr(reply, '__qualname__', type(reply).__name__)}",)
        told = [self.default, [(r.decision, r.pattern, r.reason) for r in self.rules], reply]
        return hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:12]


def check_decision(decision: str) -> None:
    if decision not in DECISIONS:
        raise ConfigError(f"{decision!r} is no decision.{did_you_mean(decision, DECISIONS)}")


def _stricter(known: Ruling | None, new: Ruling) -> Ruling:
    if known is None or STRICTNESS[new.decision] > STRICTNESS[known.decision]:
        return new
    # An allow that was not certain is not what allowed it.
    return new if known.decision == "allow" and not known.certain else known


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text[:1].isalpha() else f"{text}."
