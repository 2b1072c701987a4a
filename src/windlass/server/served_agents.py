"""Which agents a service has, by name, and the one journal of all of them."""

from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any, cast

from msgspec.structs import replace

from windlass.agent.agent import Agent, with_parts
from windlass.agent.folder_store import FolderStore
from windlass.agent.options import parts_of
from windlass.core.disclosure import AgentPart
from windlass.core.errors import ConfigError
from windlass.core.messages import ToolSpec
from windlass.core.suggestions import suggest_names
from windlass.journals.completing import complete_journal
from windlass.journals.memory import MemoryJournal
from windlass.journals.urls import open_journal
from windlass.ports import GivenJournal, Journal
from windlass.server.errors import ApiError


def name_agents(
    agents: Agent[Any] | Iterable[Agent[Any]] | Mapping[str, Agent[Any]],
) -> dict[str, Agent[Any]]:
    """Return the agents by name. Raises ConfigError if there are none, or two with one name."""
    if isinstance(agents, Agent):
        agents = [agents]
    pairs: list[tuple[str, Agent[Any]]]
    if isinstance(agents, Mapping):
        pairs = list(cast("Mapping[str, Agent[Any]]", agents).items())
    else:
        pairs = [(parts_of(agent).world.agent, agent) for agent in agents]
    named: dict[str, Agent[Any]] = {}
    for name, agent in pairs:
        if name in named:
            raise ConfigError(f"two agents have the name {name!r}: give each its own name=…")
        named[name] = agent
    if not named:
        raise ConfigError("Service(): there is no agent to serve")
    return named


def choose_journal(
    agents: Mapping[str, Agent[Any]], journal: GivenJournal | str | PurePath | None
) -> Journal:
    """Return the journal that is given, or the one of the agents.

    Raises ConfigError if the agents have several, or it cannot list and lease its sessions.
    """
    chosen = complete_journal(_choose_given(agents, journal))
    chosen.check_shareable()
    return chosen


def _choose_given(
    agents: Mapping[str, Agent[Any]], journal: GivenJournal | str | PurePath | None
) -> GivenJournal:
    if isinstance(journal, str | PurePath):
        return open_journal(journal)
    if journal is not None:
        return journal
    for agent in agents.values():
        parts_of(agent).world.journal.check_shareable()
    own = {
        id(parts_of(agent).world.journal): parts_of(agent).world.journal
        for agent in agents.values()
    }
    kept = [each for each in own.values() if each.is_kept]
    if len(own) == 1:
        return next(iter(own.values()))
    if kept:
        raise ConfigError("the agents have different journals: pass one to the service, journal=…")
    return MemoryJournal()


def share_journal(agents: Mapping[str, Agent[Any]], journal: Journal) -> dict[str, Agent[Any]]:
    """Return the agents with this journal: themselves if they have it already."""
    return {
        name: agent if parts_of(agent).world.journal is journal else agent.with_journal(journal)
        for name, agent in agents.items()
    }


def share_folders(agents: Mapping[str, Agent[Any]], folders: FolderStore) -> dict[str, Agent[Any]]:
    """Return the agents with this store for the folders of callers."""
    return {
        name: with_parts(
            agent, replace(parts_of(agent), world=replace(parts_of(agent).world, folders=folders))
        )
        for name, agent in agents.items()
    }


def list_shown_tools(agent: Agent[Any], parts: frozenset[AgentPart]) -> list[ToolSpec]:
    """Return the tools of an agent that a viewer may see who sees these parts of it."""
    specs = parts_of(agent).setup.tools if "tools" in parts else ()
    return [spec for spec in specs if not spec.needs_artifact]


def find_agent(agents: Mapping[str, Agent[Any]], name: str) -> Agent[Any]:
    """Return an agent by its name. Raises ApiError 404."""
    agent = agents.get(name)
    if agent is None:
        hint = suggest_names(name, tuple(agents)).strip()
        raise ApiError(
            404,
            "agent_not_found",
            f"There is no agent {name!r} here.",
            hint or "GET /agents lists them.",
        )
    return agent
