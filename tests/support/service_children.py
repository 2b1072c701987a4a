"""Services in processes of their own, which the tests of schedules and webhooks kill."""

import asyncio
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from postgres import dsn_of

SUPPORT = Path(__file__).parent


class ServiceChildren:
    """The processes that a test has started."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[str]] = []

    def open(self, script: str, *words: object) -> subprocess.Popen[str]:
        """Start a script of this folder."""
        command = [sys.executable, str(SUPPORT / script), *map(str, words)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._started.append(child)
        return child

    async def start(self, script: str, *words: object) -> subprocess.Popen[str]:
        """Start a script, and wait until it says that it is ready."""
        child = self.open(script, *words)
        assert child.stdout is not None
        line = await asyncio.to_thread(child.stdout.readline)
        assert line == "ready\n", child.communicate()[1]
        return child

    def end(self) -> None:
        for child in self._started:
            child.kill()
            child.communicate()


@pytest.fixture
def children() -> Generator[ServiceChildren]:
    """Import it into a test module that starts services."""
    started = ServiceChildren()
    yield started
    started.end()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The journal that the services of a test share."""
    return str(tmp_path / "journal.db") if request.param == "sqlite" else dsn_of(tmp_path)


async def close_journal(journal: Any) -> None:
    if hasattr(journal, "aclose"):
        await journal.aclose()
    else:
        journal.close()
