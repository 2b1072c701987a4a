"""`windlass doctor`: what this machine can do, and what is missing. Keys are named, never shown."""

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from windlass.config import environment
from windlass.core.errors import WindlassError
from windlass.journals.sqlite import SqliteJournal
from windlass.models.vendors import vendors
from windlass.tools.shell.sandbox import describe

EXTRAS = {"mcp": "mcp", "local": "xllamacpp"}
"""The package that each extra brings."""


@click.command(short_help="Say what this machine can do.")
def doctor() -> None:
    """Check keys (without showing them), the sandbox, the journal and what is installed."""
    for name, told in _findings():
        click.echo(f"{name:<12} {told}")


def _findings() -> Iterator[tuple[str, str]]:
    yield "windlass", f"{_version('windlass')} on Python {platform.python_version()}"
    yield "sandbox", describe()
    yield "journal", _journal()
    environ = environment()
    for name, vendor in vendors().items():
        if vendor.key_env and not vendor.keyless:
            told = "is set" if environ.get(vendor.key_env) else "is not set"
            yield f"{name}", f"{vendor.key_env} {told}"
    for extra, package in EXTRAS.items():
        told = (
            "installed" if find_spec(package) else f"not installed: pip install 'windlass[{extra}]'"
        )
        yield f"[{extra}]", told


def _journal() -> str:
    try:
        with TemporaryDirectory() as folder, SqliteJournal(Path(folder) / "try.db"):
            return f"SQLite {_version('apsw')}, can be written"
    except (OSError, WindlassError) as error:
        return f"cannot be written: {error}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed as a package)"
