"""`windlass mcp`: the MCP servers of this project, in its `.mcp.json`; and agents as one."""

import asyncio
import sys
import webbrowser
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from windlass.cli.agent_source import AgentSource
from windlass.cli.exit_codes import FAILED
from windlass.cli.options import agent_options, collect_flags, limit_options
from windlass.cli.screen import BAD, GOOD, QUIET, TROUBLE, Screen
from windlass.cli.tools import show_tools
from windlass.cli.trust import describe_trust, open_trusted, trust_option
from windlass.core.errors import ConfigError, FolderNotTrusted, NothingToDo
from windlass.core.suggestions import suggest_names
from windlass.core.text_clip import printable_line, reveal_line
from windlass.environ import read_process_environment
from windlass.project.agents import configured_servers
from windlass.project.file_edits import read_mcp_entries, write_mcp_entries
from windlass.project.files import load_settings, project_servers
from windlass.project.mcp_tokens import SecretTokens
from windlass.project.server_scripts import server_command
from windlass.project.snapshot import MCP_FILE
from windlass.project.trust import ProjectFolder, explain_no_trust, keep_trust, open_project
from windlass.server import mcp as mcp_server
from windlass.tools.mcp.config import McpHttp, McpStdio
from windlass.tools.mcp.http import build_keeper
from windlass.tools.mcp.oauth.settings import McpCredentials
from windlass.tools.mcp.servers import McpServers

PAIR_METAVAR = "NAME=VALUE"

_config_option = click.option(
    "--mcp-config", metavar="FILE", help="MCP servers (mcpServers JSON), instead of .mcp.json."
)


@click.group()
def mcp() -> None:
    """Add, list, remove, test and sign in at MCP servers (.mcp.json); serve agents."""


@mcp.command(
    epilog="""\b
Examples:
  windlass mcp add files npx -y @modelcontextprotocol/server-filesystem .
  windlass mcp add -e TOKEN='${TOKEN}' tickets uvx tickets-mcp
  windlass mcp add docs https://docs.example.com/mcp -H "Authorization=Bearer ${KEY}"
Write keys as '${NAME}': they are read from the environment, and not written to the file.""",
    context_settings={"ignore_unknown_options": True},
)
@click.argument("name")
@click.argument("target")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "-e",
    "--env",
    metavar=PAIR_METAVAR,
    multiple=True,
    help="An environment variable for the server.",
)
@click.option(
    "-H",
    "--header",
    metavar=PAIR_METAVAR,
    multiple=True,
    help="A header for its URL; repeatable.",
)
@click.option("--replace", is_flag=True, help="Replace a server with the same name.")
def add(
    name: str,
    target: str,
    args: tuple[str, ...],
    env: tuple[str, ...],
    header: tuple[str, ...],
    replace: bool,
) -> None:
    """Add a server. TARGET is the command that starts it, or its URL."""
    servers = read_mcp_entries()
    if name in servers and not replace:
        raise ConfigError(f"there is already a server {name!r}: use --replace, or another name")
    if target.startswith(("http://", "https://")):
        entry: dict[str, Any] = {"type": "http", "url": target}
        if header:
            entry["headers"] = _parse_pairs(header, "--header")
    else:
        entry = {"command": target, "args": list(args)}
        if env:
            entry["env"] = _parse_pairs(env, "--env")
    with keep_trust(Path(MCP_FILE)):
        write_mcp_entries({**servers, name: entry})
    click.echo(f"{MCP_FILE}: {name} added. To test it: windlass mcp test {name}")


@mcp.command(name="list")
def list_() -> None:
    """List the servers."""
    screen = Screen()
    found = read_mcp_entries()
    for name, entry in found.items():
        # The file is the project's, and its names are written to the terminal as they are.
        mark = f"{printable_line(name):<16}"
        # As it is written, with `${NAME}` unexpanded.
        target = str(entry.get("url") or " ".join(server_command(entry)))
        screen.write_line(reveal_line(target), mark=mark, mark_style=GOOD)
    if not found:
        screen.write_line("No MCP servers. To add one: windlass mcp add NAME COMMAND …", QUIET)
        return
    is_trusted, note = describe_trust(open_project())
    if not is_trusted:
        screen.write_line(f"None of them is used: {note}", TROUBLE, mark=screen.glyphs.trouble)


@mcp.command(
    epilog="""\b
Examples, as the settings of a client would have them:
  windlass mcp serve                   the agents of this folder
  windlass mcp serve app:agents        agents that app.py makes"""
)
@click.argument("target", required=False, metavar="[MODULE:NAME]")
@click.option(
    "--journal",
    metavar="NAME",
    help="Where the sessions are kept: a path or postgresql://…; by default, as the settings say.",
)
@agent_options
@limit_options
def serve(target: str | None, journal: str | None, **given: Any) -> None:  # noqa: ANN401 - the flags of click
    """Serve agents as MCP tools, over standard input and output.

    A client starts this command. Each agent is a tool. A run stays open in the journal if the
    client disconnects. Over HTTP, `windlass serve` has the same tools at /mcp.
    """
    if find_spec("mcp") is None:
        raise ConfigError("windlass mcp serve needs an extra: pip install 'windlass[mcp]'")
    source = AgentSource(target, journal, given, quiet=True)

    async def run() -> None:
        if source.service is not None:
            await mcp_server.serve_stdio(source.service)
            return
        async with source.open() as opened:
            await mcp_server.serve_stdio(opened.make_service())

    asyncio.run(run())


