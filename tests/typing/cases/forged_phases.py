"""A phase is made by the phase before it: forging one does not type-check (L2)."""

from windlass.core.moves import Act, Cleared, Finish, Gate, Hear, Hold, Proposed, Reason, Remind

# expect: "_Seal" is private
from windlass.core.moves import _Seal

# expect: "_SEAL" is private
from windlass.core.moves import _SEAL
from windlass.core.events import Reservation
from windlass.core.messages import Assistant, ToolCall, ToolSpec
from windlass.core.limits import Amount
from windlass.core.view import Prompt
from windlass.ports import CallContext, Tools


async def dispatch(tools: Tools, call: ToolCall, spec: ToolSpec, context: CallContext) -> None:
    # expect: "ToolCall" is not assignable to "Cleared"
    await tools.run(call, context)
    # expect: "seal"
    await tools.run(Cleared(call, {}, spec, "key", False, Amount()), context)
    # expect: "None" is not assignable to "_Seal"
    await tools.run(Cleared(call, {}, spec, "key", False, Amount(), None), context)
    # expect: "object" is not assignable to "_Seal"
    await tools.run(Cleared(call, {}, spec, "key", False, Amount(), object()), context)
    # expect: Arguments missing for parameters
    await tools.run(Cleared(call), context)


async def dispatch_what_was_only_proposed(
    tools: Tools, proposed: Proposed, context: CallContext
) -> None:
    # expect: "Proposed" is not assignable to "Cleared"
    await tools.run(proposed, context)
    # expect: "ToolCall" is not assignable to "Cleared"
    await tools.reconcile(proposed.call, context)


def change(cleared: Cleared, other: ToolCall) -> None:
    # expect: Attribute "arguments" is read-only
    cleared.arguments = {}
    # expect: Attribute "call" is read-only
    cleared.call = other


def skip_the_gate(proposed: Proposed, gate: Gate) -> None:
    # expect: "tuple[Proposed, ...]" is not assignable to "tuple[Cleared, ...]"
    wave: tuple[Cleared, ...] = gate.calls
    # expect: "seal"
    Act(wave, 5, False)
    # expect: "seal"
    Gate((proposed,), ())
    # expect: "seal"
    Proposed(proposed.call, None, False)


def make_it_up(prompt: Prompt, reserved: Reservation, reply: Assistant) -> None:
    # expect: "seal"
    Finish("completed", "")
    # expect: "seal"
    Reason(prompt, reserved, 1, 1, 0.0, False, False)
    # expect: "seal"
    Hold(())
    # expect: "seal"
    Hear(reply)
    # expect: "seal"
    Remind("Go on.")


# expect: Base class "Cleared" is marked final
class Looser(Cleared):
    """A subclass could do without the seal."""


def steal(call: ToolCall, spec: ToolSpec) -> tuple[Cleared, Cleared]:
    """What is reported is the import above; pyright cannot see through `dataclasses.replace`.

    That one is refused when it runs: see `tests/core/decide/test_next_move.py`.
    """
    stolen = Cleared(call, {}, spec, "key", False, Amount(), _SEAL)
    return stolen, Cleared(call, {}, spec, "key", False, Amount(), _Seal())
