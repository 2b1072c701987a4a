"""Watching a run of another process through a SQLite file and a socket (D11)."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import live_scenes as scenes
from windlass.core.events import StepProposed

pytestmark = [pytest.mark.contract("D11"), pytest.mark.realtime, pytest.mark.slow]


@pytest.fixture
def store(tmp_path: Path) -> scenes.LiveStore:
    return scenes.LiveStore(str(tmp_path / "s.db"), "-")


async def test_text_comes_as_it_streams(store: scenes.LiveStore) -> None:
    """E2, E5."""
    await scenes.watch_from_the_beginning(store)


async def test_who_comes_in_the_middle_misses_nothing(store: scenes.LiveStore) -> None:
    """E5."""
    await scenes.watch_from_the_middle(store)


async def test_who_comes_in_the_middle_sees_a_sub_agent_from_its_beginning(
    store: scenes.LiveStore,
) -> None:
    """E5, D12."""
    await scenes.watch_a_sub_agent_from_the_middle(store)


async def test_a_driver_that_is_killed_leaves_no_gap(store: scenes.LiveStore) -> None:
    """E5, J4."""
    await scenes.watch_across_a_kill(store)


@pytest.mark.parametrize("options", [(), ("impatient",)], ids=["waits", "gives up"])
async def test_a_watcher_that_is_stopped_catches_up(
    store: scenes.LiveStore, options: tuple[str, ...]
) -> None:
    """E4: also if the driver let it go meanwhile."""
    await scenes.stop_the_watcher(store, *options)


async def test_a_flood_does_not_wait_for_a_watcher(store: scenes.LiveStore) -> None:
    """E4."""
    await scenes.flood_a_stopped_watcher(store)


async def test_secrets_are_masked(store: scenes.LiveStore) -> None:
    """G8."""
    await scenes.watch_a_secret(store)


async def test_a_reply_that_is_denied_is_never_sent(store: scenes.LiveStore) -> None:
    """G3."""
    await scenes.watch_a_reply_that_is_denied(store)


async def test_the_command_line_shows_text_as_it_streams(store: scenes.LiveStore) -> None:
    """`windlass watch` in one terminal, while the run goes on in another."""
    path, _ = store.arguments
    command = [sys.executable, "-m", "windlass.cli", "watch", "s", "--journal", path]
    async with store.open() as journal:
        with store.start("drive") as driver:
            await scenes.wait_for_facts(journal, 2)
            with subprocess.Popen(command, stdout=subprocess.PIPE) as watcher:  # noqa: ASYNC220
                assert watcher.stdout is not None
                shown = b""
                while b"word" not in shown:
                    shown += await asyncio.to_thread(os.read, watcher.stdout.fileno(), 65_536)
                recorded = await journal.read("s")
                assert not any(isinstance(fact, StepProposed) for fact in recorded)
                shown += await asyncio.to_thread(watcher.stdout.read)
            driver.process.wait()
    text = f" {' '.join(shown.decode().split())} "
    for word in scenes.TEXT.split():
        assert text.count(f" {word} ") == 1, word
    assert watcher.returncode == 0
