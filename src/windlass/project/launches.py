"""How a session was started, and the agent to resume it with.

The settings of each run that the command line starts are recorded with the run. So `windlass
resume` in another shell, days later, needs only the session's name.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from windlass.core.errors import ConfigError
from windlass.core.events import Fact, RunStarted, SessionImported
from windlass.core.fold.run import fold
from windlass.gates.urls import find_addresses
from windlass.ports import Journal
from windlass.project.agents import ProjectAgent, load_agent
from windlass.project.layers import DEFAULT_ORIGIN, LoadedSettings
from windlass.project.permissions import ADDRESSES_KEY
from windlass.project.settings import NO_LIMIT, SETTING_KEYS, Settings
from windlass.project.trust import ProjectFolder

CONTEXT_KEY = "windlass"
"""The key of a launch in the context of a run."""
AUTHORITY_KEYS = frozenset(
    ("base_url", "permission_mode", "policy", "flow_guard", "sandbox", "mcp_config")
)
"""Settings that allow things. A launch keeps them only if a person set them: what a project says is
asked of the project again, so that its trust is looked up again too."""
UNRECORDED_KEYS = frozenset(("retention",))
"""How long a session is kept is not a part of how it runs, and may be changed later."""


class SessionLaunch(msgspec.Struct, frozen=True):
    """What a run was started with."""

    folder: str
    flags: dict[str, Any] = {}
    """The settings that were in force, written as flags."""
    schema: dict[str, Any] | None = None
    """The JSON Schema of the final reply, if it had one."""


def build_launch(agent: ProjectAgent) -> SessionLaunch:
    """Everything that is needed to build the same agent again."""
    flags: dict[str, Any] = {}
    for name, key in SETTING_KEYS.items():
        if not key.per_agent or name in UNRECORDED_KEYS:
            continue
        value = getattr(agent.settings, name)
        if name in AUTHORITY_KEYS and not _is_set_by_person(agent.loaded, name, value):
            continue
        if value is None:
            # "No limit" is a choice too: without it, the default limit would come back.
            value = NO_LIMIT
        elif isinstance(value, Decimal):
            # A float would lose digits of the money.
            value = str(value)
        flags[name] = value
    return SessionLaunch(str(agent.folder), flags, agent.schema)


def _is_set_by_person(loaded: LoadedSettings, name: str, value: object) -> bool:
    if name in loaded.project_keys:
        return False
    return loaded.origins.get(name) != DEFAULT_ORIGIN or value != getattr(Settings(), name)


def launch_context(agent: ProjectAgent, typed: str = "") -> Mapping[str, Any]:
    """The context to start a run with, so that `load_recorded_agent` can build its agent again.

    `typed` is what the person wrote with their own hands. The flow guard does not ask before one of
    the web addresses in it is fetched. Nothing that came from a file, a pipe or a tool belongs in
    it.
    """
    context: dict[str, Any] = {CONTEXT_KEY: msgspec.to_builtins(build_launch(agent))}
    addresses = find_addresses(typed)
    if addresses:
        context[ADDRESSES_KEY] = list(addresses)
    return context


def last_launch(facts: Sequence[Fact]) -> SessionLaunch | None:
    """The launch of a session's last run; None if it was not started with one.

    The folder and the settings of an imported run are not returned: the file that it came from may
    name any folder, and settings that skip questions.
    """
    if is_run_imported(facts):
        return None
    started = [fact for fact in facts if isinstance(fact, RunStarted)]
    recorded = started[-1].context.get(CONTEXT_KEY) if started else None
    if not recorded:
        return None
    try:
        return msgspec.convert(recorded, SessionLaunch)
    except msgspec.ValidationError:
        # Another program may use the same key for something else.
        return None


def is_run_imported(facts: Sequence[Fact]) -> bool:
    """Whether the last run of a session began elsewhere, and came here in a file."""
    for fact in reversed(facts):
        if isinstance(fact, RunStarted):
            return False
        if isinstance(fact, SessionImported):
            return True
    return False


def explain_program_run(session: str, facts: Sequence[Fact]) -> str:
    """Who resumes the last run of a session, if a program started it with its own agent.

    Empty if the command line can build the agent. It cannot build a program's: it would resume
    the run with other tools and another policy.
    """
    started = [fact for fact in facts if isinstance(fact, RunStarted)]
    if not started or is_run_imported(facts) or last_launch(facts) is not None:
        return ""
    agent = f' (agent "{started[-1].agent}")' if started[-1].agent else ""
    return (
        f"this run belongs to a program{agent}: a service or worker goes on by itself, otherwise "
        f'the program calls agent.resume("{session}")'
    )


async def load_recorded_agent(
    journal: Journal,
    session: str,
    flags: Mapping[str, object],
    *,
    open_folder: Callable[[Path], ProjectFolder] | None = None,
) -> ProjectAgent:
    """The agent that a session's last run was started with; `flags` replace single settings.

    For an imported run, it is the agent of this folder and of the user's own settings.

    `open_folder` reads the project of the session's folder, and may ask a person whether to trust
    it. Without it, the folder must be trusted already. Raises ConfigError if the folder of the
    session no longer exists, and FolderNotTrusted.
    """
    facts = await journal.read(session)
    launch = last_launch(facts)
    if launch is None:
        # Another program started the run. Its model is in the journal; its tools are not.
        setup = fold(session, facts).setup
        if setup is not None and not is_run_imported(facts):
            flags = {"model": setup.model.name, **flags}
        launch = SessionLaunch(str(Path.cwd()))
    folder = _find_folder(launch, session)
    project = open_folder(folder) if open_folder is not None else None
    return load_agent({**launch.flags, **flags}, folder, launch.schema, project=project)


def _find_folder(launch: SessionLaunch, session: str) -> Path:
    folder = Path(launch.folder)
    if not folder.is_dir():
        raise ConfigError(f"session {session} worked in {folder}, which no longer exists")
    return folder
