"""What an agent is made of: the world that it touches, its setup and its secrets."""

import msgspec
from typing_extensions import override

from windlass.agent.observers import RunObserver
from windlass.agent.options import InstructionFunction
from windlass.core.rich_display import DisplayCard, RichDisplay
from windlass.core.secrets.mask import Mask
from windlass.core.setup import Setup
from windlass.ports import World


class AgentParts(msgspec.Struct, frozen=True):
    """The parts of an agent; also of one that works for a call, such as code or a bare model."""

    world: World
    setup: Setup
    mask: Mask
    instructions: InstructionFunction | None = None
    """Makes the instructions of each run, if they are a function."""
    observer: RunObserver | None = None


class BuiltAgent(RichDisplay):
    """What is shown of an agent: its parts, never its keys."""

    _parts: AgentParts

    @override
    def __repr__(self) -> str:
        setup = self._parts.setup
        name = f", name={self._parts.world.agent!r}" if self._parts.world.agent else ""
        return f"Agent({setup.model.name!r}{name}, {len(setup.tools)} tools)"

    @override
    def display_card(self) -> DisplayCard:
        """Return what is shown of this agent in a notebook."""
        world = self._parts.world
        setup = self._parts.setup
        rows = [
            ("model", setup.model.name),
            ("fallbacks", ", ".join(model.name for model in setup.fallbacks)),
            ("tools", ", ".join(tool.name for tool in setup.tools)),
            ("gate", setup.gate or "none: every call is allowed"),
            ("journal", type(world.journal).__name__),
            ("instructions", setup.instructions),
        ]
        filled = tuple((name, value) for name, value in rows if value)
        return DisplayCard("Agent", world.agent, rows=filled)


def parts_of(agent: BuiltAgent) -> AgentParts:
    """Return what an agent is made of.

    For the packages above this one (`server`, `fleet`, `evaluation`, `cli`, `project`), which show
    an agent, read its journal or mask with its secrets. Programs use the methods of `Agent`.
    """
    return agent._parts  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - this is their door
