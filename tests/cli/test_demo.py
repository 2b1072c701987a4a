"""The demo, run as a newcomer runs it: in a process of its own, watched from outside."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "windlass.cli", "demo", "--fast"]
PATIENCE_S = 50.0
ESCAPE = "\x1b"

pytestmark = pytest.mark.realtime


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A plain one, whose temporary folder is the test's."""
    kept = {name: value for name, value in os.environ.items() if "COLOR" not in name}
    return kept | {"TMPDIR": str(tmp_path), "PYTHONIOENCODING": "utf-8", "COLUMNS": "80"}


def shown(environment: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *options],
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE_S,
        check=False,
    )


def workers(folder: Path) -> list[int]:
    """The processes that were started on behalf of this folder and are still there."""
    listed = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True, check=True)
    lines = [line.split(None, 1) for line in listed.stdout.splitlines()]
    return [int(pid) for pid, args in lines if "demo.worker" in args and str(folder) in args]


def gone(folder: Path) -> bool:
    return wait_for(lambda: not workers(folder))


def wait_for(so: Callable[[], bool]) -> bool:
    until = time.monotonic() + PATIENCE_S
    while not so():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def in_order(text: str, words: Sequence[str]) -> list[str]:
    """The words that are missing, or not in their place."""
    at, missing = 0, list[str]()
    for word in words:
        found = text.find(word, at)
        if found < 0:
            missing.append(word)
        else:
            at = found + len(word)
    return missing


