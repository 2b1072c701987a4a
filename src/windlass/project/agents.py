"""An agent from the settings of a project: its model, tools, gate, limits, instructions, journal.

Invariant: a mistake in the settings is reported before the first request to a model.

    project_agent = load_agent({"model": "ollama:qwen3"}, folder=Path("."))
    async with project_agent.open_session(journal) as session:
        await session.agent.run("What is in here?")
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from windlass.agent.agent import Agent
from windlass.agent.call_previews import mask_preview
from windlass.agent.folder_store import FolderStore
from windlass.agent.options import build_mask
from windlass.core.errors import ConfigError
from windlass.core.limits import Limits
from windlass.core.schema import JsonSchema
from windlass.core.setup import Compaction, LoopPolicy, WorkFolder
from windlass.core.verdicts import CallPreview
from windlass.models.http.provider_errors import mask_keys
from windlass.models.reply_cache import cache_replies
from windlass.models.resolve import is_local_url, resolve_model
from windlass.models.vendors import load_vendors
from windlass.ports import Approver, Journal, Model
from windlass.project.agent_session import AgentSession
from windlass.project.files import (
    load_settings,
    parse_mcp_servers,
    project_servers,
    read_mcp_servers,
)
from windlass.project.hooks import hook_observer
from windlass.project.layers import LoadedSettings
from windlass.project.mcp_tokens import SecretTokens
from windlass.project.permissions import build_gate, named_files
from windlass.project.settings import PermissionMode, Settings
from windlass.project.trust import ProjectFolder, hide_own_files, open_project
from windlass.tools import McpHttp, McpServers, McpStdio, load_tools
from windlass.tools.browser.browser_tools import browser_tools
from windlass.tools.core_toolset import core_tools
from windlass.tools.function import Tool, tool
from windlass.tools.search import Profile
from windlass.tools.shell.sandbox import Sandbox
from windlass.tools.toolbox import Toolbox
from windlass.tools.web.web_search import web_search_tool

TOOL_PROFILES = ("all", "none", "core", "read-only")
"""Words for groups of tools: all of them, none, those without MCP, and those that only read."""
DEFAULT_INSTRUCTIONS = (
    "You work in one folder, with the tools that you are given; relative paths start there. Look "
    "before you change something, change what was asked for and no more, and check that it works. "
    "Some calls are judged by a policy or a person first: if one is denied, do not try to get "
    "around it. Say briefly at the end what you did and what you found."
)
"""The system prompt if the settings have none."""
TOOLLESS_INSTRUCTIONS = "Answer briefly and to the point."
"""The system prompt if the settings have none and the agent has no tools."""
SCHEMA_FAULTS_MAX = 3


@dataclass(frozen=True, slots=True)
class ProjectAgent:
    """An agent as a project describes it. Nothing has been opened or connected yet."""

    loaded: LoadedSettings
    folder: Path
    """Where the agent works: its tools resolve relative paths here."""
    schema: dict[str, Any] | None = None
    """A JSON Schema that the final reply must match; None for plain text."""
    opened: ProjectFolder | None = None
    """What the project says, and whether it is trusted; None to look it up."""
    more_servers: tuple[McpStdio | McpHttp, ...] = ()
    """MCP servers that the program brings along, beside those of the settings."""
    compaction: Compaction | None = None
    """When and how the view of the model is made shorter; None for the agent's own way."""

    @property
    def project(self) -> ProjectFolder:
        """The folder, with what it may do."""
        return self.opened or open_project(self.folder)

    @property
    def settings(self) -> Settings:
        """The settings that are in force."""
        return self.loaded.settings

    def with_model(self, model: str) -> "ProjectAgent":
        """The same agent with another model, written as `provider:model`.

        It keeps its base URL only if the provider stays the same.
        """
        settings = msgspec.structs.replace(self.settings, model=model)
        if provider_of(model) != provider_of(self.settings.model):
            settings = msgspec.structs.replace(settings, base_url="")
        return self._with_settings(settings)

    def with_base_url(self, url: str) -> "ProjectAgent":
        """The same agent with its model at another server."""
        return self._with_settings(msgspec.structs.replace(self.settings, base_url=url))

    def with_mode(self, mode: PermissionMode) -> "ProjectAgent":
        """The same agent in another permission mode, which a person chose for it.

        Policies stay in force beside the mode: the strictest verdict wins.
        """
        settings = msgspec.structs.replace(self.settings, permission_mode=mode)
        loaded = replace(
            self.loaded,
            settings=settings,
            uses_mode=self.loaded.uses_mode or mode not in ("ask", "allow-all"),
            project_keys=self.loaded.project_keys - {"permission_mode"},
            origins={**self.loaded.origins, "permission_mode": "the person at the terminal"},
        )
        return replace(self, loaded=loaded)

    def with_servers(self, servers: Sequence[McpStdio | McpHttp]) -> "ProjectAgent":
        """The same agent with more MCP servers. Those of the settings win if a name is the same."""
        return replace(self, more_servers=tuple(servers))

    def _with_settings(self, settings: Settings) -> "ProjectAgent":
        return replace(self, loaded=replace(self.loaded, settings=settings))

    def needs_base_url(self) -> bool:
        """Whether the provider has no address of its own, and none is set."""
        vendor = load_vendors().get(provider_of(self.settings.model))
        if vendor is None or vendor.url or self.settings.base_url:
            return False
        return not (vendor.url_env and self.project.environ.get(vendor.url_env))

    def check_model(self) -> None:
        """Raise ConfigError if the model cannot be used: unknown provider, or no key."""
        base_url = self.checked_base_url()
        resolve_model(self.settings.model, environ=self.project.environ, base_url=base_url)

    def checked_base_url(self) -> str | None:
        """The base URL of the settings; None if they have none.

        Raises ConfigError if a project's file would have a key of this person sent to a stranger.
        """
        url = self.settings.base_url
        vendor = load_vendors().get(provider_of(self.settings.model))
        if not url or vendor is None or vendor.keyless:
            return url or None
        # If there is a key, any program of this machine could wait for it.
        has_key = bool(self.project.environ.get(vendor.key_env or ""))
        if "base_url" in self.loaded.project_keys and (has_key or not is_local_url(url)):
            raise ConfigError(
                f"{self.loaded.origins['base_url']}: base_url would send {vendor.key_env} to "
                f"{mask_keys(url)}. A project's file cannot decide that. If you trust it, use "
                "--base-url or WINDLASS_BASE_URL, or name the model openai-compatible:MODEL, which "
                "has a key of its own."
            )
        return url

    @asynccontextmanager
    async def open_toolbox(self) -> AsyncGenerator[tuple[Toolbox, Mapping[str, str]]]:
        """Connect to the MCP servers and yield the tools, and the servers that failed and why."""
        async with self._open_servers() as servers:
            yield self._build_toolbox(await servers.tools()), servers.failures

    def _build_toolbox(self, extra_tools: list[Tool[..., Any]]) -> Toolbox:
        return build_toolbox(self.loaded, self.folder, self.project, extra_tools)

    @asynccontextmanager
    async def _open_servers(self) -> AsyncGenerator[McpServers]:
        project = self.project
        configured = configured_servers(self.loaded, project)
        taken = {server.name for server in configured}
        if self.settings.tools not in (("none",), ("core",)):
            configured += tuple(one for one in self.more_servers if one.name not in taken)
        tokens = SecretTokens(project.secrets)
        async with McpServers(configured, private=True, tokens=tokens) as servers:
            yield servers

    async def preview_call(
        self, tool: str, arguments: Mapping[str, Any], folder: WorkFolder | None = None
    ) -> CallPreview | None:
        """Return what a call of a tool of ours would change in a folder if it ran now, if known.

        No MCP server is started for it.
        """
        path = FolderStore(self.settings.workspace_store or None).find(folder) if folder else None
        toolbox = build_toolbox(self.loaded, self.folder, self.project)
        preview = await toolbox.preview(tool, arguments, folder=path)
        if preview is None or (folder is not None and path is None):
            return None
        return mask_preview(preview, build_mask(self.project.secrets.revealed).mask_text)

    @asynccontextmanager
    async def open_session(
        self, journal: Journal, approver: Approver | None = None
    ) -> AsyncGenerator[AgentSession]:
        """Build the agent, and close everything that it opened when the block ends.

        Without an approver, a call that needs an answer suspends the run.
        """
        # Resolved here, and not by the agent, which would read a `.env` that is not trusted.
        settings, environ = self.settings, self.project.environ
        first = resolve_model(settings.model, environ=environ, base_url=self.checked_base_url())
        others = (resolve_model(name, environ=environ) for name in settings.fallbacks)
        models = cache_replies((first, *others), environ)
        async with self._open_servers() as servers:
            toolbox = self._build_toolbox(await servers.tools())
            build_agent = partial(self._build_agent, models, journal, approver)
            session = AgentSession(
                build_agent(toolbox), journal, toolbox, servers, self._build_toolbox, build_agent
            )
            try:
                yield session
            finally:
                await session.agent.aclose()

    def _build_agent(
        self,
        models: Sequence[Model],
        journal: Journal,
        approver: Approver | None,
        toolbox: Toolbox,
    ) -> Agent[Any]:
        settings, project = self.settings, self.project
        return Agent[Any](
            models[0],
            fallbacks=models[1:],
            name=settings.agent,
            instructions=build_instructions(settings, toolbox, project),
            tools=toolbox,
            gate=build_gate(self.loaded, self.folder, project),
            approver=approver,
            limits=Limits(
                steps=settings.max_steps,
                usd=settings.max_usd,
                tokens=settings.max_tokens,
                seconds=settings.timeout,
            ),
            rules=LoopPolicy(on_failure=settings.on_failure),
            journal=journal,
            folders=FolderStore(settings.workspace_store or None),
            secrets=project.secrets.revealed,
            telemetry=hook_observer(settings.hooks),
            compaction=self.compaction,
            output_type=str if self.schema is None else schema_type(self.schema),
        )


