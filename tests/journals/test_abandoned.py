"""Lists are made of rows alone: workers look for what nobody drives all the time."""

from pathlib import Path

import pytest

from windlass.journals.sqlite import queries
from windlass.journals.sqlite.journal import SqliteJournal
from windlass.testing.catalog import names_of, run_facts
from windlass.testing.journals import append_facts
from windlass.testing.samples import note_facts

pytestmark = [pytest.mark.realtime]


@pytest.mark.contract("F3")
async def test_no_list_reads_the_records_of_a_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F3: a look costs as much as there is to take over, not as much as was ever recorded."""

    def read_records(*_: object) -> None:
        raise AssertionError("records were read")

    with SqliteJournal(tmp_path / "s.db") as journal:
        for name in ("driven", "abandoned"):
            await append_facts(journal, name, run_facts(at=1.0, ended=False))
            await append_facts(journal, name, note_facts(2, 3))
        lease = await journal.lease("driven")
        monkeypatch.setattr(queries, "walk_records", read_records)
        assert names_of(await journal.list_abandoned()) == ["abandoned"]
        assert [one.facts for one in await journal.sessions()] == [3, 3]
        lease.release()
        assert set(names_of(await journal.list_abandoned())) == {"abandoned", "driven"}
