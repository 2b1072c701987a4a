"""A project on disk: its settings, and the agents and journals that they describe.

The command line is built on these names, and so can a service be: load an agent from a folder, open
a journal, start sessions, and resume them with nothing but their name.
"""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.project.agent_session import AgentSession
    from windlass.project.agents import ProjectAgent, load_agent
    from windlass.project.files import load_settings, read_mcp_servers, settings_files
    from windlass.project.journals import journal_name, open_existing_journal, open_journal
    from windlass.project.launches import launch_context, load_recorded_agent
    from windlass.project.layers import LoadedSettings
    from windlass.project.local_servers import ModelChoice, choose_model
    from windlass.project.mcp_tokens import SecretTokens
    from windlass.project.secrets import SecretStore
    from windlass.project.session_names import find_latest, find_session, new_session_name
    from windlass.project.settings import Settings
    from windlass.project.trust import ProjectFolder, TrustStore, open_project

__all__ = [
    "AgentSession",
    "LoadedSettings",
    "ModelChoice",
    "ProjectAgent",
    "ProjectFolder",
    "SecretStore",
    "SecretTokens",
    "Settings",
    "TrustStore",
    "choose_model",
    "find_latest",
    "find_session",
    "journal_name",
    "launch_context",
    "load_agent",
    "load_recorded_agent",
    "load_settings",
    "new_session_name",
    "open_existing_journal",
    "open_journal",
    "open_project",
    "read_mcp_servers",
    "settings_files",
]

LAZY_MODULES: LazyModules = {
    "AgentSession": "windlass.project.agent_session",
    "LoadedSettings": "windlass.project.layers",
    "ModelChoice": "windlass.project.local_servers",
    "ProjectAgent": "windlass.project.agents",
    "ProjectFolder": "windlass.project.trust",
    "SecretStore": "windlass.project.secrets",
    "SecretTokens": "windlass.project.mcp_tokens",
    "Settings": "windlass.project.settings",
    "TrustStore": "windlass.project.trust",
    "choose_model": "windlass.project.local_servers",
    "find_latest": "windlass.project.session_names",
    "find_session": "windlass.project.session_names",
    "journal_name": "windlass.project.journals",
    "launch_context": "windlass.project.launches",
    "load_agent": "windlass.project.agents",
    "load_recorded_agent": "windlass.project.launches",
    "load_settings": "windlass.project.files",
    "new_session_name": "windlass.project.session_names",
    "open_existing_journal": "windlass.project.journals",
    "open_journal": "windlass.project.journals",
    "open_project": "windlass.project.trust",
    "read_mcp_servers": "windlass.project.files",
    "settings_files": "windlass.project.files",
}
if not TYPE_CHECKING:  # To a type checker, `__getattr__` would make every name a valid one.
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
