"""A gate made of ordered rules.

Invariant: the first rule that matches decides. Each part of a command goes through the list on its
own, and the strictest decision counts: deny, then ask, then allow. If a rule only might match, the
decision is taken both with and without it, and the stricter one counts: doubt never allows a call,
but it can deny one.

The examples of a rule are checked when the rule is created; a wrong one is a ConfigError.
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
from windlass.core.verdicts import Allow, Approval, Ask, Deny, Verdict
from windlass.gates.call_questions import phrase_call
from windlass.gates.globs import MatchResult, compile_glob
from windlass.gates.patterns import CallPattern, CallPiece, PreparedCall, parse_pattern
from windlass.gates.written_calls import parse_written_call
from windlass.ports import GateRequest

Decision: TypeAlias = Literal["allow", "ask", "deny"]
ReplyPolicy: TypeAlias = Sequence[str] | Callable[[str], Allow | Deny]
"""Patterns of replies that are denied, or a function that judges a reply."""

STRICTNESS: dict[Decision, int] = {"allow": 0, "ask": 1, "deny": 2}
DECISIONS: tuple[str, ...] = get_args(Decision)


class Rule(msgspec.Struct, frozen=True):
    """What to do with the calls that match a pattern.

    Raises ConfigError if the decision or the pattern is not valid, or if an example is wrong.
    """

    decision: Decision
    pattern: str
    reason: str = ""
    """Shown to the model that is denied, or the person who is asked."""
    matches: tuple[str, ...] = ()
    """Examples that the rule must match, such as `bash(git status)` or just `git status`."""
    not_matches: tuple[str, ...] = ()
    """Examples that it must not match."""
    approval: Approval | None = None
    """Who has to agree, if the rule asks; None: anyone who may answer."""

    def __post_init__(self) -> None:
        check_decision(self.decision)
        check_approval(self.approval, self.decision)
        pattern = parse_pattern(self.pattern)
        for example in self.matches:
            if not self._decides_example(pattern, example):
                raise ConfigError(f"{self} does not match its own example {example!r}")
        for example in self.not_matches:
            if self._decides_example(pattern, example):
                raise ConfigError(f"{self} matches {example!r}, which is listed in not_matches")

    @override
    def __str__(self) -> str:
        return f"{self.decision} {self.pattern}"

    def _decides_example(self, pattern: CallPattern, example: str) -> bool:
        call = parse_written_call(example, tool=pattern.tool, argument=pattern.argument)
        results = [(piece.is_aside, pattern.match(call, piece)) for piece in call.pieces]
        if self.decision == "allow":
            return all(is_aside or result is MatchResult.YES for is_aside, result in results)
        return any(result is not MatchResult.NO for _, result in results)


@dataclass(frozen=True, slots=True)
class RuleDecision:
    """What the rules decide about a call, and why."""

    decision: Decision
    rule: Rule | None
    """None if no rule matched: then the default decides."""
    piece: CallPiece
    certain: bool = True
    uncertain_allow: Rule | None = None
    """A rule that would have allowed it if it matched for certain."""

    @property
    def is_doubtful(self) -> bool:
        """Whether the decision is due to what could not be read or matched for certain."""
        return bool(self.piece.doubt) or not self.certain or self.uncertain_allow is not None

    @property
    def explanation(self) -> str:
        """Why, in words that can follow "because"."""
        # Without a main argument, as with numbers only, there is nothing to name.
        if self.piece.value is not None and self.piece.display_text:
            what = f"`{self.piece.display_text}`"
        else:
            what = "it"
        if self.piece.doubt:
            what = f"{what}, which cannot be read with certainty ({self.piece.doubt}),"
        if self.rule is not None:
            return f"{what} {'matches' if self.certain else 'might match'} the rule {self.rule}"
        if self.uncertain_allow is not None:
            return f"no rule decides {what}; {self.uncertain_allow} does not match it for certain"
        return f"no rule decides {what}"


class RuleGate:
    """A gate that decides by ordered rules. If no rule matches, the default decides.

    `name`: of the gate, in records. `reply`: patterns of replies to deny, or a function that judges
    a reply. `root`: the folder where relative paths start; without it, a rule with a relative path
    never matches an absolute one for certain. `default_reason`: what the model reads when the
    default denies a call. `approval`: who has to agree, if the default asks. Raises ConfigError for
    a wrong default or approval.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        *,
        default: Decision = "ask",
        name: str = "rules",
        reply: ReplyPolicy | None = None,
        root: str | PathLike[str] | None = None,
        default_reason: str = "",
        approval: Approval | None = None,
    ) -> None:
        check_decision(default)
        check_approval(approval, default)
        self.approval = approval
        self.rules = tuple(rules)
        self.default: Decision = default
        self.title = name
        self._default_reason = default_reason
        self._patterns = [(rule, parse_pattern(rule.pattern)) for rule in self.rules]
        self._reply_policy = (reply,) if isinstance(reply, str) else reply
        self._root = fspath(root) if root is not None else None
        self.name = f"{name}@{self._digest_rules()}"

    @property
    def judges_replies(self) -> bool:
        return self._reply_policy is not None

    async def judge(self, request: GateRequest) -> Verdict:
        """Decide by the strictest rule that matches the call, or by the default."""
        root = request.folder or self._root
        call = PreparedCall(request.tool, request.arguments, root)
        ruling = self.decide_call(call)
        rule = f"{self.title}: {ruling.rule or f'default {self.default}'}"
        reason = ruling.rule.reason if ruling.rule else self._default_reason
        match ruling.decision:
            case "allow":
                return Allow(rule)
            case "deny":
                # A reason of the rule's own is enough, unless the rule only might match.
                if reason and ruling.certain:
                    return Deny(reason, rule)
                return Deny(f"Not allowed: {ruling.explanation}. {reason}".strip(), rule)
            case "ask":
                question = phrase_call(request.tool, request.arguments)
                # Of several commands in one line, the explanation names the one that is meant.
                if ruling.is_doubtful or len(call.pieces) > 1:
                    question = f"{question} {_format_sentence(ruling.explanation)}"
                # Also those of the rules that the strictest one stands for: of all pieces.
                made = [self._decide_piece(call, piece) for piece in call.pieces]
                asking = [one for one in made if one is not None and one.decision == "ask"]
                found = [one.rule.approval if one.rule else self.approval for one in asking]
                approvals = tuple(dict.fromkeys(one for one in found if one is not None))
                return Ask(f"{question} {reason}".strip(), rule, approvals=approvals)

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:  # noqa: ARG002
        """Decide by the policy for replies; without one, allow."""
        if callable(self._reply_policy):
            return self._reply_policy(text)
        for pattern in self._reply_policy or ():
            if compile_glob(pattern).match(text) is not MatchResult.NO:
                reason = f"A reply must not match {pattern!r}."
                return Deny(reason, f"{self.title}: deny reply {pattern}")
        return Allow(f"{self.title}: reply")

    def decide_call(self, call: PreparedCall) -> RuleDecision:
        """The strictest decision about any piece of the call."""
        decisions = [self._decide_piece(call, piece) for piece in call.pieces]
        made = [decision for decision in decisions if decision is not None]
        return max(made, key=lambda decision: STRICTNESS[decision.decision])

    def _decide_piece(self, call: PreparedCall, piece: CallPiece) -> RuleDecision | None:
        """What the rules decide about one piece; None for an aside that no rule stops."""
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
        """A digest of what the rules decide, without their examples. It is part of the name."""
        reply = self._reply_policy
        if callable(reply):
            reply = (f"{reply.__module__}.{getattr(reply, '__qualname__', type(reply).__name__)}",)
        rules = [
            (rule.decision, rule.pattern, rule.reason, *([rule.approval] if rule.approval else []))
            for rule in self.rules
        ]
        approval = [self.approval] if self.approval else []
        content = msgspec.json.encode([self.default, rules, reply, *approval])
        return hashlib.sha256(content).hexdigest()[:12]


