"""The sockets of drivers: private, bounded, and believed by nobody (D11)."""

import asyncio
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from windlass import Agent, TextDelta
from windlass.core.live_batch import FactMark, LiveBatch
from windlass.environ import live_socket_folder
from windlass.journals.live import places, socket_server, socket_watch
from windlass.journals.live.frames import BadFrame, build_frame, decode_batch
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing import ScriptedModel, Trace, pause, say
from windlass.testing.live import LiveDriver, join, receive_from

pytestmark = [pytest.mark.slow, pytest.mark.contract("D11"), pytest.mark.realtime]
WAIT_S = 30.0


@pytest.fixture(autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the sockets, one for each test."""
    state = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    return live_socket_folder()


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    with SqliteJournal(tmp_path / "s.db") as journal:
        yield journal


def names_in(folder: Path) -> list[str]:
    return places.list_sockets(folder)


def connect(folder: Path) -> socket.socket:
    (name,) = names_in(folder)
    connection = places.connect_socket(folder, name)
    assert connection is not None
    connection.settimeout(WAIT_S)
    return connection


async def ended(connection: socket.socket) -> bool:
    """Whether the other end closes the connection."""
    with suppress(ConnectionResetError):
        while await asyncio.to_thread(connection.recv, 65_536):
            pass
    connection.close()
    return True


async def test_only_the_user_can_use_a_socket(journal: SqliteJournal, folder: Path) -> None:
    driver = LiveDriver(journal, "s")
    (name,) = names_in(folder)
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700  # noqa: PTH116
    assert stat.S_IMODE(os.stat(folder / name).st_mode) == 0o600  # noqa: PTH116
    driver.close()


async def test_a_journal_that_is_closed_leaves_no_socket(tmp_path: Path, folder: Path) -> None:
    with SqliteJournal(tmp_path / "s.db") as journal:
        assert not names_in(folder)
        LiveDriver(journal, "s")
        assert names_in(folder)
    assert not names_in(folder)


async def test_the_socket_of_a_dead_process_is_removed(
    journal: SqliteJournal, folder: Path
) -> None:
    """Also one of another journal."""
    places.open_socket_folder(create=True)
    for name in (places.new_socket_name(places.journal_prefix(journal.path)), "other-1-2"):
        with (
            socket.socket(socket.AF_UNIX) as dead,
            places.socket_address(folder, name) as address,
        ):
            dead.bind(address)
        long_ago = time.time() - 60
        os.utime(folder / name, (long_ago, long_ago))
    driver = LiveDriver(journal, "s")
    watching = await join(driver, journal, "s")
    assert len(names_in(folder)) == 1
    watching.close()
    driver.close()


async def test_a_long_path_is_no_obstacle(
    journal: SqliteJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address of a socket may have about a hundred bytes."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ("deep" * 30) / ("deeper" * 30)))
    driver = LiveDriver(journal, "s")
    watching = await join(driver, journal, "s")
    sent = driver.send(FactMark(1))
    assert await receive_from(watching) == sent
    watching.close()
    driver.close()


def block_folder(kind: str, folder: Path, tmp_path: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    if kind == "file":
        folder.touch()
    elif kind == "link":
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")


@pytest.mark.parametrize("kind", ["file", "link", "no sockets"])
async def test_without_a_folder_of_its_own_there_are_facts_only(
    kind: str, journal: SqliteJournal, folder: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    """A run goes on as if nobody could watch it from outside."""
    block_folder(kind, folder, tmp_path)
    if kind == "no sockets":
        monkeypatch.delattr(socket, "AF_UNIX")
    with ScriptedModel([[say("Hi"), pause(0.3)]]) as model:
        running = asyncio.create_task(Agent(model, journal=journal).run("Go.", session="s"))
        while not model.prompts:  # noqa: ASYNC110 - a model tells nobody
            await asyncio.sleep(0.005)
        watcher = Agent(ScriptedModel([]), journal=journal)
        seen = [event async for event in watcher.watch("s")]
        assert (await running).text == "Hi"
    assert seen == list(await journal.read("s"))
    assert not names_in(tmp_path / "elsewhere")


GARBAGE = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\xff" * 100,
    b"\0\0\0\0",
    build_frame(b"{}"),
    build_frame(b"[1, 2"),
    build_frame(b'{"session": 7}'),
    build_frame(b'{"session":"s"}') + build_frame(b'{"session":"another"}'),
    (2**31).to_bytes(4, "big") + b"x" * 1_000,
    build_frame(b'{"session":"' + b"x" * 20_000 + b'"}'),
]


async def test_nonsense_ends_its_connection_and_no_other(
    journal: SqliteJournal, folder: Path
) -> None:
    driver = LiveDriver(journal, "s")
    watching = await join(driver, journal, "s")
    for data in GARBAGE:
        connection = connect(folder)
        with suppress(OSError):
            connection.sendall(data)
        assert await ended(connection)
    sent = driver.send(FactMark(1))
    assert await receive_from(watching) == sent
    watching.close()
    driver.close()


async def test_connections_are_limited(
    journal: SqliteJournal, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_server, "WATCHERS_MAX", 3)
    driver = LiveDriver(journal, "s")
    held = [connect(folder) for _ in range(3)]
    await asyncio.sleep(0.1)
    assert await ended(connect(folder))
    assert len(journal._live._watchers) == 3
    for connection in held:
        connection.close()
    driver.close()


async def test_who_says_nothing_is_let_go(
    journal: SqliteJournal, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interest expires, and the driver hears of it."""
    monkeypatch.setattr(socket_server, "INTEREST_S", 0.2)
    monkeypatch.setattr(socket_server, "SWEEP_S", 0.05)
    driver = LiveDriver(journal, "s")
    silent = connect(folder)
    wanting = connect(folder)
    wanting.sendall(build_frame(b'{"session":"s","asks":true}'))
    await driver.wait_for_interest()
    assert await ended(silent)
    assert await ended(wanting)
    await driver.wait_for_interest(is_wanted=False)
    driver.close()


async def test_who_does_not_read_costs_bounded_memory(
    journal: SqliteJournal, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E4."""
    monkeypatch.setattr(socket_server, "WAITING_BYTES_MAX", 100_000)
    driver = LiveDriver(journal, "s")
    stuck = connect(folder)
    stuck.sendall(build_frame(b'{"session":"s"}'))
    await driver.wait_for_interest()
    most = 0
    for nth in range(2_000):
        driver.send(TextDelta("x" * 3_000, seq=1, nth=nth + 1))
        (watcher,) = journal._live._watchers
        most = max(most, watcher._waiting_bytes)
    assert 0 < most <= 100_000
    stuck.close()
    await driver.wait_for_interest(is_wanted=False)
    driver.close()


BAD_BATCHES = [
    b"",
    b"\xff",
    b'{"driver":"d"}',
    b'{"driver":"d","number":1,"items":[{"type":"Unheard"}]}',
    (
        b'{"driver":"d","number":1,"items":[{"type":"Nested","call_id":"c","agent":"a",'
        b'"session":"s","event":{"type":"No"}}]}'
    ),
    b"[" * 100_000,
]


@pytest.mark.parametrize("body", BAD_BATCHES)
def test_what_is_not_a_batch_is_refused(body: bytes) -> None:
    with pytest.raises(BadFrame):
        decode_batch(body)


@pytest.mark.parametrize("data", [b"\xff" * 8, build_frame(b"nonsense"), build_frame(b"{}") * 99])
async def test_a_driver_that_talks_nonsense_is_left_alone(
    data: bytes, journal: SqliteJournal, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watcher goes on with the facts, and with other drivers."""
    monkeypatch.setattr(socket_watch, "SEARCH_S", 0.02)
    places.open_socket_folder(create=True)
    name = places.new_socket_name(places.journal_prefix(journal.path))
    accepted: list[int] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(1)
        writer.write(data)
        await reader.read()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    with socket.socket(socket.AF_UNIX) as listener:
        with places.socket_address(folder, name) as address:
            listener.bind(address)
        listener.listen()
        async with await asyncio.start_unix_server(talk, sock=listener):
            driver = LiveDriver(journal, "s")
            watching = await join(driver, journal, "s")
            await asyncio.sleep(0.2)
            sent = driver.send(FactMark(1))
            assert await receive_from(watching) == sent
            # Once by the watcher, and once by the driver, which looks for dead ones.
            assert len(accepted) <= 2
            watching.close()
            driver.close()


async def test_a_driver_that_lies_about_places_shows_nothing_out_of_order(
    journal: SqliteJournal,
) -> None:
    """Batches that do not fit the journal lead to facts only."""
    with ScriptedModel([[say("One "), pause(1), say("two.")]]) as model:
        running = asyncio.create_task(Agent(model, journal=journal).run("Go.", session="s"))
        while not model.prompts:  # noqa: ASYNC110 - a model tells nobody
            await asyncio.sleep(0.005)
        liar = journal.open_live("s", lambda _: None)
        watcher = Agent(ScriptedModel([]), journal=journal)

        async def lie() -> None:
            for number in range(1, 30):
                text = TextDelta("lies", seq=number % 5, nth=number)
                items = (FactMark(number % 7), text)
                batch = LiveBatch(
                    driver="l", number=number, items=items, is_snapshot=number % 3 == 0
                )
                liar.send(batch)
                await asyncio.sleep(0.05)

        lying = asyncio.create_task(lie())
        trace = Trace([event async for event in watcher.watch("s")])
        await running
        await lying
        liar.close()
    trace.check()
    assert [event for event in trace.events if not event.nth] == list(await journal.read("s"))


async def test_a_forked_child_does_not_keep_the_socket(
    journal: SqliteJournal, folder: Path
) -> None:
    """A child that outlives its parent would hold up all who connect."""
    driver = LiveDriver(journal, "s")
    before = names_in(folder)
    child = os.fork()
    if not child:
        listener = journal._live._listener
        os._exit(0 if listener is None or listener.fileno() == -1 else 1)
    _, status = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert names_in(folder) == before
    watching = await join(driver, journal, "s")
    watching.close()
    driver.close()
