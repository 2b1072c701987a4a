"""What nobody drives is found without reading what others drive: workers look all the time."""

from pathlib import Path
from typing import Any

import pytest

from windlass.core.events import RunStarted
from windlass.core.messages import TextPart
from windlass.journals.sqlite import queries
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing.samples import note_facts

pytestmark = [pytest.mark.slow, pytest.mark.realtime]


@pytest.mark.contract("F3")
async def test_the_records_of_driven_sessions_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F3: a look costs as much as there is to take over, not as much as is at work."""
    caught_up: list[str] = []
    catch_up = queries.catch_up_if_sound

    def count(connection: Any, end: Any) -> Any:
        caught_up.append(end.summary.session)
        return catch_up(connection, end)

    monkeypatch.setattr(queries, "catch_up_if_sound", count)
    with SqliteJournal(tmp_path / "s.db") as journal:
        for name in ("driven", "abandoned"):
            await journal.append(name, [RunStarted(1, (TextPart("Go."),), seq=1, at=1e9)])
            await journal.append(name, note_facts(2, 3))
        lease = await journal.lease("driven")
        caught_up.clear()
        found = await journal.list_abandoned()
        assert [summary.session for summary in found] == ["abandoned"]
        assert caught_up == ["abandoned"]
        lease.release()
        found = await journal.list_abandoned()
        assert {summary.session for summary in found} == {"abandoned", "driven"}
