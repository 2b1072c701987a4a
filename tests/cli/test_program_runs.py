"""`windlass approve`, `deny` and `resume` on runs that a program started with its own agent."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import windlass.cli.serve
from cli_types import Cli
from windlass import Agent, RunFailed, tool
from windlass.core.events import CallAnswered, Fact, RunResumed
from windlass.core.setup import digest
from windlass.gates import ask
from windlass.journals import SqliteJournal
from windlass.server.access import LOCAL_OWNER, Caller
from windlass.server.tokens import TokenStore
from windlass.testing import PowerCutJournal, ScriptedModel, call
from windlass.tools import Workspace, file_tools

pytestmark = pytest.mark.realtime
SESSION = "order-1042"


@tool
def refund(order: int, usd: float) -> str:
    """Pay money back."""
    return f"order {order}: {usd} USD are on their way"


def make_agent(journal: SqliteJournal | PowerCutJournal) -> Agent[str]:
    script = [call("refund", {"order": 1042, "usd": 42.5}), "Done."]
    return Agent(ScriptedModel(script), name="clerk", tools=[refund], gate=ask(), journal=journal)


def leave_waiting(path: Path) -> None:
    """A run of a program waits for an answer, and the program has ended."""

    async def run() -> None:
        with SqliteJournal(path) as journal:
            result = await make_agent(journal).run("Pay it back.", session=SESSION)
        assert result.outcome == "suspended"
        assert result.questions[0].question == "Refund: order 1042, usd 42.5?"

    asyncio.run(run())


def leave_killed(path: Path) -> None:
    async def run() -> None:
        with SqliteJournal(path) as journal, pytest.raises(RunFailed):
            await make_agent(PowerCutJournal(journal, 2, "after")).run("Go.", session=SESSION)

    asyncio.run(run())


def read_facts(path: Path) -> list[Fact]:
    async def read() -> list[Fact]:
        with SqliteJournal(path) as journal:
            return list(await journal.read(SESSION))

    return asyncio.run(read())


def resume_by_program(path: Path) -> list[type]:
    """Resume the run as its own program does. Returns the kinds of the answers on record."""

    async def resume() -> None:
        with SqliteJournal(path) as journal:
            script = ScriptedModel(["Done."])
            clerk = Agent(script, name="clerk", tools=[refund], gate=ask(), journal=journal)
            assert (await clerk.resume(SESSION)).completed

    asyncio.run(resume())
    return [type(fact) for fact in read_facts(path) if isinstance(fact, CallAnswered)]


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.contract("J9")
@pytest.mark.parametrize("command", ["approve", "deny"])
def test_the_answer_is_recorded_and_the_program_resumes(
    cli: Cli, tmp_path: Path, command: str
) -> None:
    """J9: the command line's own agent never takes over a run of a program."""
    path = tmp_path / "s.db"
    leave_waiting(path)
    # `--consent` changes nothing: it must not put the shell of the command line on this run.
    read = ("--digest", digest({"order": 1042, "usd": 42.5})) if command == "approve" else ()
    done = cli(command, "order", *read, "--consent", "--journal", str(path))
    assert done.exit_code == 0, done.output
    told = words(done.output)
    assert "The answer is recorded; this run belongs to a program" in told
    assert '(agent "clerk")' in told
    assert f'agent.resume("{SESSION}")' in told
    assert not [fact for fact in read_facts(path) if isinstance(fact, RunResumed)]
    # It waits for the program. A second answer is not accepted.
    again = cli(command, "order", "--consent", "--journal", str(path))
    assert "no call waits for an answer" in words(again.output)
    assert resume_by_program(path) == [CallAnswered]


@pytest.mark.contract("J9")
def test_a_run_of_a_program_is_not_resumed_from_a_shell(cli: Cli, tmp_path: Path) -> None:
    """J9: not even with consent, since nobody who reads a list of differences expects a shell."""
    path = tmp_path / "s.db"
    leave_killed(path)
    before = read_facts(path)
    done = cli("resume", SESSION, "--consent", "--journal", str(path))
    assert done.exit_code == 2
    assert 'is not resumed from here: this run belongs to a program (agent "clerk")' in words(
        done.output
    )
    assert "--consent" not in done.output
    done = cli("resume", "--all", "--journal", str(path))
    assert done.exit_code == 12
    assert f"{SESSION} is left out: this run belongs to a program" in words(done.output)
    done = cli("steer", SESSION, "in", "blue", "--journal", str(path))
    assert f'agent.resume("{SESSION}")' in done.output
    assert read_facts(path) == before