def provider_of(model: str) -> str:
    """The provider in the name of a model, `provider:model` or `provider/model`."""
    return model.replace("/", ":", 1).partition(":")[0].strip()


def load_agent(
    flags: Mapping[str, object] | None = None,
    folder: Path | None = None,
    schema: dict[str, Any] | None = None,
    *,
    trust: bool | None = None,
    project: ProjectFolder | None = None,
) -> ProjectAgent:
    """The agent that a folder's settings describe, with `flags` over them.

    `trust`: None uses the project's settings if a person has trusted them, and raises
    FolderNotTrusted if not. True trusts them for this agent. False does without them: they can then
    only make things stricter. `project`: what was read and decided already. Raises ConfigError if a
    settings file, a variable or a flag is wrong.
    """
    here = (folder or Path.cwd()).absolute()
    if project is None:
        project = open_project(here)
        match trust:
            case None:
                project = project.require_trust()
            case True:
                project = project.as_trusted()
            case False:
                project = project.without_trust()
    loaded = load_settings(flags, folder=here, project=project)
    return ProjectAgent(loaded, here, schema, project)


def configured_servers(
    loaded: LoadedSettings, project: ProjectFolder
) -> tuple[McpStdio | McpHttp, ...]:
    """The MCP servers whose tools the settings ask for."""
    settings = loaded.settings
    if settings.tools in (("none",), ("core",)):
        return ()
    if not settings.mcp_config:
        return project_servers(project)
    path = Path(settings.mcp_config)
    data = project.snapshot.read(path)
    if "mcp_config" in loaded.project_keys and data is not None:
        return parse_mcp_servers(data, project.environ, path, was_shown=project.was_shown)
    # A person named this file. If it still belongs to the project, it cannot trust servers.
    is_own = not path.resolve().is_relative_to(project.snapshot.root)
    return read_mcp_servers(path=path, own=is_own, environ=project.environ)


