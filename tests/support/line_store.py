"""A program's own store of facts, as small as it can be: a folder, and a file for each append."""

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec

from windlass.core.errors import JournalFailed, SessionBusy
from windlass.core.events import Fact
from windlass.core.session_summary import SessionSummary

_decode = msgspec.json.Decoder(list[Fact]).decode


class LineStore:
    """Reads and appends. Of two appends with the same number, the one that makes the file wins."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def read(self, session: str, after: int = 0) -> Sequence[Fact]:
        files = sorted((self._folder / quote(session, safe="")).glob("[0-9]*"))
        return [fact for file in files for fact in _decode(file.read_bytes())][after:]

    async def append(self, session: str, facts: Sequence[Fact], row: SessionSummary) -> None:
        del row  # It lists nothing.
        last = len(await self.read(session))
        first = facts[0].seq if facts else last + 1
        if 1 <= first <= last:
            raise SessionBusy(f"session {session!r}: record {first} is taken")
        if [fact.seq for fact in facts] != list(range(last + 1, last + len(facts) + 1)):
            raise JournalFailed(f"session {session!r}: record {first} does not follow {last}")
        folder = self._folder / quote(session, safe="")
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f"draft {secrets.token_hex(8)}"
        draft.write_bytes(msgspec.json.encode(facts))
        try:
            if facts:
                os.link(draft, folder / f"{first:09}")
        except FileExistsError:
            raise SessionBusy(f"session {session!r}: record {first} is taken") from None
        finally:
            draft.unlink()
