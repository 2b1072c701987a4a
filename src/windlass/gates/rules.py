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
from windlass.core.suggestions import suggest_names
from windlass.core.verdicts import Allow, Ask, Deny, Verdict
from windlass.gates.globs import MatchResult, compile_glob
from windlass.gates.patterns import CallPattern, CallPiece, PreparedCall, parse_pattern
from windlass.gates.written_calls import parse_written_call
from windlass.ports import GateRequest

Decision: TypeAlias = Literal["allow", "ask", "deny"]
ReplyPolicy: TypeAlias = Sequence[str] | Callable[[str], Allow | Deny]
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
        pattern = parse_pattern(self.pattern)
        for example in self.matches:
            if not self._decides_example(pattern, example):
                raise ConfigError(f"{self} does not match its own example {example!r}")
        for example in self.not_matches:
            if self._decides_example(pattern, example):
                raise ConfigError(f"{self} matches {example!r}, which it says it does not")

    @override
    def __str__(self) -> str:
        return f"{self.decision} {self.pattern}"

    def _decides_example(self, pattern: CallPattern, example: str) -> bool:
        call = parse_written_call(example, tool=pattern.tool, argument=pattern.argument)
        found = [(piece.is_aside, pattern.match(call, piece)) for piece in call.pieces]
        if self.decision == "allow":
            return all(aside or match is MatchResult.YES for aside, match in found)
        return any(match is not MatchResult.NO for _, match in found)


@dataclass(frozen=True, slots=True)
class RuleDecision:
    """What the rules say of a call, and why."""

    decision: Decision
    rule: Rule | None
    """None: no rule matched, and the default counts."""
    piece: CallPiece
    certain: bool = True
    uncertain_allow: Rule | None = None
    """A rule that would have allowed it, had it been certain to match."""

    @property
    def explanation(self) -> str:
        """In a sentence."""
        what = f"`{self.piece.display_text}`" if self.piece.display_text else "it"
        if self.piece.doubt:
            what = f"{what}, which cannot be read with certainty ({self.piece.doubt}),"
        if self.rule is None:
            near = (
                f"; {self.uncertain_allow} does not match it for certain"
                if self.uncertain_allow
                else ""
            )
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
        reply: ReplyPolicy | None = None,
        root: str | PathLike[str] | None = None,
    ) -> None:
        check_decision(default)
        self.rules = tuple(rules)
        self.default: Decision = default
        self.title = name
        self._patterns = [(rule, parse_pattern(rule.pattern)) for rule in self.rules]
        self._reply_policy = (reply,) if isinstance(reply, str) else reply
        self._root = fspath(root) if root is not None else None
        self.name = f"{name}@{self._digest_rules()}"

    @property
    def judges_replies(self) -> bool:
        return self._reply_policy is not None

    async def judge(self, request: GateRequest) -> Verdict:
        ruling = self.decide_call(PreparedCall(request.tool, request.arguments, self._root))
        rule = f"{self.title}: {ruling.rule or f'default {self.default}'}"
        reason = ruling.rule.reason if ruling.rule else ""
        match ruling.decision:
            case "allow":
                return Allow(rule)
            case "deny":
                told = "" if reason and ruling.certain else f"Not allowed: {ruling.explanation}."
                return Deny(f"{told} {reason}".strip(), rule)
            case "ask":
                question = (
                    f"May {request.tool.name} be called? {_format_sentence(ruling.explanation)}"
                )
                return Ask(f"{question} {reason}".strip(), rule)

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:  # noqa: ARG002
        if callable(self._reply_policy):
            return self._reply_policy(text)
        for pattern in self._reply_policy or ():
            if compile_glob(pattern).match(text) is not MatchResult.NO:
                reason = f"A reply may not look like {pattern!r}."
                return Deny(reason, f"{self.title}: deny reply {pattern}")
        return Allow(f"{self.title}: reply")

    def decide_call(self, call: PreparedCall) -> RuleDecision:
        """The strictest ruling on any piece of the call."""
        rulings = [found for piece in call.pieces if (found := self._decide_piece(call, piece))]
        return max(rulings, key=lambda ruling: STRICTNESS[ruling.decision])

    def _decide_piece(self, call: PreparedCall, piece: CallPiece) -> RuleDecision | None:
        """What the list says of one piece; nothing of an aside that no rule speaks of."""
        strictest: RuleDecision | None = None
        missed: Rule | None = None
        for rule, pattern in self._patterns:
            match = pattern.match(call, piece)
            if match is MatchResult.NO:
                continue
            certain = match is MatchResult.YES
            if rule.decision == "allow" and not certain:
                missed = missed or rule
            strictest = _pick_stricter(strictest, RuleDecision(rule.decision, rule, piece, certain))
            if certain:
                return strictest
        if piece.is_aside:
            return strictest if strictest and strictest.decision != "allow" else None
        return _pick_stricter(
            strictest, RuleDecision(self.default, None, piece, uncertain_allow=missed)
        )

    def _digest_rules(self) -> str:
        """Tells these rules from others; their examples are not a part of what they say."""
        reply = self._reply_policy
        if callable(reply):
            reply = (f"{reply.__module__}.{getattr(reply, '__qualname__', type(reply).__name__)}",)
        told = [self.default, [(r.decision, r.pattern, r.reason) for r in self.rules], reply]
        return hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:12]


def check_decision(decision: str) -> None:
    if decision not in DECISIONS:
        raise ConfigError(f"{decision!r} is no decision.{suggest_names(decision, DECISIONS)}")


def _pick_stricter(current: RuleDecision | None, new: RuleDecision) -> RuleDecision:
    if current is None or STRICTNESS[new.decision] > STRICTNESS[current.decision]:
        return new
    # An allow that was not certain is not what allowed it.
    return new if current.decision == "allow" and not current.certain else current


def _format_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}." if text[:1].isalpha() else f"{text}."
