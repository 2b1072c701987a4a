"""The agent that `windlass eval` tries: that of a project's settings, or a program's own."""

import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import FunctionType
from typing import Any, cast

from windlass.agent.agent import Agent
from windlass.core.errors import ConfigError
from windlass.evaluation.trials import AgentMaker, Trial, use_agent
from windlass.journals.memory import MemoryJournal
from windlass.project.agents import ProjectAgent
from windlass.project.program_objects import import_object


def make_project_maker(project_agent: ProjectAgent) -> AgentMaker:
    """Return a function that builds a project's agent for each trial, in the trial's workspace.

    The settings are those of the folder that the command was started in, even if the workspace of
    a case has settings of its own: what a case brings along is material, and is not obeyed.
    """

    def make(trial: Trial) -> AbstractAsyncContextManager[Agent[Any]]:
        return open_agent(trial.workspace)

    @asynccontextmanager
    async def open_agent(workspace: Path | None) -> AsyncGenerator[Agent[Any]]:
        own = replace(project_agent, folder=workspace or project_agent.folder)
        # The runner puts the journal of the evaluation in place of this one.
        async with own.open_session(MemoryJournal()) as opened:
            yield opened.agent

    return make


def load_maker(target: str) -> AgentMaker:
    """Return what makes the agents of trials: `MODULE:NAME`, an agent or a function.

    A function without parameters is called once; one with a parameter is given each `Trial`.
    Raises ConfigError if there is no such thing.
    """
    # Plain functions too: a function makes the agent more often than not.
    suggested = (Agent, FunctionType)
    found = import_object(target, example="app:make_agent", suggested=suggested)
    if isinstance(found, Agent):
        return use_agent(cast("Agent[Any]", found))
    if not callable(found):
        raise ConfigError(f"{target!r} is neither an Agent nor a function that makes one")
    if inspect.signature(found).parameters:
        return cast("AgentMaker", found)
    return use_agent(_call(target, cast("Callable[[], object]", found)))


def _call(target: str, make: Callable[[], object]) -> Agent[Any]:
    agent = make()
    if not isinstance(agent, Agent):
        raise ConfigError(f"{target!r} returned {type(agent).__name__}, and not an Agent")
    return cast("Agent[Any]", agent)
