"""What both sides of a measure share: the scripts, the tool, the watcher."""

from collections.abc import AsyncGenerator, Mapping, Sequence

from floor import AgentFloor
from wire_floor import WireFloor

from windlass import Agent, Limits, ModelInfo, Toolbox, UserMessage, tool
from windlass.core.events import Event, ReplyPiece, TextDelta
from windlass.core.view import Prompt
from windlass.models.resolve import resolve_model
from windlass.ports import Journal, Model
from windlass.testing import ScriptedModel, ScriptedReply, call


async def look(at: int) -> str:
    """Look at an item.

    Args:
        at: its number.
    """
    return f"item {at}"


TOOLS = Toolbox([tool(look, effect="read")])


def script_steps(count: int) -> list[ScriptedReply]:
    """Return a script of `count` replies with one call each, and an answer."""
    return [*(call("look", {"at": at}) for at in range(count)), "That is all."]


class ModelSwitchboard:
    """Many scripted models as one. The prompt of a session selects the model that answers it."""

    def __init__(self, scripts: Mapping[str, Sequence[ScriptedReply]]) -> None:
        self.info = ModelInfo("scripted:many")
        self.models = {prompt: ScriptedModel(script) for prompt, script in scripts.items()}

    def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
        first = prompt.messages[0]
        return self.models[first.text if isinstance(first, UserMessage) else ""].stream(prompt)


class TextWatcher:
    """Receives the text of a run, as a program that shows it would."""

    def __init__(self) -> None:
        self.shown = 0

    def on_text(self, text: str) -> None:
        self.shown += len(text)

    def on_event(self, event: Event) -> None:
        if isinstance(event, TextDelta):
            self.on_text(event.text)


def make_floor(model: Model) -> AgentFloor:
    return AgentFloor(model, TOOLS.specs, {"look": look})


def make_agent(model: Model, journal: Journal | None = None) -> Agent[str]:
    return Agent(model, tools=TOOLS, limits=Limits(steps=None), journal=journal)


def make_wire_floor(url: str) -> WireFloor:
    return WireFloor(url, TOOLS.specs, {"look": look})


def make_wire_agent(url: str) -> Agent[str]:
    return make_agent(resolve_model("openai-compatible:m", base_url=url, environ={}))


async def drain_model(model: ScriptedModel, prompts: Sequence[Prompt]) -> None:
    """Read every piece of every reply of the model alone, and do nothing with it."""
    for prompt in prompts:
        async for _ in model.stream(prompt):
            pass
