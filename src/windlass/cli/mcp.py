"""`windlass mcp`: the MCP servers of this project, in its `.mcp.json`."""

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

import click
import msgspec
from typing_extensions import override

from windlass.cli.exit_codes import FAILED
from windlass.cli.renderer import BAD, GOOD, QUIET
from windlass.cli.screen import Screen
from windlass.cli.slash_commands import show_tools
from windlass.core.errors import ConfigError, NothingToDo
from windlass.core.suggestions import suggest_names
from windlass.environ import read_environment
from windlass.project.files import read_mcp_servers
from windlass.tools.mcp.config import McpHttp, McpStdio, mcp_settings
from windlass.tools.mcp.servers import McpServers

MCP_FILE = ".mcp.json"
PAIR_METAVAR = "NAME=VALUE"


@click.group()
def mcp() -> None:
    """Add, list, remove and try the MCP servers of this project (.mcp.json)."""


@mcp.command(
    epilog="""\b
Examples:
  windlass mcp add files npx -y @modelcontextprotocol/server-filesystem .
  windlass mcp add -e TOKEN='${TOKEN}' tickets uvx tickets-mcp
  windlass mcp add docs https://docs.example.com/mcp -H "Authorization=Bearer ${KEY}"
Write keys as '${NAME}': they are taken from the environment, and not written down.""",
    context_settings={"ignore_unknown_options": True},
)
@click.argument("name")
@click.argument("target")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("-e", "--env", metavar=PAIR_METAVAR, multiple=True, help="A variable for the server.")
@click.option(
    "-H", "--header", metavar=PAIR_METAVAR, multiple=True, help="A header for its address."
)
@click.option("--replace", is_flag=True, help="In place of one of the same name.")
def add(
    name: str,
    target: str,
    args: tuple[str, ...],
    env: tuple[str, ...],
    header: tuple[str, ...],
    replace: bool,
) -> None:
    """Add a server: TARGET is the command that starts it, or its address."""
    servers = _read_servers()
    if name in servers and not replace:
        raise ConfigError(f"there is a server {name!r} already: --replace, or another name")
    if target.startswith(("http://", "https://")):
        entry: dict[str, Any] = {"type": "http", "url": target}
        if header:
            entry["headers"] = _parse_pairs(header, "--header")
    else:
        entry = {"command": target, "args": list(args)}
        if env:
            entry["env"] = _parse_pairs(env, "--env")
    _write_servers({**servers, name: entry})
    click.echo(f"{MCP_FILE}: {name} added. To try it: windlass mcp test {name}")


@mcp.command(name="list")
def list_() -> None:
    """List the servers."""
    screen, found = Screen(), _read_servers()
    for name, entry in found.items():
        screen.write_line(_describe_target(entry), mark=f"{name:<16}", mark_style=GOOD)
    if not found:
        screen.write_line("No MCP servers here. Add one: windlass mcp add NAME COMMAND …", QUIET)


@mcp.command()
@click.argument("name")
def remove(name: str) -> None:
    """Remove a server."""
    servers = _read_servers()
    if name not in servers:
        raise NothingToDo(f"there is no server {name!r}.{suggest_names(name, servers)}")
    del servers[name]
    _write_servers(servers)
    click.echo(f"{MCP_FILE}: {name} removed")


@mcp.command()
@click.argument("name", required=False)
def test(name: str | None) -> None:
    """Connect to a server, or to all, and list what it offers."""
    found = [one for one in read_mcp_servers() if name in (None, one.name)]
    if not found:
        near = suggest_names(name, [one.name for one in read_mcp_servers()]) if name else ""
        raise NothingToDo(f"there is no server {name or ''}.{near}".replace(" .", "."))
    if not asyncio.run(_test_servers(found)):
        raise click.exceptions.Exit(FAILED)


async def _test_servers(servers: list[McpStdio | McpHttp]) -> bool:
    screen, sound = Screen(), True
    for settings in servers:
        try:
            async with McpServers([settings]) as opened:
                tools = await opened.tools()
        except ConfigError as error:
            screen.write_line(f"{settings.name}: {error}", BAD, mark=screen.glyphs.no)
            sound = False
            continue
        told = f"{settings.name}: {len(tools)} tools"
        screen.write_line(told, mark=screen.glyphs.yes, mark_style=GOOD)
        show_tools(screen, [tool.spec for tool in tools])
    return sound


def _describe_target(entry: dict[str, Any]) -> str:
    """Where a server is, as it is written: with the names of its variables."""
    return str(
        entry.get("url") or " ".join(map(str, (entry.get("command"), *entry.get("args", []))))
    )


def _read_servers() -> dict[str, Any]:
    """The file's servers as they are written, with what they take from the environment."""
    path = Path(MCP_FILE)
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{MCP_FILE} cannot be read: {error}") from None
    try:
        return dict(msgspec.json.decode(text, type=dict[str, dict[str, Any]])["mcpServers"])
    except (msgspec.MsgspecError, KeyError):
        raise ConfigError(f"{MCP_FILE} is not the usual mcpServers JSON: mend it first") from None


def _write_servers(servers: dict[str, Any]) -> None:
    """Write the file, all or nothing; what could not be read back is not written."""
    text = msgspec.json.format(msgspec.json.encode({"mcpServers": servers}), indent=2).decode()
    # A variable that is not set here may be set where the server is used.
    mcp_settings(text, _AnyEnvironment(read_environment()), source=MCP_FILE)
    try:
        with tempfile.NamedTemporaryFile("w", dir=".", delete=False, encoding="utf-8") as file:
            file.write(text + "\n")
        Path(file.name).chmod(0o644)
        os.replace(file.name, MCP_FILE)  # noqa: PTH105 - at once
    except OSError as error:
        raise ConfigError(f"{MCP_FILE} cannot be written: {error.strerror}") from None


class _AnyEnvironment(dict[str, str]):
    """An environment in which every variable is set."""

    @override
    def __contains__(self, name: object) -> bool:
        return True

    @override
    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name, f"${name}")

    def __missing__(self, name: str) -> str:
        return f"${name}"


def _parse_pairs(given: tuple[str, ...], option: str) -> dict[str, str]:
    pairs = [one.partition("=") for one in given]
    if not all(name and sign for name, sign, _ in pairs):
        raise ConfigError(f"{option} takes {PAIR_METAVAR}")
    return {name: value for name, _, value in pairs}
