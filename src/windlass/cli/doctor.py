"""`windlass doctor`: what this machine can do, and what is missing. Keys are named, never shown."""

import asyncio
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import click

from windlass.cli.exit_codes import FAILED
from windlass.cli.screen import BAD, GOOD, QUIET, TROUBLE, Screen
from windlass.cli.trust import describe_trust
from windlass.core.errors import ConfigError, WindlassError
from windlass.core.phrases import format_count
from windlass.core.session_summary import SessionSummary
from windlass.gates.policy_file import load_policy, parse_policy
from windlass.journals.wording import parse_journal_name
from windlass.models.resolve import can_sign_in
from windlass.models.vendors import load_vendors
from windlass.project.effects import describe_effects
from windlass.project.files import load_settings, parse_mcp_servers, settings_files
from windlass.project.hooks import GATES, list_hooks
from windlass.project.journals import journal_name, open_journal
from windlass.project.layers import LoadedSettings
from windlass.project.local_servers import LocalServer, find_servers, find_small_model
from windlass.project.settings import Settings
from windlass.project.snapshot import MCP_FILE, ProjectSnapshot
from windlass.project.trust import ProjectFolder, open_project
from windlass.tools.shell.sandbox import describe_sandbox, probe_bubblewrap

EXTRA_PACKAGES = {
    "browser": "playwright",
    "cedar": "cedarpy",
    "documents": "docx",
    "knowledge": "pypdf",
    "local": "xllamacpp",
    "mcp": "mcp",
    "otel": "opentelemetry",
    "postgres": "asyncpg",
    "serve": "aiohttp",
}
"""The package that each extra of Windlass installs."""
SESSIONS_MAX = 1_000
MODELS_SHOWN = 4


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """The result of one check."""

    name: str
    text: str
    state: Literal["fine", "missing", "wrong"] = "fine"
    """`missing` is something that a person can do without; only `wrong` is an error."""


@click.command(short_help="Show what this machine can do.")
def doctor() -> None:
    """Check keys (without showing them), servers, sandbox, journal and installed extras.

    The exit code is 1 if something is wrong. Something that is only missing is not an error.
    """
    screen = Screen()
    marks = {
        "fine": (screen.glyphs.yes, GOOD),
        "missing": (screen.glyphs.dot, QUIET),
        "wrong": (screen.glyphs.no, BAD),
    }
    is_wrong = False
    for finding in _collect_findings():
        is_wrong = is_wrong or finding.state == "wrong"
        mark, style = marks[finding.state]
        screen.write_line(finding.text, mark=f"{mark} {finding.name:<12}", mark_style=style)
    if is_wrong:
        screen.write_line("Something is wrong: see above.", TROUBLE)
        sys.exit(FAILED)


def _collect_findings() -> Iterator[DoctorFinding]:
    windlass = _package_version("windlass")
    yield DoctorFinding("windlass", f"{windlass} on Python {platform.python_version()}")
    project = open_project()
    loaded = LoadedSettings(Settings(), {}, {})
    try:
        loaded = load_settings(project=project)
        files = [str(path) for path in settings_files() if path.is_file()]
        yield DoctorFinding("settings", ", ".join(files) or "no settings file: defaults are used")
    except ConfigError as error:
        yield DoctorFinding("settings", str(error), "wrong")
    settings = loaded.settings
    yield from _check_trust(project)
    yield from _check_policies(loaded, project.snapshot)
    # No program of the project is tried, even if only a folder in it is the current one.
    root = project.snapshot.root
    is_sandboxed = not probe_bubblewrap(root=root).fault
    yield _optional("sandbox", describe_sandbox(root), is_there=is_sandboxed)
    yield _check_journal(settings)
    yield from _check_models(settings, project)
    yield from _check_mcp(project)
    yield from _check_hooks(settings)
    for extra, package in EXTRA_PACKAGES.items():
        is_there = find_spec(package) is not None
        text = "installed" if is_there else f"not installed: pip install 'windlass[{extra}]'"
        yield _optional(f"[{extra}]", text, is_there=is_there)


def _optional(name: str, text: str, *, is_there: bool) -> DoctorFinding:
    return DoctorFinding(name, text, "fine" if is_there else "missing")


