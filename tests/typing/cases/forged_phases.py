"""A phase is made by the phase before it: forging one does not type-check (L2)."""

from windlass.core.moves import (
    RunCalls,
    ClearedCall,
    EndRun,
    JudgeCalls,
    JudgeReply,
    WaitForAnswers,
    ProposedCall,
    RequestReply,
    RemindModel,
)

# expect: "_MoveSeal" is private
from windlass.core.moves import _MoveSeal

# expect: "_SEAL" is private
from windlass.core.moves import _SEAL
from windlass.core.events import Reservation
from windlass.core.messages import AssistantMessage, ToolCall, ToolSpec
from windlass.core.limits import Amount
from windlass.core.view import Prompt
from windlass.ports import CallContext, Tools


async def dispatch(tools: Tools, call: ToolCall, spec: ToolSpec, context: CallContext) -> None:
    # expect: "ToolCall" is not assignable to "ClearedCall"
    await tools.run(call, context)
    # expect: "seal"
    await tools.run(ClearedCall(call, {}, spec, "key", False, Amount()), context)
    # expect: "None" is not assignable to "_MoveSeal"
    await tools.run(ClearedCall(call, {}, spec, "key", False, Amount(), None), context)
    # expect: "object" is not assignable to "_MoveSeal"
    await tools.run(ClearedCall(call, {}, spec, "key", False, Amount(), object()), context)
    # expect: Arguments missing for parameters
    await tools.run(ClearedCall(call), context)


async def dispatch_what_was_only_proposed(
    tools: Tools, proposed: ProposedCall, context: CallContext
) -> None:
    # expect: "ProposedCall" is not assignable to "ClearedCall"
    await tools.run(proposed, context)
    # expect: "ToolCall" is not assignable to "ClearedCall"
    await tools.reconcile(proposed.call, context)


def change(cleared: ClearedCall, other: ToolCall) -> None:
    # expect: Attribute "arguments" is read-only
    cleared.arguments = {}
    # expect: Attribute "call" is read-only
    cleared.call = other


def skip_the_gate(proposed: ProposedCall, gate: JudgeCalls) -> None:
    # expect: "tuple[ProposedCall, ...]" is not assignable to "tuple[ClearedCall, ...]"
    wave: tuple[ClearedCall, ...] = gate.calls
    # expect: "seal"
    RunCalls(wave, 5, False)
    # expect: "seal"
    JudgeCalls((proposed,), ())
    # expect: "seal"
    ProposedCall(proposed.call, None, False)


def make_it_up(prompt: Prompt, reserved: Reservation, reply: AssistantMessage) -> None:
    # expect: "seal"
    EndRun("completed", "")
    # expect: "seal"
    RequestReply(prompt, reserved, 1, 1, 0.0, False, False)
    # expect: "seal"
    WaitForAnswers(())
    # expect: "seal"
    JudgeReply(reply)
    # expect: "seal"
    RemindModel("Go on.")


# expect: Base class "ClearedCall" is marked final
class Looser(ClearedCall):
    """A subclass could do without the seal."""


def steal(call: ToolCall, spec: ToolSpec) -> tuple[ClearedCall, ClearedCall]:
    """What is reported is the import above; pyright cannot see through `dataclasses.replace`.

    That one is refused when it runs: see `tests/core/decide/test_next_move.py`.
    """
    stolen = ClearedCall(call, {}, spec, "key", False, Amount(), _SEAL)
    return stolen, ClearedCall(call, {}, spec, "key", False, Amount(), _MoveSeal())
