"""How does a package of my own watch runs and forbid calls? With two entry points.

[project.entry-points."windlass_observers"]
audit = "hooks:audit"
[project.entry-points."windlass_gates"]
no_welding = "hooks:NoWelding"
"""

from windlass import Agent, Allow, Deny, Event, RunEnded, tool
from windlass.gates import all_of, allow_all
from windlass.ports import GateRequest
from windlass.testing import ScriptedModel, call


def audit(session: str, event: Event) -> None:
    """An observer: whatever it does, the run does not notice."""
    if isinstance(event, RunEnded):
        print(f"{session} ended as {event.outcome}")


class NoWelding:
    """A gate: it can only forbid more, and has denied if it fails."""

    name = "no welding"
    judges_replies = False

    async def judge(self, request: GateRequest) -> Allow | Deny:
        return Deny("nobody welds here") if request.tool.name == "weld" else Allow()

    async def judge_reply(self, *_reply: str) -> Allow | Deny:
        return Allow()


@tool
def weld() -> str:
    """Weld."""
    return "welded"


# What `windlass run` does with them, once `windlass config set --user hooks …` names them:
script = ScriptedModel([call("weld"), "It was not allowed."])
agent = Agent(script, tools=[weld], gate=all_of(allow_all(), NoWelding()))
print(agent.run_sync("Weld.", session="s", on_event=lambda event: audit("s", event)).text)