def _check_trust(project: ProjectFolder) -> Iterator[DoctorFinding]:
    """Whether the project is trusted, and if not, what it would do."""
    is_trusted, text = describe_trust(project)
    yield _optional("trust", text, is_there=is_trusted)
    for problem in project.snapshot.problems:
        yield DoctorFinding("trust", problem, "wrong")
    if not is_trusted:
        for effect in describe_effects(project.snapshot):
            yield DoctorFinding("untrusted", effect, "missing")


def _check_policies(loaded: LoadedSettings, snapshot: ProjectSnapshot) -> Iterator[DoctorFinding]:
    for source in loaded.policies:
        data = snapshot.read(Path(source.path)) if source.by_project else None
        if source.by_project and data is None:
            # The snapshot has refused it, and its problems say why.
            yield DoctorFinding("policy", f"{source.path} cannot be read", "wrong")
            continue
        try:
            if data is None:
                gate = load_policy(source.path)
            else:
                gate = parse_policy(data.decode("utf-8", "replace"), source=source.path)
            yield DoctorFinding("policy", f"{source.path}: {len(gate.rules)} rules")
        except ConfigError as error:
            yield DoctorFinding("policy", str(error), "wrong")


def _check_journal(settings: Settings) -> DoctorFinding:
    try:
        found, shown = asyncio.run(_list_sessions(journal_name(settings)))
    except (OSError, WindlassError) as error:
        return DoctorFinding("journal", f"cannot be used: {error}", "wrong")
    unfinished = sum(summary.outcome is None for summary in found)
    counts = f"{format_count(len(found), 'session')}, {unfinished} unfinished"
    if parse_journal_name(shown).kind == "sqlite":
        counts += f"; SQLite {_package_version('apsw')}"
    return DoctorFinding("journal", f"{shown}: {counts}")


async def _list_sessions(name: str) -> tuple[list[SessionSummary], str]:
    """The latest sessions of a journal, and how the journal is named to people."""
    async with open_journal(name) as journal:
        return await journal.sessions(limit=SESSIONS_MAX), journal.name


def _check_models(settings: Settings, project: ProjectFolder) -> Iterator[DoctorFinding]:
    environ = project.environ
    if settings.model:
        yield DoctorFinding("model", f"{settings.model} is set")
    for name, vendor in load_vendors().items():
        if vendor.key_env and not vendor.keyless:
            is_set = bool(environ.get(vendor.key_env))
            text = f"{vendor.key_env} {'is set' if is_set else 'is not set'}"
            if not is_set and can_sign_in(name, environ):
                is_set = True
                text = "there are credentials of the cloud"
            yield _optional(name, text, is_there=is_set)
    for server in asyncio.run(find_servers()):
        yield DoctorFinding(server.vendor, describe_server(server))
    small_model = find_small_model(environ, project.weights)
    if small_model is not None:
        yield DoctorFinding("local", f"{small_model} can be run: a very small model")


def describe_server(server: LocalServer) -> str:
    """Where a server answers, and the first models that it has loaded."""
    models = ", ".join(server.models[:MODELS_SHOWN]) or "no model loaded"
    return f"answers on port {server.port}: {models}"


def _check_hooks(settings: Settings) -> Iterator[DoctorFinding]:
    """What installed packages would observe or forbid, and whether a person wants it."""
    installed = list_hooks()
    for hook in installed:
        kind = "gate" if hook.group == GATES else "observer"
        is_used = hook.name in settings.hooks
        use = "used" if is_used else f'not used: windlass config set --user hooks "{hook.name}"'
        yield _optional("hook", f"{hook.name}, a {kind} of {hook.package}: {use}", is_there=is_used)
    for name in settings.hooks:
        if name not in [hook.name for hook in installed]:
            yield DoctorFinding("hook", f"{name} is set, and no package brings it", "wrong")


def _check_mcp(project: ProjectFolder) -> Iterator[DoctorFinding]:
    path = project.snapshot.folder / MCP_FILE
    data = project.snapshot.read(path)
    if data is None:
        return
    try:
        found = parse_mcp_servers(data, project.environ, path)
    except ConfigError as error:
        yield DoctorFinding("mcp", str(error), "wrong")
        return
    if found and project.is_trusted:
        names = ", ".join(server.name for server in found)
        yield DoctorFinding("mcp", f"{names}. To test them: windlass mcp test")


def _package_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed as a package)"
