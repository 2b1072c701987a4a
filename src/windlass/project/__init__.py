"""A project on disk: its settings, and the agents and journals that they describe.

The command line is built on these names, and so can a service be: load an agent from a folder, open
a journal, start sessions, and resume them with nothing but their name.
"""

from typing import TYPE_CHECKING

from windlass.lazy_modules import LazyModules, lazy_attributes

if TYPE_CHECKING:
    from windlass.project.agent_session import AgentSession as AgentSession
    from windlass.project.agents import ProjectAgent as ProjectAgent, load_agent as load_agent
    from windlass.project.files import (
        load_settings as load_settings,
        read_mcp_servers as read_mcp_servers,
        settings_files as settings_files,
    )
    from windlass.project.journals import (
        journal_name as journal_name,
        open_existing_journal as open_existing_journal,
        open_journal as open_journal,
    )
    from windlass.project.launches import (
        launch_context as launch_context,
        load_recorded_agent as load_recorded_agent,
    )
    from windlass.project.layers import LoadedSettings as LoadedSettings
    from windlass.project.local_servers import (
        ModelChoice as ModelChoice,
        choose_model as choose_model,
    )
    from windlass.project.mcp_tokens import SecretTokens as SecretTokens
    from windlass.project.secrets import SecretStore as SecretStore
    from windlass.project.session_names import (
        find_latest as find_latest,
        find_session as find_session,
        new_session_name as new_session_name,
    )
    from windlass.project.settings import Settings as Settings
    from windlass.project.trust import (
        ProjectFolder as ProjectFolder,
        TrustStore as TrustStore,
        open_project as open_project,
    )

LAZY_MODULES: LazyModules = {
    "windlass.project.agent_session": "AgentSession",
    "windlass.project.agents": "ProjectAgent load_agent",
    "windlass.project.files": "load_settings read_mcp_servers settings_files",
    "windlass.project.journals": "journal_name open_existing_journal open_journal",
    "windlass.project.launches": "launch_context load_recorded_agent",
    "windlass.project.layers": "LoadedSettings",
    "windlass.project.local_servers": "ModelChoice choose_model",
    "windlass.project.mcp_tokens": "SecretTokens",
    "windlass.project.secrets": "SecretStore",
    "windlass.project.session_names": "find_latest find_session new_session_name",
    "windlass.project.settings": "Settings",
    "windlass.project.trust": "ProjectFolder TrustStore open_project",
}
if not TYPE_CHECKING:  # To a type checker, `__getattr__` would make every name a valid one.
    __getattr__ = lazy_attributes(__name__, LAZY_MODULES)