def build_toolbox(
    loaded: LoadedSettings,
    folder: Path,
    project: ProjectFolder,
    extra_tools: list[Tool[..., Any]] | None = None,
) -> Toolbox:
    """The tools that the settings ask for: by profile, or by patterns over their names."""
    settings = loaded.settings
    if settings.tools == ("none",):
        return Toolbox(())
    tools = [*_build_core_tools(loaded, folder, project), *(extra_tools or ())]
    for file in settings.tool_files:  # Secrets that a person has declared are in the environment.
        tools += load_tools(file, secrets=project.environ.get)
    if settings.browser != "off":
        tools += browser_tools(sandbox=settings.browser == "on")
    if settings.web_search:
        tools.append(web_search_tool(settings.web_search, environ=project.environ))
    if project.is_trusted and len(skills := project.snapshot.load_skills()):
        tools.append(tool(skills.skill, effect="read"))
    if "read-only" in settings.tools:
        tools = [each for each in tools if each.spec.effect == "read"]
    patterns = [word for word in settings.tools if word not in TOOL_PROFILES]
    excluded = tuple(word[1:] for word in patterns if word.startswith("-"))
    included = [word for word in patterns if not word.startswith("-")]
    if included:
        # A long result is cut, and `read_artifact` reads the rest: every choice of tools needs it.
        included.append("read_artifact*")
    return Toolbox(tools, profile=Profile(include=tuple(included or ["*"]), exclude=excluded))