def check_decision(decision: str) -> None:
    """Raise ConfigError unless it is `allow`, `ask` or `deny`."""
    if decision not in DECISIONS:
        hint = suggest_names(decision, DECISIONS)
        raise ConfigError(f"{decision!r} is not a decision: it must be allow, ask or deny.{hint}")


def check_approval(approval: Approval | None, decision: str) -> None:
    """Raise ConfigError unless an approval can be given, and belongs to something that asks."""
    if approval is None:
        return
    if decision != "ask":
        raise ConfigError(f"an approval belongs to a rule that asks, not to one with {decision}")
    if approval.people < 1:
        raise ConfigError(f"people={approval.people}: at least one person has to agree")
    if approval.escalate_to and not approval.role:
        raise ConfigError("escalate_to= needs role=: without it, any verified person may answer")
    times = (approval.expires_after_s, approval.escalate_after_s)
    if any(time is not None and time < 0 for time in times):
        raise ConfigError("the times of an approval must not be below zero")


def _pick_stricter(current: RuleDecision | None, new: RuleDecision) -> RuleDecision:
    if current is None or STRICTNESS[new.decision] > STRICTNESS[current.decision]:
        return new
    # A rule that only might match cannot allow a call: the next decision is the reason.
    if current.decision == "allow" and not current.certain:
        return new
    return current


def _format_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
