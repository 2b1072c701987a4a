"""`windlass sessions`: what is listed, shown, told, checked, copied and deleted."""

import asyncio
import io
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import apsw
import msgspec
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

import windlass.cli.screen
import windlass.cli.session_table
from facts import Story, failed_attempt, make_call
from proof.simulate import draw_plan, play_plan
from windlass.cli import main
from windlass.cli.session_picker import format_age
from windlass.core.events import RULES_VERSION, CallJudged, Fact, RunStarted
from windlass.core.messages import ImagePart, TextPart, ThinkingPart
from windlass.core.verdicts import Ask
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing.journals import append_facts
from windlass.testing.samples import facts_of_every_kind

pytestmark = pytest.mark.slow

NOW = time.time()


def done() -> Story:
    story = Story(instructions="Be brief.").start_run("Look at the\x1b[31m weather.")
    story.fail_attempt(failed_attempt(visible=True, partial="It w", wait_s=1.0))
    story.take_reply(
        ThinkingPart("Hm."), "I will look.", make_call("c1_0", "look", '{"at": "here"}')
    )
    story.allow_calls("c1_0").start_calls("c1_0").finish_calls("c1_0", text="rain\x1b[2J")
    return story.take_reply("It rains.").end_run("completed")


def waiting() -> Story:
    story = Story().start_run("Send the letter.").take_calls(make_call("c1_0", "send"))
    return story.add(CallJudged("c1_0", Ask("May I send it?")))


def open_still() -> Story:
    parts = (
        TextPart("Think."),
        ImagePart("image/png", b"\x00" * 2_000),
        ImagePart("image/png", url="a:b"),
    )
    return Story().add(RunStarted(1, parts, Story().setup)).start_attempt()


