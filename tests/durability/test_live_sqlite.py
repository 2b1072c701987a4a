"""Watching a run of another process through a SQLite file and a socket (D11)."""

from pathlib import Path

import pytest

import live_scenes as scenes

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
