"""What a project, and a user, may say about the tools of MCP servers."""

import json
from pathlib import Path

import pytest

from windlass.core.errors import ConfigError
from windlass.project.agents import configured_servers, load_agent
from windlass.project.effects import describe_effects
from windlass.project.files import read_mcp_servers
from windlass.project.snapshot import take_snapshot
from windlass.project.trust import TrustStore
from windlass.tools.mcp.config import McpHttp, McpSettings, find_override

TOOLS = {"*": {"effect": "read", "labels": []}}
DEFAULT_LABELS = ("untrusted", "external", "private")


def server_file(**entry: object) -> str:
    server = {"command": "server", "env": {"HOST": "${TICKETS_HOST:-}"}, **entry}
    return json.dumps({"mcpServers": {"it": server}})


def find_server(
    project: Path, flags: dict[str, object] | None = None, *, trust: bool | None = None
) -> McpSettings:
    agent = load_agent({"model": "ollama:m", **(flags or {})}, project, trust=trust)
    (server,) = configured_servers(agent.loaded, agent.project)
    return server


def classify(server: McpSettings) -> tuple[str, tuple[str, ...]]:
    override = find_override(server, "tool")
    assert override is not None
    return override.apply("write", DEFAULT_LABELS)


@pytest.mark.contract("G7")
@pytest.mark.parametrize("by", ["user", "flag", "variable"])
def test_the_users_own_settings_may_trust_the_hints_of_a_server(
    project: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    own = project.parent / "home" / "windlass" / "servers.json"
    own.parent.mkdir()
    own.write_text(server_file(trustHints=True, tools=TOOLS))
    flags: dict[str, object] = {}
    match by:
        case "user":
            (own.parent / "config.toml").write_text('mcp_config = "servers.json"\n')
        case "flag":
            flags = {"mcp_config": str(own)}
        case _:
            monkeypatch.setenv("WINDLASS_MCP_CONFIG", str(own))
    server = find_server(project, flags)
    assert server.trust_hints
    assert classify(server) == ("read", ())
    assert read_mcp_servers(path=own, own=True)[0].trust_hints
    with pytest.raises(ConfigError, match="a file of your own"):
        read_mcp_servers(path=own)


@pytest.mark.contract("G7")
@pytest.mark.parametrize("trust", [True, False])
def test_a_file_of_the_project_trusts_no_server_even_if_the_user_names_it(
    project: Path, *, trust: bool
) -> None:
    (project / "servers.json").write_text(server_file(trustHints=True))
    with pytest.raises(ConfigError, match="a project cannot declare"):
        find_server(project, {"mcp_config": "servers.json"}, trust=trust)
    (project.parent / "link.json").symlink_to(project / "servers.json")
    with pytest.raises(ConfigError, match="a project cannot declare"):
        find_server(project, {"mcp_config": "../link.json"}, trust=trust)


@pytest.mark.contract("G4")
def test_the_users_servers_get_nothing_of_a_project_that_is_not_trusted(project: Path) -> None:
    """A variable in the user's own file is not taken from a stranger's `.env`."""
    (project / ".env").write_text("TICKETS_HOST=evil.example\n")
    own = project.parent / "servers.json"
    own.write_text(
        json.dumps({"mcpServers": {"it": {"url": "https://${TICKETS_HOST:-good.example}/mcp"}}})
    )
    server = find_server(project, {"mcp_config": str(own)}, trust=False)
    assert isinstance(server, McpHttp)
    assert server.url == "https://good.example/mcp"


@pytest.mark.contract("G7")
def test_a_project_loosens_its_tools_only_after_a_person_saw_that(project: Path) -> None:
    (project / ".mcp.json").write_text(server_file(tools=TOOLS))
    unseen = find_server(project, trust=True)
    assert classify(unseen) == ("write", DEFAULT_LABELS)
    lines = list(describe_effects(take_snapshot(project)))
    assert (
        "allows the tools '*' of the MCP server it as read: they are not asked about like writes"
        in lines
    )
    assert any("the labels none instead of untrusted" in line for line in lines)
    TrustStore().remember(take_snapshot(project))
    assert classify(find_server(project)) == ("read", ())
    # Another word about the tools is another file: it is asked about again.
    (project / ".mcp.json").write_text(server_file(tools={"t*": {"effect": "idempotent"}}))
    assert not TrustStore().covers(take_snapshot(project))


@pytest.mark.contract("G7")
def test_a_project_may_always_make_its_tools_stricter(project: Path) -> None:
    (project / ".mcp.json").write_text(
        server_file(tools={"*": {"effect": "write", "labels": ["private"]}})
    )
    override = find_override(find_server(project, trust=True), "tool")
    assert override is not None
    assert override.apply("read", ("untrusted",)) == ("write", ("untrusted", "private"))


@pytest.mark.contract("G7")
def test_a_file_of_servers_that_the_settings_name_is_held_to_the_same(project: Path) -> None:
    (project / "windlass.toml").write_text('mcp_config = "servers.json"\n')
    (project / "servers.json").write_text(server_file(tools=TOOLS))
    assert classify(find_server(project, trust=True)) == ("write", DEFAULT_LABELS)
    assert any("as read" in line for line in describe_effects(take_snapshot(project)))
