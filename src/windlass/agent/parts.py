"""What an agent is made of: the world that it touches, its setup and its secrets."""

import msgspec

from windlass.agent.observers import RunObserver
from windlass.agent.openings import RunOpenings
from windlass.agent.options import InstructionFunction
from windlass.agent.runs import LiveRuns
from windlass.core.limits import Limits
from windlass.core.secrets.mask import Mask
from windlass.core.setup import LoopPolicy, Setup
from windlass.ports import Tools, UndoableTools, World

UNDO_LIMITS = Limits(seconds=600.0)
"""What a run that undoes calls may use, unless another limit is given."""


class AgentParts(msgspec.Struct, frozen=True):
    """The parts of an agent; also of one that works for a call, such as code or a bare model."""

    world: World
    setup: Setup
    mask: Mask
    instructions: InstructionFunction | None = None
    """Makes the instructions of each run, if they are a function."""
    observer: RunObserver | None = None

    def make_openings(self) -> RunOpenings:
        tools = self.world.tools
        return RunOpenings(
            self.setup,
            self.world,
            self.mask,
            self.instructions,
            undo_setup=self.mask.mask_setup(_undo_setup(self.setup, tools)),
            observer=self.observer,
        )

    def make_runs(self) -> LiveRuns:
        return LiveRuns(self.world, self.setup, self.mask, self.observer)


def _undo_setup(setup: Setup, tools: Tools) -> Setup:
    """Return the setup of a run that undoes calls: no model is asked, and nothing else can run.

    Its limits are its own: an agent whose money or time is used up can still take back what it did.
    """
    return Setup(
        model=setup.model,
        tools=tools.undo_specs if isinstance(tools, UndoableTools) else (),
        gate=setup.gate,
        limits=UNDO_LIMITS,
        retries=setup.retries,
        # One after another, in the order that was planned.
        rules=LoopPolicy(parallel_tool_calls=False, on_unknown=setup.rules.on_unknown),
    )
