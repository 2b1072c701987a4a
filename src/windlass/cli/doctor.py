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
from windlass.environ import read_environment
from windlass.gates.policy_file import load_policy
from windlass.models.vendors import load_vendors
from windlass.project.files import load_settings, read_mcp_servers, settings_files
from windlass.project.local_servers import find_servers, find_small_model
from windlass.project.settings import Settings
from windlass.tools.shell.sandbox import describe_sandbox, probe_bubblewrap

EXTRA_PACKAGES = {
    "cedar": "cedarpy",
    "knowledge": "pypdf",
    "local": "xllamacpp",
    "mcp": "mcp",
    "otel": "opentelemetry",
    "postgres": "asyncpg",
}
"""The package that each extra brings."""


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One thing that was looked at."""

    name: str
    text: str
    state: str = "fine"
    """`fine`, `missing` (one may do without), or `wrong`."""


@click.command(short_help="Say what this machine can do.")
def doctor() -> None:
    """Check keys (without showing them), servers, the sandbox, the journal and what is installed.

    The exit code is 1 if something is wrong; what is only missing is no fault.
    """
    screen, wrong = Screen(), False
    for finding in _collect_findings():
        wrong = wrong or finding.state == "wrong"
        mark, style = {
            "fine": (screen.glyphs.yes, GOOD),
            "missing": (screen.glyphs.dot, QUIET),
            "wrong": (screen.glyphs.no, BAD),
        }[finding.state]
        screen.write_line(finding.text, mark=f"{mark} {finding.name:<12}", mark_style=style)
    if wrong:
        screen.write_line("Something is wrong: see above.", TROUBLE)
        sys.exit(FAILED)


def _collect_findings() -> Iterator[DoctorFinding]:
    yield DoctorFinding(
        "windlass", f"{_package_version('windlass')} on Python {platform.python_version()}"
    )
    try:
        given = load_settings().settings
        files = [str(path) for path in settings_files() if path.is_file()]
        yield DoctorFinding("settings", ", ".join(files) or "no file: the defaults hold")
    except ConfigError as error:
        given = Settings()
        yield DoctorFinding("settings", str(error), "wrong")
    yield from _check_policy(given)
    sandboxed = not probe_bubblewrap().fault
    yield DoctorFinding("sandbox", describe_sandbox(), "fine" if sandboxed else "missing")
    yield _check_journal(given)
    yield from _check_models(given)
    yield from _check_mcp()
    for extra, package in EXTRA_PACKAGES.items():
        there = find_spec(package) is not None
        told = "installed" if there else f"not installed: pip install 'windlass[{extra}]'"
        yield DoctorFinding(f"[{extra}]", told, "fine" if there else "missing")


def _check_policy(given: Settings) -> Iterator[DoctorFinding]:
    if not given.policy:
        return
    try:
        gate = load_policy(given.policy)
        yield DoctorFinding("policy", f"{given.policy}: {len(gate.rules)} rules")
    except ConfigError as error:
        yield DoctorFinding("policy", str(error), "wrong")


def _check_journal(given: Settings) -> DoctorFinding:
    try:
        with open_journal(given) as journal:
            found = asyncio.run(journal.sessions(limit=1_000))
            open_runs = sum(one.outcome is None for one in found)
            told = f"{len(found)} sessions, {open_runs} unfinished"
            return DoctorFinding(
                "journal", f"{journal.path}: {told}; SQLite {_package_version('apsw')}"
            )
    except (OSError, WindlassError) as error:
        return DoctorFinding("journal", f"cannot be written: {error}", "wrong")


def _check_models(given: Settings) -> Iterator[DoctorFinding]:
    environ = read_environment()
    if given.model:
        yield DoctorFinding("model", f"{given.model} is set")
    for name, vendor in load_vendors().items():
        if vendor.key_env and not vendor.keyless:
            there = bool(environ.get(vendor.key_env))
            told = f"{vendor.key_env} {'is set' if there else 'is not set'}"
            yield DoctorFinding(name, told, "fine" if there else "missing")
    for server in asyncio.run(find_servers()):
        listed = ", ".join(server.models[:4]) or "no model loaded"
        yield DoctorFinding(server.vendor, f"answers on port {server.port}: {listed}")
    small = find_small_model(environ, Path.cwd())
    if small is not None:
        yield DoctorFinding("local", f"{small} can be run: a very small model")


def _check_mcp() -> Iterator[DoctorFinding]:
    try:
        found = read_mcp_servers()
    except ConfigError as error:
        yield DoctorFinding("mcp", str(error), "wrong")
        return
    if found:
        names = ", ".join(server.name for server in found)
        yield DoctorFinding("mcp", f"{names}. To try them: windlass mcp test")


def _package_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed as a package)"
