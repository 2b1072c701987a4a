"""A worker is killed again and again while others speak to its run: real processes, one file."""

import asyncio
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import windlass
from control_child import SESSION, has_ended
from windlass.core.errors import NothingToDo
from windlass.core.fold.control import mail_place
from windlass.journals.sqlite.journal import SqliteJournal

CHILD = Path(__file__).parent.parent / "support" / "control_child.py"
KILLS = 12


def spawn(folder: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, CHILD, folder])


async def speak(journal: SqliteJournal, chance: random.Random, number: int) -> int:
    """Say one thing to the run; returns the number of the message, 0 if it was a fact at once."""
    what = chance.choice(["steer", "steer", "steer", "pause", "resume"])
    try:
        if what == "steer":
            receipt = await windlass.steer(journal, SESSION, f"Number {number}.", by="ada")
        elif what == "pause":
            receipt = await windlass.pause(journal, SESSION, by="ada")
        else:
            receipt = await windlass.resume(journal, SESSION, by="ada")
    except NothingToDo:
        return 0  # It is not paused.
    return receipt.mail.number if receipt.mail is not None else 0


async def kill_and_speak(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    child = spawn(folder)
    posted: list[int] = []
    with SqliteJournal(folder / "s.db") as journal:
        try:
            while not await journal.read(SESSION):  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.02)
            for kill in range(KILLS):
                for number in range(3):
                    posted.append(await speak(journal, chance, 3 * kill + number))
                    await asyncio.sleep(chance.random() * 0.15)
                child.kill()
                child.wait()
                child = spawn(folder)
                await asyncio.sleep(chance.random() * 0.6)
            await windlass.cancel(journal, SESSION, by="ada")
            while not await has_ended(journal):  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.02)
            child.wait()
            facts = await journal.read(SESSION)
        finally:
            child.kill()
            child.wait()
    taken = Counter(mail_place(fact) for fact in facts)
    del taken[None]
    assert set(taken.values()) <= {1}
    assert {("control", number) for number in posted if number} <= set(taken)
    sent = (folder / "sent.txt").read_text("utf-8").split()
    assert len(sent) == len(set(sent))


@pytest.mark.slow
@pytest.mark.realtime
@pytest.mark.leaves_tasks
@pytest.mark.contract("D4")
@pytest.mark.parametrize("seed", [1, 2])
async def test_each_message_is_taken_once_or_refused_whatever_is_killed(
    tmp_path: Path, seed: int
) -> None:
    """D4, J2: each acknowledged message has exactly one fact, and no effect happens twice."""
    await kill_and_speak(tmp_path, seed)
