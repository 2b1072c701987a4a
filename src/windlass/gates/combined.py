"""Several gates as one: the strictest wins.

The law: deny, then ask, then modify, then allow. Each gate judges the arguments that would run: if
one of them modifies a call, all judge it again. A gate that breaks has denied. A call that one gate
modifies and another asks about is asked about with the modified arguments, which are those that a
yes would run; a question that brings its own arguments is not lost when all have judged them.
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
"""How often a call may be modified before it is clear that the gates do not agree."""

_Verdict = TypeVar("_Verdict", bound=Verdict)


class CombinedGate:
    """A gate that allows what all of its gates allow."""

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
            if denied := next((one for one in verdicts if isinstance(one, Deny)), None):
                return denied
            change = next(_find_argument_changes(verdicts, request), None)
            if change is None:
                return _merge_verdicts(verdicts, changes, dict(request.arguments))
            changes.append(change)
            request = msgspec.structs.replace(request, arguments=change.arguments)
        rules = " + ".join(dict.fromkeys(one.rule for one in changes))
        return Deny("The gates do not agree on the arguments.", rules)

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:
        rules = list[str]()
        for gate in self.gates:
            if not gate.judges_replies:
                continue
            try:
                verdict = await gate.judge_reply(session, text)
            except Exception as error:  # noqa: BLE001 - a gate that breaks is a gate that is shut
                return _deny_broken_gate(gate, error)
            if not isinstance(verdict, Allow):
                return _add_rule_name(gate, verdict)
            rules.append(_add_rule_name(gate, verdict).rule)
        return Allow(" + ".join(rules))


def all_of(*gates: Gate) -> Gate:
    """One gate of several, of which the strictest wins."""
    flat = [
        one for gate in gates for one in (gate.gates if isinstance(gate, CombinedGate) else (gate,))
    ]
    once = list({id(gate): gate for gate in flat}.values())
    if not once:
        raise ConfigError("all_of() of no gates would allow everything: use allow_all()")
    return once[0] if len(once) == 1 else CombinedGate(once)


def combine_with_parent(parent: Gate | None, child: Gate | None) -> Gate | None:
    """The gate of a sub-agent: its own, and its parent's with it. None if neither has one."""
    gates = [gate for gate in (parent, child) if gate is not None]
    return all_of(*gates) if gates else None


async def _judge_safely(gate: Gate, request: GateRequest) -> Verdict:
    # Each has a copy of its own: what one of them scribbles on, the others would judge.
    own = msgspec.structs.replace(request, arguments=deepcopy(dict(request.arguments)))
    try:
        verdict = await gate.judge(own)
    except Exception as error:  # noqa: BLE001 - a gate that breaks is a gate that is shut
        return _deny_broken_gate(gate, error)
    if not isinstance(verdict, Verdict):  # pyright: ignore[reportUnnecessaryIsInstance]
        return Deny(f"The gate {gate.name} gave no verdict.", "gate-failure")
    return _add_rule_name(gate, verdict)


def _deny_broken_gate(gate: Gate, error: Exception) -> Deny:
    return Deny(f"The gate {gate.name} failed: {type(error).__name__}.", "gate-failure")


def _add_rule_name(gate: Gate, verdict: _Verdict) -> _Verdict:
    """A verdict that says who gave it."""
    return verdict if verdict.rule else msgspec.structs.replace(verdict, rule=gate.name)


def _find_argument_changes(
    verdicts: Sequence[Verdict], request: GateRequest
) -> Iterator[Modify | Ask]:
    """Those that would run the call with other arguments. As JSON: `1` is not `true`."""
    bringing = [one for one in verdicts if isinstance(one, Modify | Ask)]
    known = digest(dict(request.arguments)) if bringing else ""
    for one in bringing:
        if one.arguments is not None and digest(one.arguments) != known:
            yield one


def _merge_verdicts(
    verdicts: Sequence[Verdict], changes: Sequence[Modify | Ask], arguments: dict[str, Any]
) -> Verdict:
    """One verdict of those that deny nothing and change nothing any more."""
    asked = [one for one in (*changes, *verdicts) if isinstance(one, Ask)]
    modified = [one for one in changes if isinstance(one, Modify)]
    reasons = dict.fromkeys(one.reason for one in modified if one.reason)
    rules = " + ".join(dict.fromkeys(one.rule for one in (*changes, *asked)))
    if asked:
        question = "\n".join(dict.fromkeys([*(one.question for one in asked), *reasons]))
        times = [one.expires_at for one in asked if one.expires_at is not None]
        return Ask(question, rules, min(times, default=None), arguments if changes else None)
    if modified:
        return Modify(arguments, " ".join(reasons), rules)
    return Allow(" + ".join(dict.fromkeys(one.rule for one in verdicts)))