def aged(story: Story, days: float) -> list[Fact]:
    """The story, so that its last fact was so many days ago."""
    shift = NOW - days * 86_400 - story.facts[-1].at
    return [replace(fact, at=fact.at + shift) for fact in story.facts]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal with four sessions."""
    file, played = tmp_path / "sessions.db", play_of(4)

    async def fill(journal: SqliteJournal) -> None:
        await append_facts(journal, "weather-1", aged(done(), 40))
        await append_facts(journal, "letter-1", aged(waiting(), 35))
        await append_facts(journal, "letter-2", aged(open_still(), 1))
        await append_facts(journal, "sim", played)

    with SqliteJournal(file) as journal:
        asyncio.run(fill(journal))
    return file


def play_of(seed: int) -> Sequence[Fact]:
    """A session as it is played, a day ago."""
    facts = play_plan(draw_plan(seed)).facts
    return [replace(fact, at=fact.at + NOW - 86_400 * 2 - facts[-1].at) for fact in facts]


def run(
    path: Path | None,
    *args: str,
    given: str | bytes | None = None,
    env: Mapping[str, str] | None = None,
) -> Result:
    named = () if path is None else ("--journal", str(path))
    return CliRunner().invoke(main, ["sessions", *args, *named], input=given, env=env)


def test_a_list_is_in_columns_the_latest_first(path: Path) -> None:
    said = run(path, "list")
    lines = said.output.splitlines()
    assert said.exit_code == 0
    assert lines[0].split() == ["SESSION", "UPDATED", "STATE", "RUNS", "STEPS", "TITLE"]
    assert [line.split()[0] for line in lines[1:]] == ["letter-2", "sim", "letter-1", "weather-1"]
    assert lines[4].endswith("Look at the?[31m weather.")
    assert [line.split()[3] for line in lines[1::2]] == ["open", "waiting"]
    assert "\x1b" not in said.output


def test_a_list_can_be_short_and_can_leave_out_what_ended(path: Path) -> None:
    short = run(path, "list", "--limit", "1")
    assert len(short.stdout.splitlines()) == 2
    assert "There are more: --cursor " in short.stderr
    rest = run(path, "list", "--limit", "9", "--cursor", short.stderr.split()[-1])
    assert [line.split()[0] for line in rest.stdout.splitlines()[1:]] == [
        "sim",
        "letter-1",
        "weather-1",
    ]
    assert rest.stderr == ""
    unfinished = run(path, "list", "--unfinished").output.splitlines()
    assert [line.split()[0] for line in unfinished[1:]] == ["letter-2", "letter-1"]


def test_a_list_is_a_table_on_a_terminal(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Styled(windlass.cli.screen.Screen):
        def __init__(self) -> None:
            super().__init__()
            self.styled = True

    monkeypatch.setattr(windlass.cli.session_table, "Screen", Styled)
    said = run(path, "list", env={"COLUMNS": "70"})
    lines = said.output.splitlines()
    assert said.exit_code == 0
    assert [line.split()[0] for line in lines][:2] == ["SESSION", "letter-2"]
    assert max(map(len, lines)) <= 70


def test_sessions_alone_lists_those_of_the_users_journal(path: Path) -> None:
    """It is named by a variable; the first time there is none."""
    said = run(None, env={"WINDLASS_JOURNAL": str(path)})
    assert (said.exit_code, "weather-1" in said.output) == (0, True)
    nowhere = path.with_name("none.db")
    fresh = run(None, env={"WINDLASS_JOURNAL": str(nowhere)})
    assert (fresh.exit_code, fresh.output) == (0, "No sessions.\n")
    assert not nowhere.exists()


def test_a_search_looks_at_names_and_first_prompts(path: Path) -> None:
    assert "letter-1" in run(path, "search", "THE LETTER").output
    found = msgspec.json.decode(run(path, "search", "letter", "--json").output)
    assert [(one["session"], one["state"]) for one in found] == [
        ("letter-2", "open"),
        ("letter-1", "waiting"),
    ]
    assert run(path, "search", "nothing at all").output == "No sessions.\n"
    assert msgspec.json.decode(run(path, "search", "nothing at all", "--json").output) == []


def test_a_session_is_shown_as_it_looked(path: Path) -> None:
    said = run(path, "show", "weather")
    assert said.exit_code == 0
    for words in ("weather.", "It w", "retrying", "I will look.", "look(", "rain", "It rains."):
        assert words in said.output
    assert (
        said.output.index("I will look.") < said.output.index("look(") < said.output.index("rain")
    )
    assert "\x1b" not in said.output
    assert "waiting for your answer" in run(path, "show", "letter-1").output
    assert "has not ended" in run(path, "show", "letter-2").output


def test_a_view_is_what_the_model_would_be_shown(path: Path) -> None:
    lines = run(path, "show", "weather-1", "--view").output.splitlines()
    assert lines[:3] == [
        "model   test:model",
        "tools   look, touch, send (choice: auto)",
        "system  Be brief.",
    ]
    assert lines[3:] == [
        "user    Look at the?[31m weather.",
        "model   (thinking) Hm.",
        "        I will look.",
        '        [c1_0] look({"at": "here"})',
        "result  [c1_0] value: rain?[2J",
        "model   It rains.",
    ]


def test_a_view_names_what_is_no_text(path: Path) -> None:
    lines = run(path, "show", "letter-2", "--view").output.splitlines()
    assert lines[2:] == [
        "system  (nothing)",
        "user    Think.",
        "        (image/png, 2,000 bytes)",
        "        (image/png, a:b)",
    ]


@pytest.mark.contract("O2")
def test_a_session_is_explained(path: Path) -> None:
    lines = run(path, "explain", "weather-1").output.splitlines()
    assert lines[0] == '   1  Run 1 began: "Look at the?[31m weather."'
    assert "   7        look (c1_0): started (read), as session/c1_0" in lines


def test_a_session_that_is_not_there_is_guessed(path: Path) -> None:
    said = run(path, "show", "wether-1")
    assert said.exit_code != 0
    assert said.output.startswith("Error: there is no session 'wether-1'. Did you mean weather-1")
    assert said.output.count("\n") == 1
    many = run(path, "show", "letter")
    assert many.exit_code != 0
    assert (many.output.count("\n"), "letter-1" in many.output) == (1, True)
    none = run(path.with_name("none.db"), "show", "x")
    assert none.exit_code != 0
    assert "there is no journal" in none.output


@pytest.mark.contract("J7")
def test_what_was_changed_is_found(path: Path) -> None:
    sound = run(path, "verify")
    assert (sound.exit_code, sound.output.startswith("4 sessions: no record")) == (0, True)
    file = apsw.Connection(str(path))
    file.execute("UPDATE records SET body = replace(body, 'It rains.', 'It shines.')")
    file.close()
    found = run(path, "verify")
    assert found.exit_code == 1
    assert found.output.splitlines() == ["weather-1: record 10: it was changed or moved"]
    assert run(path, "verify", "weather-1").exit_code == 1
    assert run(path, "verify", "letter-1").exit_code == 0
    broken_read = run(path, "explain", "weather-1")
    assert (broken_read.exit_code != 0, broken_read.output.count("\n")) == (True, 1)


@pytest.mark.contract("J8")
def test_a_session_is_run_again_from_its_journal(path: Path) -> None:
    same = run(path, "replay", "sim")
    assert same.exit_code == 0
    assert same.output.endswith(": this version does the same\n")
    other = run(path, "replay", "weather-1")
    assert other.exit_code == 1
    assert "weather-1: record 2 is AttemptStarted(" in other.output
    assert "the rules would make the request AttemptStarted(" in other.output


@pytest.mark.contract("J8")
def test_what_older_rules_made_is_told_and_is_no_failure(path: Path) -> None:
    async def fill(journal: SqliteJournal) -> None:
        await append_facts(journal, "old", facts_of_every_kind())

    with SqliteJournal(path) as journal:
        asyncio.run(fill(journal))
    old = run(path, "replay", "old")
    assert old.exit_code == 0
    assert old.output == (
        f"old: record 2 was made by older rules (version 0, this Windlass has {RULES_VERSION}): "
        "it cannot be compared from there on\n"
    )


@pytest.mark.contract("J8")
def test_a_session_is_forked(path: Path) -> None:
    said = run(path, "fork", "weather-1", "--at", "3")
    assert (said.exit_code, said.output) == (0, "weather-1~3\n")
    assert "Run 1 has not ended" in run(path, "explain", "weather-1~3").output
    assert run(path, "fork", "letter-1", "--into", "mine").output == "mine\n"
    taken = run(path, "fork", "letter-1", "--into", "mine")
    assert (taken.exit_code != 0, "exists already" in taken.output) == (True, True)
    assert run(path, "fork", "weather-1", "--at", "99").exit_code != 0


def test_a_session_goes_out_and_in_again(path: Path, tmp_path: Path) -> None:
    out = run(path, "export", "weather-1")
    assert out.exit_code == 0
    other, file = tmp_path / "deep" / "other.db", tmp_path / "w.jsonl"
    assert run(path, "export", "weather-1", "-o", str(file)).output == f"{file}: 11 records\n"
    assert file.read_bytes() == out.stdout_bytes
    assert run(other, "import", "-", given=out.stdout_bytes).output == "weather-1\n"
    assert run(other, "verify").exit_code == 0
    again = run(other, "import", str(file))
    assert (again.exit_code != 0, "exists already" in again.output) == (True, True)
    assert run(other, "import", str(file), "--as", "copy").output == "copy\n"
    changed = run(other, "import", "-", given=out.stdout_bytes.replace(b"rains", b"pours"))
    assert changed.exit_code != 0
    assert "line 11: record 10 was changed, moved or removed" in changed.output
    gone = run(other, "import", str(tmp_path / "none"))
    told = f"Error: {tmp_path / 'none'}: No such file or directory\n"
    assert (gone.exit_code, gone.output) == (2, told)


def test_old_sessions_are_deleted_when_that_is_confirmed(path: Path) -> None:
    """Those that have not ended stay, however old they are."""
    refused = run(path, "prune", "--older-than", "30d", given="n\n")
    assert "Delete 1 session?" in refused.output
    assert len(run(path, "list").output.splitlines()) == 5
    assert "1 session deleted" in run(path, "prune", "--older-than", "30d", given="y\n").output
    assert run(path, "prune", "--older-than", "30d").output == "0 sessions deleted\n"
    assert run(path, "prune", "--older-than", "1.5d", "--yes").output == "1 session deleted\n"
    assert len(run(path, "list").output.splitlines()) == 3
    wrong = run(path, "prune", "--older-than", "soon")
    assert (wrong.exit_code != 0, "write 90s, 15m, 12h, 30d or 4w" in wrong.output) == (True, True)


def test_sessions_are_deleted_when_that_is_confirmed(path: Path) -> None:
    refused = run(path, "delete", "weather-1", given="n\n")
    assert refused.exit_code != 0
    assert "2 sessions deleted" in run(path, "delete", "weather", "letter-2", given="y\n").output
    assert run(path, "delete", "sim", "--yes").output == "1 session deleted\n"
    assert len(run(path, "list").output.splitlines()) == 2
    assert run(path, "delete", "sim", "--yes").exit_code != 0


@pytest.mark.slow
def test_as_a_program_of_its_own(path: Path) -> None:
    """Through real pipes: out of one journal into another."""
    program = [sys.executable, "-m", "windlass.cli", "sessions"]
    other = path.with_name("other.db")
    out = subprocess.run(
        [*program, "export", "sim", "--journal", str(path)], capture_output=True, check=True
    )
    into = subprocess.run(
        [*program, "import", "-", "--journal", str(other)],
        input=out.stdout,
        capture_output=True,
        check=True,
    )
    assert into.stdout == b"sim\n"
    again = subprocess.run(
        [*program, "replay", "sim", "--journal", str(other)], capture_output=True, check=False
    )
    assert (again.returncode, again.stderr) == (0, b"")
    unknown = subprocess.run(
        [*program, "show", "sam", "--journal", str(other)], capture_output=True, check=False
    )
    assert unknown.returncode != 0
    assert io.BytesIO(unknown.stderr).readlines() == [
        b"Error: there is no session 'sam'. Did you mean sim?\n"
    ]


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(5, "just now"), (61, "1 minute ago"), (7200, "2 hours ago"), (90_000, "1 day ago")],
)
def test_how_long_ago(seconds: float, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1_000_000.0)
    assert format_age(1_000_000.0 - seconds) == told
