"""Several gates as one: the strictest wins.

The law: deny, then ask, then modify, then allow. Each gate judges the arguments that would run: if
one of them modifies a call, all judge it again. A gate that breaks has denied. A question cannot
carry other arguments than the call's own, so a call that one gate would modify and another would
ask about is denied, and the model is told to make it as it may be.
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.verdicts import Allow, Ask, Deny, Modify, Verdict
from windlass.ports import Gate, Request

ROUNDS_MAX = 4
"""How often a call may be modified before it is clear that the gates do not agree."""

_Verdict = TypeVar("_Verdict", bound=Verdict)


class AllOf:
    """A gate that allows what all of its gates allow."""

    def __init__(self, gates: Sequence[Gate]) -> None:
        self.gates = tuple(gates)
        self.name = f"all_of({', '.join(gate.name for gate in self.gates)})"

    @property
    def judges_replies(self) -> bool:
        return any(gate.judges_replies for gate in self.gates)

    async def judge(self, request: Request) -> Verdict:
        modified: list[Modify] = []
        for _ in range(ROUNDS_MAX):
            verdicts = [await _judged(gate, request) for gate in self.gates]
            if denied := next((one for one in verdicts if isinstance(one, Deny)), None):
                return denied
            changes = [one for one in verdicts if isinstance(one, Modify)]
            change = next((one for one in changes if one.arguments != request.arguments), None)
            if change is None:
                return _settled(verdicts, modified)
            modified.append(change)
            request = msgspec.structs.replace(request, arguments=change.arguments)
        rules = " + ".join(dict.fromkeys(one.rule for one in modified))
        return Deny("The gates do not agree on the arguments.", rules)

    async def judge_reply(self, session: str, text: str) -> Allow | Deny:
        rules = list[str]()
        for gate in self.gates:
            if not gate.judges_replies:
                continue
            try:
                verdict = await gate.judge_reply(session, text)
            except Exception as error:  # noqa: BLE001 - a gate that breaks is a gate that is shut
                return _broken(gate, error)
            if not isinstance(verdict, Allow):
                return _named(gate, verdict)
            rules.append(_named(gate, verdict).rule)
        return Allow(" + ".join(rules))


def all_of(*gates: Gate) -> Gate:
    """One gate of several, of which the strictest wins."""
    flat = [one for gate in gates for one in (gate.gates if isinstance(gate, AllOf) else (gate,))]
    once = list({id(gate): gate for gate in flat}.values())
    if not once:
        raise ConfigError("all_of() of no gates would allow everything: use allow_all()")
    return once[0] if len(once) == 1 else AllOf(once)


def stricter(parent: Gate | None, child: Gate | None) -> Gate | None:
    """The gate of a sub-agent: its own, and its parent's with it. None if neither has one."""
    gates = [gate for gate in (parent, child) if gate is not None]
    return all_of(*gates) if gates else None


async def _judged(gate: Gate, request: Request) -> Verdict:
    try:
        verdict = await gate.judge(request)
    except Exception as error:  # noqa: BLE001 - a gate that breaks is a gate that is shut
        return _broken(gate, error)
    if not isinstance(verdict, Verdict):  # pyright: ignore[reportUnnecessaryIsInstance]
        return Deny(f"The gate {gate.name} gave no verdict.", "gate-failure")
    return _named(gate, verdict)


def _broken(gate: Gate, error: Exception) -> Deny:
    return Deny(f"The gate {gate.name} failed: {type(error).__name__}.", "gate-failure")


def _named(gate: Gate, verdict: _Verdict) -> _Verdict:
    """A verdict that says who gave it."""
    return verdict if verdict.rule else msgspec.structs.replace(verdict, rule=gate.name)


def _settled(verdicts: Sequence[Verdict], modified: Sequence[Modify]) -> Verdict:
    """One verdict of those that deny nothing and change nothing any more."""
    asked = [one for one in verdicts if isinstance(one, Ask)]
    reason = " ".join(dict.fromkeys(one.reason for one in modified))
    rules = " + ".join(dict.fromkeys(one.rule for one in (*modified, *asked)))
    if asked and modified:
        told = f"{reason} Make the call so by yourself, and a person will be asked."
        return Deny(told.strip(), rules)
    if asked:
        question = "\n".join(dict.fromkeys(one.question for one in asked))
        times = [one.expires_at for one in asked if one.expires_at is not None]
        return Ask(question, rules, min(times, default=None))
    if modified:
        return Modify(modified[-1].arguments, reason, rules)
    return Allow(" + ".join(dict.fromkeys(one.rule for one in verdicts)))
