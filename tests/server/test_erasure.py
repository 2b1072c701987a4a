"""A caller is erased: no file has anything of it, and a kill in the middle changes nothing."""

import asyncio
import io
import subprocess
import sys
import tarfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from service import DirectClient, RunningService, run_service
from windlass import Agent, FolderStore, tool
from windlass.core.errors import ConfigError
from windlass.core.session_summary import UNFINISHED_STATES
from windlass.gates import ask
from windlass.journals import MemoryJournal, SqliteJournal
from windlass.journals.archive import export_session, import_session
from windlass.server.background import OutsideSettings
from windlass.server.erasure import JOB_KIND, CallerEraser
from windlass.server.messages import StreamReply
from windlass.server.tokens import TokenStore
from windlass.testing import ScriptedModel, call

pytestmark = pytest.mark.contract("A9")
NAME = "quillfeather"
CANARY = "xyzzy-canary-7731"
OUTSIDE = OutsideSettings(public_url="https://agents.example", webhook_hosts=("127.0.0.1",))
HOOK = {"name": "links", "url": f"http://127.0.0.1:9/{CANARY}"}
DAILY = {"name": "daily", "prompt": CANARY, "times": {"type": "cron", "expression": "0 0 1 1 *"}}
SHARED = "data:image/png;base64,c2hhcmVkLWJsb2ItMTIz"


@tool
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


def make_agent(folder: Path | None = None) -> Agent[str]:
    script = [[call("send", {"text": CANARY})], f"Done with {CANARY}."] * 9
    options: dict[str, Any] = {"folders": FolderStore(folder)} if folder is not None else {}
    return Agent(ScriptedModel(script), name="helper", tools=[send], **options)


@asynccontextmanager
async def serve(
    journal: Any, folder: Path | None = None
) -> AsyncGenerator[tuple[RunningService, DirectClient, DirectClient]]:
    """Yield a service, a client of the caller that is to be erased, and an admin."""
    async with run_service(make_agent(folder), journal=journal, outside=OUTSIDE) as running:
        owner = await running.make_client(NAME)
        yield running, owner, await running.make_client("boss", ["admin"])


async def fill(running: RunningService, client: DirectClient) -> None:
    """Make one of everything for a caller."""
    picture = {"type": "image", "media_type": "image/png", "data": SHARED.partition(",")[2]}
    prompt = [{"type": "text", "text": f"Please {CANARY}"}, picture]
    key = {"Idempotency-Key": "k1"}
    for session in ("one", "two"):
        body = {"prompt": prompt, "session": session}
        assert (await client.post("/runs", body)).status == 202
    assert (await client.post("/schedules", DAILY, key)).status == 201
    assert (await client.post("/webhooks", HOOK)).status == 201
    upload = await client.ask("POST", f"/uploads?name={CANARY}.txt", CANARY.encode())
    assert upload.status == 201
    await running.service.agents["helper"].wait_until_idle()


async def wait_for_ends(client: DirectClient, count: int) -> None:
    while True:
        listed = (await client.get("/runs?limit=100")).data["sessions"]
        if sum(each["state"] not in UNFINISHED_STATES for each in listed) >= count:
            return
        await asyncio.sleep(0.2)


def find_in_files(folder: Path, *needles: str) -> list[str]:
    """The files below a folder whose names or bytes hold one of these texts."""
    found: list[str] = []
    for path in folder.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        if any(needle.encode() in data or needle in str(path) for needle in needles):
            found.append(str(path))
    return found


async def test_no_byte_of_an_erased_caller_is_left(tmp_path: Path) -> None:
    """A9: neither in the file, nor in its log, nor in the folders; others keep what is theirs."""
    files = tmp_path / "data"
    with SqliteJournal(files / "journal.db") as journal:
        async with serve(journal, files / "folders") as (running, owner, admin):
            bob = await running.make_client("bob")
            await fill(running, owner)
            await fill(running, bob)
            await wait_for_ends(owner, 2)
            await wait_for_ends(bob, 2)
            folder = running.service.folders
            assert folder is not None
            folder.create(NAME)
            (next(folder.root.glob(f"{NAME}-*")) / f"{CANARY}.txt").write_text("plans")
            assert find_in_files(files, NAME)
            erased = (await admin.post(f"/callers/{NAME}/erase")).data
            assert erased | {"folders": 1} == erased
            counts = ("sessions", "uploads", "schedules", "webhooks", "tokens", "left")
            assert [erased[count] for count in counts] == [2, 1, 1, 1, 1, 0]
            assert erased["scrubbed"]
            assert find_in_files(files, NAME) == []
            # What both had sent is still the other's.
            events = (await bob.get("/runs/one/events")).data["events"]
            assert SHARED.partition(",")[2] in str(events)
            assert (await bob.get("/runs/one/verify")).data["intact"]
            # A canary that only the erased caller had is gone as well.
            assert (await admin.get(f"/runs/{NAME}.one")).status == 404
            assert await journal.find_tombstone(NAME) is not None
            assert await journal.check() == []
            await running.service.eraser.erase("bob")
            assert find_in_files(files, NAME, CANARY, "shared-blob-123") == []
    assert find_in_files(files, NAME, CANARY, "shared-blob-123") == []


