"""The methods that an editor calls: sessions, prompts, modes.

Invariant: nothing of a folder takes effect before a person has trusted it. Until then, an editor
that opens the folder gets an error that says what to do, and nothing else.
"""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from acp import PROTOCOL_VERSION
from acp.schema import (
    AcpMcpServer,
    AgentCapabilities,
    ClientCapabilities,
    HttpMcpServer,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    McpServerStdio,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionMode,
    SessionModeState,
    SessionResumeCapabilities,
    SetSessionModeResponse,
    SseMcpServer,
)

from windlass.core.errors import ConfigError, NothingToDo, WindlassError
from windlass.core.session_summary import SessionSummary
from windlass.environ import find_login_name
from windlass.logs import get_logger
from windlass.project.agents import ProjectAgent, load_agent
from windlass.project.files import load_settings
from windlass.project.journals import ManagedJournal, journal_name, open_journal
from windlass.project.launches import last_launch, load_recorded_agent
from windlass.project.local_servers import choose_model, explain_no_base_url, find_servers
from windlass.project.session_names import new_session_name, session_prefix
from windlass.project.settings import PermissionMode
from windlass.project.trust import ProjectFolder, open_project
from windlass.server.acp.acp_errors import INVALID_PARAMS, convert_error, explain_trust, make_error
from windlass.server.acp.prompts import PromptBlock, read_prompt
from windlass.server.acp.session import EditorClient, EditorSession
from windlass.tools.mcp.config import McpSettings, mcp_settings

_log = get_logger(__name__)
PAGE_SESSIONS = 30
MODE_TEXTS: Mapping[PermissionMode, tuple[str, str]] = {
    "ask": ("Ask", "Reads are allowed; you are asked about the rest."),
    "read-only": ("Read only", "Reads are allowed; the rest is denied."),
    "allow-edits": ("Allow edits", "Files may be changed; you are asked about the rest."),
    "plan": ("Plan", "Reads are allowed; the agent ends with a plan for you."),
    "allow-all": ("Allow all", "Everything is allowed that no rule forbids."),
}
EditorMcpServer = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio


class EditorAgent:
    """Serves one editor. Is an `acp.Agent`."""

    def __init__(
        self, client: EditorClient, flags: Mapping[str, object], *, use_project: bool = True
    ) -> None:
        """Serve the editor at the other end of `client`.

        `flags` are settings that a person gave on the command line. Without `use_project`, the
        settings of projects have no effect, and need no trust.
        """
        self._client = client
        self._flags = dict(flags)
        self._use_project = use_project
        self._sessions: dict[str, EditorSession] = {}
        self._journals: dict[str, ManagedJournal] = {}
        self._resources = AsyncExitStack()
        self._person = find_login_name()

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,  # noqa: ARG002 - none is needed
        client_info: Implementation | None = None,
        **_meta: Any,  # noqa: ANN401 - of the protocol
    ) -> InitializeResponse:
        """Say what this agent can do."""
        name = client_info.name if client_info is not None else "an editor"
        _log.info("%s speaks version %s of the protocol", name, protocol_version)
        return InitializeResponse(
            # There is one version: an editor that speaks another one disconnects.
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(
                    image=True, audio=False, embedded_context=True
                ),
                mcp_capabilities=McpCapabilities(http=True, sse=True),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    resume=SessionResumeCapabilities(),
                    close=SessionCloseCapabilities(),
                ),
            ),
            auth_methods=[],
            agent_info=Implementation(
                name="windlass", title="Windlass", version=version("windlass")
            ),
        )

    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[EditorMcpServer] | None = None,
        **_meta: Any,  # noqa: ANN401 - of the protocol
    ) -> NewSessionResponse:
        """Begin a session in a folder. It is in the journal from its first prompt on."""
        try:
            folder = _check_folder(cwd, additional_directories)
            agent = load_agent(self._flags, folder, project=self._open_folder(folder))
            agent = await self._complete_agent(agent, mcp_servers)
            session = await self._open_session(new_session_name(folder), agent)
        except WindlassError as error:
            raise convert_error(error) from error
        return NewSessionResponse(session_id=session.name, modes=show_modes(session.agent))

    async def list_sessions(
        self,
        cwd: str | None = None,
        cursor: str | None = None,
        **_meta: Any,  # noqa: ANN401 - of the protocol
    ) -> ListSessionsResponse:
        """List the sessions of a folder, or all sessions that have one: the latest first."""
        try:
            folder = _check_folder(cwd) if cwd is not None else None
            journal = await self._open_journal(folder or Path.cwd(), strict=folder is not None)
            prefix = session_prefix(folder) if folder is not None else None
            page = await journal.sessions(prefix, parent="", limit=PAGE_SESSIONS, cursor=cursor)
            infos = [await self._describe(journal, summary, folder) for summary in page]
        except WindlassError as error:
            raise convert_error(error) from error
        found = [info for info in infos if info is not None]
        return ListSessionsResponse(sessions=found, next_cursor=page.cursor)

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: list[EditorMcpServer] | None = None,
        additional_directories: list[str] | None = None,
        **_meta: Any,  # noqa: ANN401 - of the protocol
    ) -> LoadSessionResponse:
        """Show a session from its beginning, and resume its run if one is open."""
        session = await self._open_recorded(cwd, session_id, mcp_servers, additional_directories)
        await session.replay()
        await self._continue(session)
        return LoadSessionResponse(modes=show_modes(session.agent))

    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[EditorMcpServer] | None = None,
        **_meta: Any,  # noqa: ANN401 - of the protocol
    ) -> ResumeSessionResponse:
        """Continue a session whose past the editor has, and resume its run if one is open."""
        session = await self._open_recorded(cwd, session_id, mcp_servers, additional_directories)
        session.skip_history()
        await self._continue(session)
        return ResumeSessionResponse(modes=show_modes(session.agent))

    async def close_session(self, session_id: str, **_meta: Any) -> None:  # noqa: ANN401 - of the protocol
        """Cancel the run of a session, as the protocol asks for, and forget the session here."""
        session = self._find_session(session_id)
        if session.is_busy:
            await session.cancel()
        del self._sessions[session_id]
        await session.close()

    async def set_session_mode(
        self,
        session_id: str,
        mode_id: str,
        **_meta: Any,  # noqa: ANN401 - of the protocol
    ) -> SetSessionModeResponse:
        """Change what happens to calls that change things, from the next prompt on."""
        session = self._find_session(session_id)
        modes: Mapping[str, PermissionMode] = {mode: mode for mode in MODE_TEXTS}
        mode = modes.get(mode_id)
        if mode is None or show_modes(session.agent) is None:
            raise make_error(
                INVALID_PARAMS,
                "unknown_mode",
                f"There is no mode {mode_id!r} here. A policy may replace the modes.",
            )
        session.change_mode(mode)
        return SetSessionModeResponse()

    async def prompt(
        self,
        session_id: str,
        prompt: Sequence[PromptBlock],
        **_meta: Any,  # noqa: ANN401 - of the protocol
    ) -> PromptResponse:
        """Run a prompt to its end. Its run continues if the editor does not wait for it."""
        session = self._find_session(session_id)
        try:
            end = await session.prompt(read_prompt(prompt))
        except WindlassError as error:
            raise convert_error(error) from error
        return end.to_response()

    async def cancel(self, session_id: str, **_meta: Any) -> None:  # noqa: ANN401 - of the protocol
        """End the run of a session."""
        session = self._sessions.get(session_id)
        if session is not None:
            await session.cancel()

    async def aclose(self) -> None:
        """Release all runs: any process can resume them."""
        sessions = list(self._sessions.values())
        self._sessions.clear()
        for session in sessions:
            await session.close()
        await self._resources.aclose()

    # Folders and agents.

    def _open_folder(self, folder: Path) -> ProjectFolder:
        """Return what a folder says. Raises RequestError if no person has trusted it."""
        project = open_project(folder)
        if not self._use_project:
            return project.without_trust()
        project.refuse_problems()
        if not project.is_trusted:
            raise explain_trust(project.snapshot)
        return project

    async def _complete_agent(
        self, agent: ProjectAgent, mcp_servers: Sequence[EditorMcpServer] | None
    ) -> ProjectAgent:
        """Return the agent with a model, and with the servers that the editor brings along."""
        if not agent.settings.model:
            choice = await choose_model(agent.project.environ, agent.project.weights)
            agent = agent.with_model(choice.model)
        if agent.needs_base_url():
            raise ConfigError(explain_no_base_url(agent.settings.model, await find_servers()))
        agent.check_model()
        return agent.with_servers(read_servers(mcp_servers or ()))

    async def _open_session(self, name: str, agent: ProjectAgent) -> EditorSession:
        before = self._sessions.pop(name, None)
        if before is not None:
            await before.close()
        journal = await self._open_named(journal_name(agent.settings))
        session = EditorSession(self._client, name, journal, agent, person=self._person)
        opened = await session.open()
        for server, reason in opened.mcp_failures.items():
            _log.warning("continuing without the MCP server %s: %s", server, reason)
        self._sessions[name] = session
        return session

    async def _open_recorded(
        self,
        cwd: str,
        name: str,
        mcp_servers: Sequence[EditorMcpServer] | None,
        additional_directories: Sequence[str] | None,
    ) -> EditorSession:
        """Open a session that is in the journal, with the agent that it was started with."""
        try:
            folder = _check_folder(cwd, additional_directories)
            journal = await self._open_journal(folder, strict=True)
            agent = await load_recorded_agent(
                journal, name, self._flags, open_folder=self._open_folder
            )
            if agent.folder.resolve() != folder.resolve():
                raise ConfigError(
                    f"session {name} works in {agent.folder}, and the editor has {folder} open"
                )
            agent = await self._complete_agent(agent, mcp_servers)
            session = await self._open_session(name, agent)
            await session.read_history()
        except WindlassError as error:
            raise convert_error(error) from error
        return session

    async def _continue(self, session: EditorSession) -> None:
        try:
            if session.has_open_run:
                await session.continue_run()
        except WindlassError as error:
            raise convert_error(error) from error

    async def _open_journal(self, folder: Path, *, strict: bool) -> ManagedJournal:
        """Open the journal of a folder's settings.

        `strict`: an error if the folder is not trusted; else its settings have no effect.
        """
        if strict:
            project = self._open_folder(folder)
        else:
            project = open_project(folder)
            project = project if project.is_trusted else project.without_trust()
        loaded = load_settings(self._flags, folder=folder, project=project)
        return await self._open_named(journal_name(loaded.settings))

    async def _open_named(self, name: str) -> ManagedJournal:
        if name not in self._journals:
            journal = await self._resources.enter_async_context(open_journal(name))
            self._journals[name] = journal
        return self._journals[name]

    def _find_session(self, name: str) -> EditorSession:
        session = self._sessions.get(name)
        if session is None:
            raise convert_error(
                NothingToDo(f"session {name!r} is not open here: load or resume it first")
            )
        return session

    async def _describe(
        self, journal: ManagedJournal, summary: SessionSummary, folder: Path | None
    ) -> SessionInfo | None:
        """Return a line of the list; None for a session that has no folder, or another one."""
        place = str(folder) if folder is not None else None
        if folder is not None and not summary.session.startswith(session_prefix(folder)):
            return None
        if folder is None:
            launch = last_launch(await journal.read(summary.session))
            place = launch.folder if launch is not None else None
        if place is None:
            return None
        return SessionInfo(
            session_id=summary.session,
            cwd=place,
            title=summary.title or None,
            updated_at=datetime.fromtimestamp(summary.updated, UTC).isoformat(),
            field_meta={"windlass": {"state": summary.state, "steps": summary.steps}},
        )