@pytest.mark.slow
def test_it_shows_what_it_knows_a_stall_a_denial_a_kill_and_the_proof(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """J4, with K1, X5 and a sub-agent's session on the way."""
    done = shown(environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        in_order(
            done.stdout,
            [
                "The model is a script",
                "Everything else is real",
                "· recalled from journal.db: This customer takes refunds by card only.",
                '→ skill(name="refunds")',
                "← Ask the clerk to list the charges of the order. (+2 lines)",
                '│ → clerk(task="List the charges of order 1042.")',
                "│ ┌ sub-agent clerk, in its own session: demo/c2_0",
                '│ │ → read(path="payments.csv")',
                "│ │ ← ",
                "│ ← Two charges, both on 2 March, 42.50 EUR each.",
                "order 1042 tw…",
                "! no output for ",
                ", retrying",
                "order 1042 twice",
                '→ delete(path="payments.csv")',
                "✗ denied: payment records are never deleted",
                "Understood",
                '→ refund(order=1042, amount="42.50 EUR", to="card")',
                "waiting for the bank",
                "✗ kill -9 ",
                "opens journal.db",
                "← refund: its key is in outbox.txt",
                "← Created 'report.md': 84 bytes.",
                "8, in 9 attempts: 1 stalled",
                "6: 5 ran, 1 denied by the gate",
                "1 note in journal.db, 1 skill, 1 answer from a sub-agent",
                "1 killed with SIGKILL",
                "records in 2 sessions, chain verified",
                "a made-up price",
                "Proof that nothing was done twice",
                "The refund was sent once",
                "refund order=1042 amount=42.50 EUR to=card key=demo/c4_0",
                "9 requests",
                "2 of them to the clerk",
                "Nothing was looked up twice",
                "payments.csv is unchanged",
                "Next",
            ],
        )
        == []
    )
    assert done.stdout.count("key=demo/") == 1
    assert gone(tmp_path)
    assert list(tmp_path.iterdir()) == [], "the folder is left behind"


@pytest.mark.slow
@pytest.mark.parametrize("columns", [60, 80, 120])
def test_no_line_is_wider_than_the_page(environment: dict[str, str], columns: int) -> None:
    done = shown(environment | {"COLUMNS": str(columns)})
    assert done.returncode == 0
    # The folder's path is one word, and a word is not broken.
    lines = [line for line in done.stdout.splitlines() if "windlass-demo-" not in line]
    assert columns * 0.7 < max(map(len, lines)) <= columns


@pytest.mark.slow
def test_what_it_kept_can_be_read_afterwards(environment: dict[str, str], tmp_path: Path) -> None:
    done = shown(environment, "--keep")
    [folder] = tmp_path.iterdir()
    assert done.returncode == 0
    assert done.stdout.split()[-2:] == ["Kept:", str(folder)]
    names = {path.name for path in folder.iterdir()}
    assert {"journal.db", "meter.txt", "outbox.txt", "payments.csv", "report.md", "skills"} <= names
    assert len((folder / "outbox.txt").read_text("utf-8").splitlines()) == 1
    assert (folder / "worker.log").read_text("utf-8") == ""


@pytest.mark.slow
def test_an_encoding_without_our_symbols_gets_ascii(environment: dict[str, str]) -> None:
    done = shown(environment | {"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "?" not in done.stdout
    assert '-> read(path="payments.csv")' in done.stdout


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """A pseudo-terminal: our end, and the demo's."""
    ours, theirs = os.openpty()
    yield ours, theirs
    os.close(ours)


def on(terminal: tuple[int, int], environment: dict[str, str]) -> tuple[str, int]:
    """What a terminal is sent, and the exit code."""
    ours, theirs = terminal
    demo = subprocess.Popen(COMMAND, env=environment, stdout=theirs, stderr=theirs)
    os.close(theirs)
    sent = b""
    try:
        while piece := os.read(ours, 4096):
            sent += piece
    except OSError:  # How Linux says that the other end is closed.
        pass
    return sent.decode().replace("\r\n", "\n"), demo.wait(PATIENCE_S)


def nameless(text: str) -> str:
    """Without what differs from run to run."""
    text = re.sub(r"windlass-demo-\w+|process \d+|kill -9 \d+|in \d+ s", "#", text)
    return re.sub(r"no output for [\d.]+ s|\$[\d.]+ for about [\d,]+", "#", text)


@pytest.mark.slow
def test_a_terminal_gets_colours_and_the_same_words(
    environment: dict[str, str], terminal: tuple[int, int]
) -> None:
    sent, code = on(terminal, environment | {"TERM": "xterm-256color"})
    assert code == 0
    assert ESCAPE in sent
    assert set(re.findall(r"\x1b\[[\d;]*(.)", sent)) == {"m"}, "nothing but styles: no flicker"
    plain = re.sub(r"\x1b\[[\d;]*m", "", sent)
    assert nameless(plain) == nameless(shown(environment).stdout)


@pytest.mark.slow
@pytest.mark.parametrize("plain", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "dumb"])
def test_no_escape_code_where_none_is_wanted(
    environment: dict[str, str], terminal: tuple[int, int], plain: dict[str, str]
) -> None:
    sent, code = on(terminal, environment | {"TERM": "xterm-256color"} | plain)
    assert code == 0
    assert ESCAPE not in sent


STOPS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), STOPS, ids=["ctrl-c", "term", "kill"])
@pytest.mark.parametrize("moment", ["process", "sub-agent", "no output", "kill -9", "opens"])
def test_when_it_is_stopped_nothing_is_left(
    environment: dict[str, str], tmp_path: Path, moment: str, number: signal.Signals, code: int
) -> None:
    demo = subprocess.Popen(
        COMMAND, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8"
    )
    assert demo.stdout is not None
    with demo.stdout as lines:
        for line in lines:
            if moment in line:
                break
        else:
            pytest.fail(f"it never said {moment!r}")
        demo.send_signal(number)
        rest = lines.read()
    assert demo.wait(PATIENCE_S) == code
    assert "Traceback" not in rest
    assert gone(tmp_path)
    if number is not signal.SIGKILL:
        assert list(tmp_path.iterdir()) == []
    if number is signal.SIGINT:
        assert rest.endswith("Stopped. Nothing is left running.\n")


@pytest.mark.slow
def test_whoever_stops_reading_stops_it(environment: dict[str, str], tmp_path: Path) -> None:
    demo = subprocess.Popen(
        COMMAND, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8"
    )
    assert demo.stdout is not None
    assert demo.stderr is not None
    demo.stdout.readline()
    demo.stdout.close()
    with demo.stderr as errors:
        assert errors.read() == ""
    assert demo.wait(PATIENCE_S) == 1
    assert gone(tmp_path)
    assert list(tmp_path.iterdir()) == []