async def test_a_name_may_be_used_again_and_a_copy_is_refused() -> None:
    """A9: an erased session is known by its first record, under any name."""
    journal = MemoryJournal()
    async with serve(journal) as (running, owner, _):
        await fill(running, owner)
        await wait_for_ends(owner, 2)
        copy = io.BytesIO()
        await export_session(journal, f"{NAME}.one", copy.write)
        await running.service.eraser.erase(NAME)
        with pytest.raises(ConfigError, match="was erased on"):
            await import_session(journal, copy, into="elsewhere")
        again = await running.make_client(NAME)
        started = await again.post("/runs", {"prompt": "Hi", "session": "one"})
        assert started.status == 202
        await wait_for_ends(again, 1)
        assert (await again.get("/runs/one")).data["summary"]["runs"] == 1


class KilledJournal:
    """A journal whose process dies at the nth change."""

    def __init__(self, journal: Any, changes: int) -> None:
        self._journal = journal
        self._left = changes

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._journal, name)
        if name not in ("delete", "delete_record", "put_record", "bury", "scrub"):
            return found

        async def change(*given: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                raise KeyboardInterrupt
            return await found(*given, **named)

        return change


async def test_an_erasure_that_is_cut_off_is_finished_by_the_next_process(tmp_path: Path) -> None:
    """A9: wherever it dies, the job is on record, and the end is the same."""
    changes = 1
    while await erase_with_a_death(tmp_path, changes):
        changes += 1
    assert changes > 15


async def erase_with_a_death(folder: Path, changes: int) -> bool:
    """Erase a caller, with a death after some changes. Returns whether it died."""
    journal = MemoryJournal()
    async with serve(journal, folder) as (running, owner, _):
        await fill(running, owner)
        await wait_for_ends(owner, 2)
    dying: Any = KilledJournal(journal, changes)
    died = False
    try:
        await CallerEraser(dying, TokenStore(dying), FolderStore(folder)).erase(NAME)
    except KeyboardInterrupt:
        died = True
        assert await journal.list_records(JOB_KIND)
        await CallerEraser(journal, TokenStore(journal), FolderStore(folder)).resume()
    assert not await journal.list_records(JOB_KIND)
    assert list(await journal.sessions(caller=NAME)) == []
    for kind in ("schedule", "webhook", "upload", "upload-data", "token", "reply"):
        owned = [record for record in await journal.list_records(kind) if NAME in str(record)]
        assert owned == []
    assert await journal.find_tombstone(NAME) is not None
    assert find_in_files(folder, NAME) == []
    return died


KILLED = """
import asyncio, os, signal, sys
from windlass.journals import SqliteJournal
from windlass.server.erasure import CallerEraser
from windlass.server.tokens import TokenStore

class Deadly(SqliteJournal):
    async def delete(self, session, *, erase=False):
        await super().delete(session, erase=erase)
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    journal = Deadly(sys.argv[1])
    await CallerEraser(journal, TokenStore(journal)).erase(sys.argv[2])

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.realtime
async def test_a_killed_process_leaves_a_job_that_a_service_finishes(tmp_path: Path) -> None:
    """A9: with a real kill between two sessions."""
    path = tmp_path / "journal.db"
    with SqliteJournal(path) as journal:
        async with serve(journal) as (running, owner, _):
            await fill(running, owner)
            await wait_for_ends(owner, 2)
    command = [sys.executable, "-c", KILLED, str(path), NAME]
    killed = await asyncio.to_thread(subprocess.run, command, check=False)
    assert killed.returncode == -9
    with SqliteJournal(path) as journal:
        assert len(list(await journal.sessions(caller=NAME))) == 1
        assert await journal.list_records(JOB_KIND)
        async with run_service(make_agent(), journal=journal) as running:
            while await journal.list_records(JOB_KIND):  # noqa: ASYNC110 - the service does it
                await asyncio.sleep(0.1)
            assert running.service.is_ready
        assert find_in_files(tmp_path, NAME, CANARY) == []


async def test_open_runs_are_waited_for_if_that_is_wanted() -> None:
    """A9: the session of a run that waits stays until it has ended, and the job with it."""
    journal = MemoryJournal()
    script = [[call("send", {"text": "hi"})], "Done."]
    agent = Agent(ScriptedModel(script), name="helper", tools=[send], gate=ask())
    async with run_service(agent, journal=journal) as running:
        owner = await running.make_client(NAME)
        admin = await running.make_client("boss", ["admin"])
        assert (await owner.post("/runs", {"prompt": "Go.", "session": "s"})).status == 202
        await asyncio.sleep(1)
        erased = (await admin.post(f"/callers/{NAME}/erase", {"runs": "wait"})).data
        assert (erased["sessions"], erased["left"]) == (0, 1)
        assert (await owner.get("/runs")).status == 401
        (question,) = (await admin.get("/questions")).data["questions"]
        answer = {"call_id": question["call_id"], "answer": {"verdict": "allow"}}
        assert (await admin.post(f"/runs/{NAME}.s/answers", answer)).status == 200
        await asyncio.sleep(120)
        assert (await admin.get(f"/runs/{NAME}.s")).status == 404
        assert not await journal.list_records(JOB_KIND)


async def test_only_an_admin_erases_or_exports_a_caller() -> None:
    async with serve(MemoryJournal()) as (_, owner, admin):
        assert (await owner.post(f"/callers/{NAME}/erase")).status == 403
        assert (await owner.get(f"/callers/{NAME}/export")).status == 403
        assert (await admin.post("/callers/%20/erase")).status == 422


async def test_a_person_gets_all_that_is_kept_and_no_secret() -> None:
    """A9: as a tar file, whose sessions can be imported."""
    journal = MemoryJournal()
    async with serve(journal) as (running, owner, admin):
        await fill(running, owner)
        await wait_for_ends(owner, 2)
        reply = await admin.send("GET", f"/callers/{NAME}/export")
        assert isinstance(reply, StreamReply)
        data = b"".join([piece async for piece in reply.chunks])
    with tarfile.open(fileobj=io.BytesIO(data)) as file:
        files = {each.name: file.extractfile(each) for each in file.getmembers()}
        texts = {name: one.read() for name, one in files.items() if one is not None}
    assert msgspec.json.decode(texts["about.json"])["caller"] == NAME
    assert CANARY.encode() in texts["records/schedules.json"]
    assert b"secret" not in texts["records/webhooks.json"]
    assert b"hash" not in texts["records/tokens.json"]
    assert CANARY.encode() in next(texts[name] for name in texts if name.startswith("uploads/"))
    sessions = [name for name in texts if name.startswith("sessions/")]
    assert len(sessions) == 2
    other = MemoryJournal()
    name = await import_session(other, io.BytesIO(texts[sessions[0]]))
    assert await other.read(name)


async def test_a_session_is_deleted_by_its_owner_and_is_gone_for_every_replica() -> None:
    """A9: with its open run only if that is asked for, and never by others."""
    journal = MemoryJournal()
    script = [[call("send", {"text": "hi"})], "Done."]
    agents = [Agent(ScriptedModel(script), name="helper", tools=[send], gate=ask())] * 2
    async with (
        run_service(agents[0], journal=journal) as running,
        run_service(agents[1], journal=journal) as replica,
    ):
        owner = await running.make_client(NAME)
        there = DirectClient(replica.dispatcher, owner.token)
        bob = await running.make_client("bob")
        assert (await owner.post("/runs", {"prompt": "Go.", "session": "s"})).status == 202
        await asyncio.sleep(1)
        assert (await there.get("/runs/s")).status == 200
        assert (await bob.ask("DELETE", f"/runs/{NAME}.s")).status == 404
        refused = await owner.ask("DELETE", "/runs/s")
        assert (refused.status, refused.data["error"]["code"]) == (409, "session_busy")
        assert (await owner.ask("DELETE", "/runs/s?cancel=true")).status == 204
        for client in (owner, there):
            assert (await client.get("/runs/s")).status == 404
            assert (await client.ask("DELETE", "/runs/s")).status == 404
        assert (await owner.get("/runs")).data["sessions"] == []
        tombstone = await journal.find_tombstone(f"{NAME}.s")
        assert tombstone is not None
        assert tombstone.erased


async def test_a_response_is_deleted() -> None:
    """A9: for good, if it is a conversation of its own."""
    async with run_service(Agent(ScriptedModel(["One.", "Two."]), name="helper")) as running:
        client = await running.make_client(NAME)
        made = await client.post("/v1/responses", {"model": "helper", "input": "Hi"})
        first = made.data["id"]
        body = {"model": "helper", "input": "More", "previous_response_id": first}
        second = (await client.post("/v1/responses", body)).data["id"]
        path = f"/v1/responses/{second}"
        deleted = await client.ask("DELETE", path)
        if deleted.status == 409:
            assert deleted.data["error"]["code"] == "response_continued"
            path = f"/v1/responses/{first}"
        else:
            assert deleted.data == {"id": second, "object": "response", "deleted": True}
            assert (await client.get(path)).status == 404