@mcp.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove a server."""
    servers = read_mcp_entries()
    if name not in servers:
        raise NothingToDo(f"there is no server {name!r}.{suggest_names(name, servers)}")
    del servers[name]
    with keep_trust(Path(MCP_FILE)):
        write_mcp_entries(servers)
    click.echo(f"{MCP_FILE}: {name} removed")


@mcp.command()
@click.argument("name", required=False)
@trust_option
def test(name: str | None, trust: bool | None) -> None:
    """Connect to a server, or to all of them, and list their tools."""
    project = open_trusted(trust=trust)
    if not project.is_trusted:
        raise FolderNotTrusted(explain_no_trust(project.snapshot))
    servers = project_servers(project)
    found = [server for server in servers if name in (None, server.name)]
    if not found and name is None:
        raise NothingToDo(f"there are no servers in {MCP_FILE}")
    if not found:
        hint = suggest_names(name or "", [server.name for server in servers])
        raise NothingToDo(f"there is no server {name!r}.{hint}")
    if not asyncio.run(_test_servers(found, SecretTokens(project.secrets))):
        raise click.exceptions.Exit(FAILED)


@mcp.command(
    epilog="""\b
Examples:
  windlass mcp login tickets
  windlass mcp login tickets --scope "read write"
  windlass mcp login tickets --no-browser      over ssh, with -L PORT:127.0.0.1:PORT"""
)
@click.argument("name")
@click.option("--scope", default="", help="Scopes to request in addition to its own.")
@click.option("--no-browser", is_flag=True, help="Print the address instead of opening a browser.")
@_config_option
@trust_option
def login(
    name: str, scope: str, no_browser: bool, mcp_config: str | None, trust: bool | None
) -> None:
    """Sign in at a server that wants a person to (OAuth), in a browser on this machine.

    The token is kept among your secrets, and renewed as long as the server allows it.
    """
    server, project = _find_http_server(name, mcp_config, trust=trust)
    try:
        project.secrets.require_keyring()
    except ConfigError as error:
        raise ConfigError(f"a sign-in is kept among your secrets: {error}") from None
    tokens = SecretTokens(project.secrets)
    keeper = build_keeper(server, tokens, _PageOpener(opens_browser=not no_browser))
    if keeper is None or isinstance(server.auth, McpCredentials):
        raise NothingToDo(
            f"the settings of {name!r} have what the server asks for: no sign-in is needed"
        )
    asyncio.run(keeper.sign_in(server.headers, scope))
    click.echo(f"You are signed in at {printable_line(name)}.")
    if not asyncio.run(_test_servers([server], tokens)):
        raise click.exceptions.Exit(FAILED)


@mcp.command()
@click.argument("name")
@_config_option
@trust_option
def logout(name: str, mcp_config: str | None, trust: bool | None) -> None:
    """Sign out of a server: forget its token, and tell the server that gave it."""
    server, project = _find_http_server(name, mcp_config, trust=trust)
    keeper = build_keeper(server, SecretTokens(project.secrets), None)
    if keeper is None or not asyncio.run(keeper.sign_out()):
        raise NothingToDo(f"you are not signed in at {name!r}")
    click.echo(f"You are signed out of {printable_line(name)}.")


def _find_http_server(
    name: str, mcp_config: str | None, *, trust: bool | None
) -> tuple[McpHttp, ProjectFolder]:
    """Return a server by its name, from the settings or the project, and the project."""
    project = open_trusted(trust=trust)
    if not project.is_trusted:
        raise FolderNotTrusted(explain_no_trust(project.snapshot))
    loaded = load_settings(collect_flags({"mcp_config": mcp_config}), project=project)
    found = {
        server.name: server
        for server in (*project_servers(project), *configured_servers(loaded, project))
    }
    server = found.get(name)
    if server is None:
        raise NothingToDo(f"there is no server {name!r}.{suggest_names(name, found)}")
    if not isinstance(server, McpHttp):
        raise NothingToDo(f"{name!r} is a program on this machine and needs no sign-in")
    return server, project


class _PageOpener:
    """Shows the address at which to sign in, and opens it in the browser of the desktop."""

    def __init__(self, *, opens_browser: bool) -> None:
        environ = read_process_environment()
        has_desktop = sys.platform in ("darwin", "win32") or any(
            environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
        )
        # Without a desktop, a browser for terminals would take this one.
        self._opens_browser = opens_browser and has_desktop

    async def __call__(self, address: str) -> None:
        click.echo(f"Sign in at this address, in a browser on this machine:\n\n  {address}\n")
        if self._opens_browser:
            await asyncio.to_thread(webbrowser.open, address)


async def _test_servers(
    servers: list[McpStdio | McpHttp], tokens: SecretTokens | None = None
) -> bool:
    """Whether all servers could be reached."""
    screen = Screen()
    all_reached = True
    for server in servers:
        try:
            async with McpServers([server], tokens=tokens) as opened:
                tools = await opened.tools()
        except ConfigError as error:
            screen.write_line(f"{server.name}: {error}", BAD, mark=screen.glyphs.no)
            all_reached = False
            continue
        line = f"{server.name}: {len(tools)} tools"
        screen.write_line(line, mark=screen.glyphs.yes, mark_style=GOOD)
        show_tools(screen, [tool.spec for tool in tools])
    return all_reached


def _parse_pairs(given: tuple[str, ...], option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for pair in given:
        name, sign, value = pair.partition("=")
        if not name or not sign:
            raise ConfigError(f"{option} takes {PAIR_METAVAR}")
        pairs[name] = value
    return pairs
