"""How sessions are named, found again and set up as they were."""

from decimal import Decimal
from pathlib import Path

import pytest

from windlass.core.errors import ConfigError, NothingToDo
from windlass.core.events import RunEnded, RunStarted
from windlass.core.messages import TextPart
from windlass.core.setup import ModelInfo, Setup
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.project.agents import ProjectAgent
from windlass.project.launches import SessionLaunch, build_launch, last_launch, launch_context
from windlass.project.layers import LoadedSettings, layer_from_flags
from windlass.project.session_names import (
    find_latest,
    find_session,
    new_session_name,
    session_prefix,
    sessions_of_folder,
)
from windlass.project.settings import SETTING_KEYS, Settings
from windlass.testing.journals import append_facts

pytestmark = pytest.mark.realtime
SETUP = Setup(model=ModelInfo("m"))


def test_a_name_says_its_folder_and_is_never_the_same() -> None:
    one, other = Path("/a/My Project!"), Path("/b/My Project!")
    assert session_prefix(one).startswith("my-project-")
    assert session_prefix(one) != session_prefix(other)
    assert new_session_name(one) != new_session_name(one)
    assert session_prefix(Path("/")).startswith("folder-")


async def begun(journal: SqliteJournal, session: str, at: float, *, ended: bool = True) -> None:
    facts = [RunStarted(1, (TextPart("go"),), SETUP, seq=1, at=at)]
    await append_facts(journal, session, facts)
    if ended:
        await append_facts(journal, session, [RunEnded("completed", seq=2, at=at)])


async def test_sessions_are_found_by_folder_and_by_a_part_of_their_name(tmp_path: Path) -> None:
    here, there = Path("/p/here"), Path("/p/there")
    with SqliteJournal(tmp_path / "j.db") as journal:
        names = [f"{session_prefix(here)}aaaa1111", f"{session_prefix(here)}aaaa2222"]
        await begun(journal, names[0], 1.0, ended=False)
        await begun(journal, names[1], 2.0)
        await begun(journal, f"{session_prefix(there)}bbbb3333", 3.0)
        assert [one.session for one in await sessions_of_folder(journal, here)] == names[::-1]
        assert (await find_latest(journal, here)).session == names[1]
        assert (await find_latest(journal, here, unfinished=True)).session == names[0]
        assert (await find_session(journal, "bbbb")).session.endswith("bbbb3333")
        assert (await find_session(journal, names[0])).session == names[0]
        with pytest.raises(ConfigError, match="'aaaa' is part of 2 session names"):
            await find_session(journal, "aaaa")
        with pytest.raises(NothingToDo, match="there is no session 'cccc'"):
            await find_session(journal, "cccc")
        with pytest.raises(NothingToDo, match="no session of /p/other"):
            await find_latest(journal, Path("/p/other"))


def test_a_launch_is_the_settings_again_when_it_is_read_back() -> None:
    settings = Settings(
        model="a:b", tools=("read", "x*"), max_usd=Decimal("0.5"), timeout=90.0, max_steps=None
    )
    agent = ProjectAgent(LoadedSettings(settings, {}, {}), Path("/p"), {"type": "object"})
    fact = RunStarted(1, (TextPart("go"),), context=dict(launch_context(agent)))
    again = last_launch([fact])
    assert again is not None
    assert again == build_launch(agent)
    assert again.folder == "/p"
    values = layer_from_flags(again.flags, "/p").values
    assert Settings(**{key: values[key] for key in values}) == settings  # pyright: ignore[reportArgumentType]
    assert set(values) <= {key for key, about in SETTING_KEYS.items() if about.per_agent}


def test_what_is_no_launch_is_none() -> None:
    assert last_launch([]) is None
    assert last_launch([RunStarted(1, (TextPart("go"),))]) is None
    assert last_launch([RunStarted(1, (TextPart("go"),), context={"windlass": 3})]) is None
    assert SessionLaunch("/p").flags == {}
