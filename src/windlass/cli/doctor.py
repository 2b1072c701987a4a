"""`windlass doctor`: what this machine can do, and what is missing. Keys are named, never shown."""

import asyncio
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import click

from windlass.cli.command_context import open_journal
from windlass.cli.exit_codes import FAILED
from windlass.cli.renderer import BAD, GOOD, QUIET, TROUBLE
from windlass.cli.screen import Screen
from windlass.core.errors import ConfigError, WindlassError
from windlass.environ import environment
from windlass.gates.policy_file import load_policy
from windlass.models.vendors import vendors
from windlass.project.files import mcp_servers, settings, settings_files
from windlass.project.local_servers import answering, small_model
from windlass.project.settings import Settings
from windlass.tools.shell.sandbox import bubblewrap, describe

EXTRAS = {
    "cedar": "cedarpy",
    "knowledge": "pypdf",
    "local": "xllamacpp",
    "mcp": "mcp",
    "otel": "opentelemetry",
    "postgres": "asyncpg",
}
"""The package that each extra brings."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    name: str
    told: str
    state: str = "fine"
    """`fine`, `missing` (one may do without), or `wrong`."""


@click.command(short_help="Say what this machine can do.")
def doctor() -> None:
    """Check keys (without showing them), servers, the sandbox, the journal and what is installed.

    The exit code is 1 if something is wrong; what is only missing is no fault.
    """
    screen, wrong = Screen(), False
    for finding in _findings():
        wrong = wrong or finding.state == "wrong"
        mark, style = {
            "fine": (screen.glyphs.yes, GOOD),
            "missing": (screen.glyphs.dot, QUIET),
            "wrong": (screen.glyphs.no, BAD),
        }[finding.state]
        screen.line(finding.told, mark=f"{mark} {finding.name:<12}", marked=style)
    if wrong:
        screen.line("Something is wrong: see above.", TROUBLE)
        sys.exit(FAILED)


def _findings() -> Iterator[Finding]:
    yield Finding("windlass", f"{_version('windlass')} on Python {platform.python_version()}")
    try:
        given = settings().settings
        files = [str(path) for path in settings_files() if path.is_file()]
        yield Finding("settings", ", ".join(files) or "no file: the defaults hold")
    except ConfigError as error:
        given = Settings()
        yield Finding("settings", str(error), "wrong")
    yield from _policy(given)
    sandboxed = not bubblewrap().fault
    yield Finding("sandbox", describe(), "fine" if sandboxed else "missing")
    yield _journal(given)
    yield from _models(given)
    yield from _mcp()
    for extra, package in EXTRAS.items():
        there = find_spec(package) is not None
        told = "installed" if there else f"not installed: pip install 'windlass[{extra}]'"
        yield Finding(f"[{extra}]", told, "fine" if there else "missing")


def _policy(given: Settings) -> Iterator[Finding]:
    if not given.policy:
        return
    try:
        gate = load_policy(given.policy)
        yield Finding("policy", f"{given.policy}: {len(gate.rules)} rules")
    except ConfigError as error:
        yield Finding("policy", str(error), "wrong")


def _journal(given: Settings) -> Finding:
    try:
        with open_journal(given) as journal:
            found = asyncio.run(journal.sessions(limit=1_000))
            open_runs = sum(one.outcome is None for one in found)
            told = f"{len(found)} sessions, {open_runs} unfinished"
            return Finding("journal", f"{journal.path}: {told}; SQLite {_version('apsw')}")
    except (OSError, WindlassError) as error:
        return Finding("journal", f"cannot be written: {error}", "wrong")


def _models(given: Settings) -> Iterator[Finding]:
    environ = environment()
    if given.model:
        yield Finding("model", f"{given.model} is set")
    for name, vendor in vendors().items():
        if vendor.key_env and not vendor.keyless:
            there = bool(environ.get(vendor.key_env))
            told = f"{vendor.key_env} {'is set' if there else 'is not set'}"
            yield Finding(name, told, "fine" if there else "missing")
    for server in asyncio.run(answering()):
        listed = ", ".join(server.models[:4]) or "no model loaded"
        yield Finding(server.vendor, f"answers on port {server.port}: {listed}")
    small = small_model(environ, Path.cwd())
    if small is not None:
        yield Finding("local", f"{small} can be run: a very small model")


def _mcp() -> Iterator[Finding]:
    try:
        found = mcp_servers()
    except ConfigError as error:
        yield Finding("mcp", str(error), "wrong")
        return
    if found:
        names = ", ".join(server.name for server in found)
        yield Finding("mcp", f"{names}. To try them: windlass mcp test")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed as a package)"
