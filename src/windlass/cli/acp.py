"""`windlass acp`: the agent of an editor that speaks the Agent Client Protocol."""

import asyncio
import sys
from importlib.util import find_spec
from typing import Any

import click

from windlass.cli.options import agent_options, collect_flags, limit_options
from windlass.core.errors import ConfigError
from windlass.server import acp as acp_server


@click.command(
    epilog="""\b
Examples, as an editor's settings would have them:
  windlass acp
  windlass acp -m anthropic:claude-sonnet-4-5 --max-usd 2
  windlass acp --no-trust          work in any folder, without the settings of its project"""
)
@agent_options
@limit_options
@click.option(
    "--journal",
    metavar="NAME",
    help="Where the sessions are kept: a path or postgresql://…; by default, as the settings say.",
)
def acp(
    trust: bool | None,
    **given: Any,  # noqa: ANN401 - the shared options, by name
) -> None:
    """Serve an editor over standard input and output (Agent Client Protocol).

    The editor starts this command and shows its sessions, which are those of the terminal. A run
    stays open in the journal if the editor dies: load the session again, or use `windlass resume`.
    A folder with settings of its own must be trusted first: `windlass trust`.
    """
    if find_spec("acp") is None:
        raise ConfigError("windlass acp needs an extra: pip install 'windlass[acp]'")
    if trust:
        raise ConfigError(
            "--trust would trust every folder that the editor opens. Trust each of them with "
            "windlass trust, or use --no-trust to work without their settings."
        )
    if sys.stdin.isatty():
        raise ConfigError(
            "windlass acp talks to an editor, not to a person: name it as an agent in your "
            "editor's settings. To talk to an agent here: windlass chat"
        )
    flags = collect_flags(given)
    asyncio.run(acp_server.serve_stdio(flags, use_project=trust is None))