def test_a_missing_session_names_the_journal(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    done = cli("approve", "t7", "--journal", str(path))
    told = "".join(done.output.split())
    assert done.exit_code == 12
    assert str(path) in told
    assert "--journalorWINDLASS_JOURNAL" in told


def test_token_create_says_into_which_journal_it_wrote(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "service.db"
    done = cli("token", "create", "ann", "--journal", str(path))
    assert done.stdout.startswith("wl_")
    assert len(done.stdout.split()) == 1
    assert str(path) in done.stderr


@pytest.mark.contract("A4")
def test_signed_in_browsers_are_listed_with_the_tokens_and_revoked_like_them(
    cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "service.db"

    async def sign_in() -> tuple[str, str, str]:
        with SqliteJournal(path) as journal:
            tokens = TokenStore(journal)
            browser = await tokens.exchange_login(await tokens.create_login(LOCAL_OWNER))
            return browser.record.id, browser.cookie, browser.page_key

    async def find_caller(cookie: str, page_key: str) -> Caller | None:
        with SqliteJournal(path) as journal:
            return await TokenStore(journal).authenticate_browser(cookie, page_key)

    token_id, *secrets = asyncio.run(sign_in())
    listed = cli("token", "list", "--journal", str(path)).stdout
    head, row = listed.splitlines()
    assert head.split() == ["TOKEN", "CALLER", "ROLES", "SINCE", "UNTIL", "NOTE"]
    assert row.split()[:3] == [token_id, "(you)", "admin"]
    assert row.endswith("browser, signed in just now")
    assert not [secret for secret in secrets if secret in listed]
    assert asyncio.run(find_caller(*secrets)) is not None
    assert cli("token", "revoke", token_id, "--journal", str(path)).exit_code == 0
    assert asyncio.run(find_caller(*secrets)) is None


TOKEN_APP = """
from windlass import Agent
from windlass.testing import ScriptedModel

agents = [Agent(ScriptedModel([]), name="clerk")]
"""


def test_serve_prints_the_token_command_with_its_journal(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "token_app.py").write_text(TOKEN_APP)
    monkeypatch.syspath_prepend(str(project))
    monkeypatch.setattr(windlass.cli.serve, "set_up_logs", lambda _format: None)
    monkeypatch.setattr(windlass.cli.serve, "relax_garbage_collector", lambda: None)
    monkeypatch.setattr(windlass.cli.serve, "serve_until_stopped", be_ready_at_once)
    path = str(project / "my service.db")
    command = "For programs: windlass token create NAME"
    for place, told in ((path, f"{command} --journal '{path}'\n"), ("", f"{command}\n")):
        args = ("serve", "token_app:agents", "--journal", place)
        assert "Token, shown only now: wl_" in cli(*args).stdout
        assert told in cli(*args).stdout
    hidden = cli("serve", "token_app:agents", "--journal", "memory:", "--no-login").stdout
    assert "token create" not in hidden
    assert "Start without --no-login, or with --journal FILE" in hidden


async def be_ready_at_once(
    _service: object, _options: object, *, on_ready: Callable[[str], Awaitable[None]]
) -> None:
    await on_ready("http://127.0.0.1:8420")


def test_no_token_is_made_while_the_port_is_taken(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be shown to nobody, and the next start would show none."""
    (project / "token_app.py").write_text(TOKEN_APP)
    monkeypatch.syspath_prepend(str(project))
    monkeypatch.setattr(windlass.cli.serve, "set_up_logs", lambda _format: None)
    monkeypatch.setattr(windlass.cli.serve, "relax_garbage_collector", lambda: None)
    path = str(project / "s.db")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        refused = cli("serve", "token_app:agents", "--journal", path, "--port", port)
    assert refused.exit_code != 0
    assert "Choose another one with --port" in words(refused.stderr)
    assert "wl_" not in refused.output
    monkeypatch.setattr(windlass.cli.serve, "serve_until_stopped", be_ready_at_once)
    again = cli("serve", "token_app:agents", "--journal", path)
    assert "Token, shown only now: wl_" in again.stdout


@pytest.mark.contract("J9")
def test_a_run_of_a_program_is_not_undone_from_a_shell(cli: Cli, tmp_path: Path) -> None:
    """J9: the command line's own agent never takes over a run of a program, nor undoes it."""
    path = tmp_path / "s.db"

    async def run() -> None:
        script = [call("write", {"path": "a.txt", "content": "x"}), "Done."]
        with SqliteJournal(path) as journal:
            tools = file_tools(Workspace(tmp_path))
            agent = Agent(ScriptedModel(script), name="clerk", tools=tools, journal=journal)
            await agent.run("Write it.", session=SESSION)

    asyncio.run(run())
    before = read_facts(path)
    done = cli("undo", "order", "--journal", str(path), "--permission-mode", "allow-all")
    assert done.exit_code == 2, done.output
    assert "is not undone from here" in words(done.stderr)
    assert f'agent.undo("{SESSION}")' in words(done.stderr)
    assert read_facts(path) == before
    assert (tmp_path / "a.txt").read_text() == "x"