def show_modes(agent: ProjectAgent) -> SessionModeState | None:
    """Return the modes that a person may choose from; None if a policy replaces them."""
    if not agent.loaded.uses_mode:
        return None
    modes = [
        SessionMode(id=mode, name=name, description=text)
        for mode, (name, text) in MODE_TEXTS.items()
    ]
    return SessionModeState(current_mode_id=agent.settings.permission_mode, available_modes=modes)


def read_servers(servers: Sequence[EditorMcpServer]) -> tuple[McpSettings, ...]:
    """Return the MCP servers that an editor names. Raises ConfigError for a kind we do not speak.

    One that cannot be reached is left out: it is the editor's, and not a part of the task.
    """
    entries: dict[str, dict[str, Any]] = {}
    for server in servers:
        match server:
            case McpServerStdio():
                env = {variable.name: variable.value for variable in server.env}
                entry = {"command": server.command, "args": server.args, "env": env}
            case HttpMcpServer() | SseMcpServer():
                headers = {header.name: header.value for header in server.headers}
                entry = {"type": server.type, "url": server.url, "headers": headers}
            case _:
                raise ConfigError(
                    f"the MCP server {server.name} uses a transport that is not offered: "
                    "use stdio, http or sse"
                )
        entries[server.name] = {**entry, "required": False}
    return mcp_settings({"mcpServers": entries}, {}, "the editor")


def _check_folder(cwd: str, additional: Sequence[str] | None = None) -> Path:
    folder = Path(cwd)
    if not folder.is_absolute() or not folder.is_dir():
        raise ConfigError(f"cwd must be the absolute path of a folder that exists, not {cwd!r}")
    if additional:
        raise ConfigError("an agent works in one folder: additionalDirectories is not offered")
    return folder
