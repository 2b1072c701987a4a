"""Several gates as one: the strictest wins.

Invariant: deny, then ask, then modify, then allow. Each gate judges the arguments that would run:
if one of them modifies a call, all judge it again. A gate that raises has denied. If one gate
modifies a call and another asks about it, the question shows the modified arguments, because a yes
would run those. A question that brings its own arguments is still asked after all gates have judged
them.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any, TypeVar

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.setup import digest
from windlass.core.verdicts import Allow, Ask, Deny, Modify, Verdict
from windlass.ports import Gate, GateRequest

ROUNDS_MAX = 4
"""Rounds in which a call may be modified. After that, the gates do not agree."""

_Verdict = TypeVar("_Verdict", bound=Verdict)


class CombinedGate:
    """A gate that allows only what all of its gates allow."""

    def __init__(self, gates: Sequence[Gate]) -> None:
        self.gates = tuple(gates)
        self.name = f"all_of({', '.join(gate.name for gate in self.gates)})"

    @property
    def judges_replies(self) -> bool:
        return any(gate.judges_replies for gate in self.gates)

    async def judge(self, request: GateRequest) -> Verdict:
        changes = list[Modify | Ask]()
        for _ in range(ROUNDS_MAX):
            verdicts = [await _judge_safely(gate, request) for gate in self.gates]
            denials = [verdict for verdict in verdicts if isinstance(verdict, Deny)]
            if denials:
                return denials[0]
            change = next(_find_argument_changes(verdicts, request), None)
            if change is None:
                return _merge_verdicts(verdicts, changes, dict(request.arguments))
            changes.append(change)
            request = msgspec.structs.replace(request, arguments=change.arguments)
        rules = " + ".join(dict.fromkeys(change.rule for change in changes))
        return Deny("Not allowed: the gates do not agree on the arguments.", rules)

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:
        rules = list[str]()
        for gate in self.gates:
            if not gate.judges_replies:
                continue
            try:
                verdict = await gate.judge_reply(session, text)
            except Exception as error:  # noqa: BLE001 - a gate that raises has denied
                return _deny_broken_gate(gate, error)
            if not isinstance(verdict, Allow):
                return _add_rule_name(gate, verdict)
            rules.append(_add_rule_name(gate, verdict).rule)
        return Allow(" + ".join(rules))


def all_of(*gates: Gate) -> Gate:
    """Several gates as one: the strictest verdict wins. A single gate is returned as it is.

    Raises ConfigError without any gate.
    """
    distinct: dict[int, Gate] = {}
    for gate in gates:
        inner = gate.gates if isinstance(gate, CombinedGate) else (gate,)
        distinct.update((id(part), part) for part in inner)
    parts = list(distinct.values())
    if not parts:
        raise ConfigError("all_of() without gates would allow everything: use allow_all()")
    return parts[0] if len(parts) == 1 else CombinedGate(parts)


def combine_with_parent(parent: Gate | None, child: Gate | None) -> Gate | None:
    """The gate of a sub-agent: its own together with its parent's. None if neither has one."""
    gates = [gate for gate in (parent, child) if gate is not None]
    return all_of(*gates) if gates else None


async def _judge_safely(gate: Gate, request: GateRequest) -> Verdict:
    # Each gate gets its own copy: a gate that changes it must not change what the others judge.
    own = msgspec.structs.replace(request, arguments=deepcopy(dict(request.arguments)))
    try:
        verdict = await gate.judge(own)
    except Exception as error:  # noqa: BLE001 - a gate that raises has denied
        return _deny_broken_gate(gate, error)
    if not isinstance(verdict, Verdict):  # pyright: ignore[reportUnnecessaryIsInstance]
        return Deny(f"The gate {gate.name} did not return a verdict.", "gate-failure")
    return _add_rule_name(gate, verdict)


def _deny_broken_gate(gate: Gate, error: Exception) -> Deny:
    return Deny(f"The gate {gate.name} failed: {type(error).__name__}.", "gate-failure")


def _add_rule_name(gate: Gate, verdict: _Verdict) -> _Verdict:
    """The verdict with the name of its gate as the rule, if it names no rule."""
    if verdict.rule:
        return verdict
    return msgspec.structs.replace(verdict, rule=gate.name)


def _find_argument_changes(
    verdicts: Sequence[Verdict], request: GateRequest
) -> Iterator[Modify | Ask]:
    """The verdicts that would run the call with other arguments."""
    candidates = [verdict for verdict in verdicts if isinstance(verdict, Modify | Ask)]
    if not candidates:
        return
    # Compared as JSON: in Python, 1 == True.
    current = digest(dict(request.arguments))
    for verdict in candidates:
        if verdict.arguments is not None and digest(verdict.arguments) != current:
            yield verdict


def _merge_verdicts(
    verdicts: Sequence[Verdict], changes: Sequence[Modify | Ask], arguments: dict[str, Any]
) -> Verdict:
    """One verdict for the last round, in which no gate denied or changed anything."""
    questions = [verdict for verdict in (*changes, *verdicts) if isinstance(verdict, Ask)]
    modified = [change for change in changes if isinstance(change, Modify)]
    reasons = dict.fromkeys(change.reason for change in modified if change.reason)
    rules = " + ".join(dict.fromkeys(verdict.rule for verdict in (*changes, *questions)))
    if questions:
        text = "\n".join(dict.fromkeys([*(ask.question for ask in questions), *reasons]))
        deadlines = [ask.expires_at for ask in questions if ask.expires_at is not None]
        approvals = tuple(dict.fromkeys(one for ask in questions for one in ask.approvals))
        deadline = min(deadlines, default=None)
        return Ask(text, rules, deadline, arguments if changes else None, approvals)
    if modified:
        return Modify(arguments, " ".join(reasons), rules)
    return Allow(" + ".join(dict.fromkeys(verdict.rule for verdict in verdicts)))
