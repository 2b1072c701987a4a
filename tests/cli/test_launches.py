"""How sessions are named, found again and set up as they were."""

from decimal import Decimal
from pathlib import Path

import pytest

from windlass.cli.session_picker import ago
from windlass.core.errors import ConfigError, NothingToDo
from windlass.core.events import RunEnded, RunStarted
from windlass.core.messages import Text
from windlass.core.setup import ModelInfo, Setup
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.project.launches import (
    Launch,
    context_of,
    find,
    latest,
    launch_of,
    mark_of,
    new_session,
    of_folder,
    recorded,
)
from windlass.project.layers import from_flags
from windlass.project.settings import KEYS, Settings

pytestmark = pytest.mark.realtime
SETUP = Setup(model=ModelInfo("m"))


def test_a_name_says_its_folder_and_is_never_the_same() -> None:
    one, other = Path("/a/My Project!"), Path("/b/My Project!")
    assert mark_of(one).startswith("my-project-")
    assert mark_of(one) != mark_of(other)
    assert new_session(one) != new_session(one)
    assert mark_of(Path("/")).startswith("folder-")


async def begun(journal: SqliteJournal, session: str, at: float, *, ended: bool = True) -> None:
    facts = [RunStarted(1, (Text("go"),), SETUP, seq=1, at=at)]
    await journal.append(session, facts)
    if ended:
        await journal.append(session, [RunEnded("completed", seq=2, at=at)])


async def test_sessions_are_found_by_folder_and_by_a_part_of_their_name(tmp_path: Path) -> None:
    here, there = Path("/p/here"), Path("/p/there")
    with SqliteJournal(tmp_path / "j.db") as journal:
        names = [f"{mark_of(here)}aaaa1111", f"{mark_of(here)}aaaa2222"]
        await begun(journal, names[0], 1.0, ended=False)
        await begun(journal, names[1], 2.0)
        await begun(journal, f"{mark_of(there)}bbbb3333", 3.0)
        assert [one.session for one in await of_folder(journal, here)] == names[::-1]
        assert (await latest(journal, here)).session == names[1]
        assert (await latest(journal, here, unfinished=True)).session == names[0]
        assert (await find(journal, "bbbb")).session.endswith("bbbb3333")
        assert (await find(journal, names[0])).session == names[0]
        with pytest.raises(ConfigError, match="'aaaa' is a part of 2 names"):
            await find(journal, "aaaa")
        with pytest.raises(NothingToDo, match="there is no session 'cccc'"):
            await find(journal, "cccc")
        with pytest.raises(NothingToDo, match="no session of /p/other"):
            await latest(journal, Path("/p/other"))


def test_a_launch_is_the_settings_again_when_it_is_read_back() -> None:
    settings = Settings(
        model="a:b", tools=("read", "x*"), max_usd=Decimal("0.5"), timeout=90.0, max_steps=None
    )
    launch = launch_of(settings, Path("/p"), {"type": "object"})
    fact = RunStarted(1, (Text("go"),), context=dict(context_of(launch)))
    again = recorded([fact])
    assert again is not None
    assert again.folder == "/p"
    values = from_flags(again.flags, "/p").values
    assert Settings(**{key: values[key] for key in values}) == settings  # pyright: ignore[reportArgumentType]
    assert set(values) <= {key for key, about in KEYS.items() if about.of_agent}


def test_what_is_no_launch_is_none() -> None:
    assert recorded([]) is None
    assert recorded([RunStarted(1, (Text("go"),))]) is None
    assert recorded([RunStarted(1, (Text("go"),), context={"windlass": 3})]) is None
    assert Launch("/p").flags == {}


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(5, "just now"), (61, "1 minute ago"), (7200, "2 hours ago"), (90_000, "1 day ago")],
)
def test_how_long_ago(seconds: float, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1_000_000.0)
    assert ago(1_000_000.0 - seconds) == told