def _build_core_tools(
    loaded: LoadedSettings, folder: Path, project: ProjectFolder
) -> tuple[Tool[..., Any], ...]:
    settings = loaded.settings
    # The folder is the person's own, and strangers wrote some of it: after a look at it, the flow
    # guard asks before anything is sent out.
    sandbox = Sandbox(
        require="bubblewrap" if settings.sandbox == "require" else None,
        # The folder may be the home folder: settings, sessions and keys are then inside it.
        hidden=hide_own_files(folder),
        protected=tuple(map(Path, named_files(loaded))),
    )
    return core_tools(
        folder,
        private=True,
        untrusted=True,
        sandbox=sandbox,
        environ=project.environ,
        interpreter=settings.interpreter,
    )


def build_instructions(settings: Settings, toolbox: Toolbox, project: ProjectFolder) -> str:
    """The system prompt: the settings' or our default, then AGENTS.md, then the skills.

    What the project says is left out unless the project is trusted: it steers an agent.
    """
    own = settings.instructions or TOOLLESS_INSTRUCTIONS
    if toolbox.specs and not settings.instructions:
        own = DEFAULT_INSTRUCTIONS
    if not project.is_trusted:
        return own
    skills = ""
    # The settings may leave the tool out, and then a list of skills would be of no use.
    if any(spec.name == "skill" for spec in toolbox.specs):
        skills = project.snapshot.load_skills().catalogue
    of_project = project.snapshot.read_instructions()
    return "\n\n".join(part for part in (own, of_project, skills) if part)


class SchemaOutput:
    """An output type made from a JSON Schema. Its values are plain JSON that matches the schema.

    It looks like a pydantic model to the agent, which calls the two methods below.
    """

    schema: JsonSchema

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        return dict(cls.schema.node)

    @classmethod
    def model_validate_json(cls, json_data: str) -> Any:  # noqa: ANN401 - what the schema allows
        """The value of a JSON text; raises ValueError with a message for the model."""
        value = msgspec.json.decode(json_data)
        faults = list(cls.schema.iter_errors(value))
        if faults:
            raise ValueError("; ".join(str(fault.message) for fault in faults[:SCHEMA_FAULTS_MAX]))
        return value


def schema_type(schema: dict[str, Any]) -> type[Any]:
    """The output type for a JSON Schema; raises ConfigError if the schema itself is not valid."""
    return type("SchemaOutput", (SchemaOutput,), {"schema": JsonSchema(schema)})
