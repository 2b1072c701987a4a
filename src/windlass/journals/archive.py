"""Sessions that leave a journal: as a copy that goes its own way, or as lines of a file.

A file holds one JSON object a line: what it is; then the records, each exactly as the codec has it
and with its hash in the chain, and each attachment once, before the first record that uses it; then
where the session ends. So a line that was changed, moved or lost shows, and so does a missing tail.
Everything here needs nothing of a journal but to read and to append.
"""

import base64
import binascii
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import metadata
from itertools import islice
from typing import IO, Protocol, runtime_checkable

import msgspec
from msgspec.structs import replace

from windlass.core.errors import ConfigError, JournalCorrupt, JournalFailed, SessionBusy
from windlass.core.events import RULES, CallFinished, CallJudged, Fact, RunResumed
from windlass.core.fold.run import fold
from windlass.core.messages import ToolResult
from windlass.core.state import CallState, State
from windlass.core.verdicts import Ask
from windlass.journals.chain import ChainLink, chain_hash, chain_root
from windlass.journals.codec import UnreadableRecord, blob_name, decode_fact, encode_fact
from windlass.ports import Journal

FILE_FORMAT = "windlass-session"
FILE_VERSION = 1
"""Of the file; the records have one of their own."""
BATCH_RECORDS = 500
"""Records that are appended together."""
FORKS_MAX = 1_000
"""Forks of one session at one record, before their names are not looked for any longer."""

ProgressCallback = Callable[[int], None]
"""Is told how many records are done."""


@runtime_checkable
class DeletingJournal(Protocol):
    """A journal that can take a session back."""

    async def delete(self, session: str) -> bool: ...


class _ArchiveHead(msgspec.Struct, forbid_unknown_fields=True):
    """What the file is."""

    format: str
    version: int
    session: str
    windlass: str = ""


class _ArchiveLine(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A record, an attachment, or the end."""

    hash: str
    record: msgspec.Raw = msgspec.Raw(b"")
    blob: str | None = None
    end: int | None = None


_encode_json = msgspec.json.Encoder().encode
_decode_head = msgspec.json.Decoder(_ArchiveHead).decode
_decode_line = msgspec.json.Decoder(_ArchiveLine).decode


# ── fork ─────────────────────────────────────────────────────────────────────


async def fork(journal: Journal, session: str, at: int, into: str | None = None) -> str:
    """Begin a new session with the first `at` records of another one; returns its name.

    Without `into` it is named after where it comes from: `<session>~<at>`. The old session is only
    read, and nothing that happens in one of the two is seen in the other.

    What had begun before record `at` and is not over there goes on in the old session, or went on;
    the new one cannot know. A request that was out counts as all that was reserved for it, as after
    a crash. A call that may have taken effect is not run again under a key of the new session: it
    is settled at once as one whose outcome is unknown, by the rule of the run (`on_unknown`): the
    model is told, or a person is asked. Reads are just made again. A call that a person has allowed
    and that had not begun is asked about once more.
    """
    facts = await journal.read(session)
    if not facts:
        raise ConfigError(f"there is no session {session!r}")
    if not 1 <= at <= len(facts):
        raise ConfigError(f"session {session!r} has records 1 to {len(facts)}, and no record {at}")
    told = list(facts[:at])
    told += _settle_open_calls(fold(session, told))
    for name in [into] if into else islice(_fork_names(session, at), FORKS_MAX):
        with suppress(SessionBusy):
            await journal.append(name, told)
            return name
    raise ConfigError(f"session {into or session!r} exists already; give another name")


def _fork_names(session: str, at: int) -> Iterator[str]:
    yield f"{session}~{at}"
    yield from (f"{session}~{at}.{nth}" for nth in range(2, FORKS_MAX + 1))


def _settle_open_calls(state: State) -> list[Fact]:
    """What a copy must say of the effects that had begun: another session knows how they ended."""
    setup, calls = state.setup, state.step.calls if state.step else ()
    begun = [call for call in calls if call.phase in ("started", "interrupted")]
    allowed = [call for call in calls if call.phase == "cleared" and call.answered]
    if setup is None or not (begun or allowed):
        return []
    specs = {call.id: setup.find_tool(call.call.name) for call in begun}
    effects = {name: spec.effect if spec else "write" for name, spec in specs.items()}
    unsure = [call for call in begun if effects[call.id] != "read"]
    # Writes come last: once they are settled, a driver asks anew what to do.
    unsure.sort(key=lambda call: effects[call.id] == "write")
    ask = setup.rules.on_unknown == "ask"
    facts: list[Fact] = [RunResumed(rules=RULES)] if unsure or allowed else []
    # A person's yes is for one call: it does not run in two sessions.
    told = f"was allowed in session {state.session}. May it be called here too?"
    facts += (CallJudged(one.id, Ask(f"{one.call.name} {told}", "fork")) for one in allowed)
    facts += (_settle_unknown_call(call, state.session, ask=ask) for call in unsure)
    return [replace(fact, seq=state.seq + nth, at=state.at) for nth, fact in enumerate(facts, 1)]


def _settle_unknown_call(call: CallState, session: str, *, ask: bool) -> CallFinished | CallJudged:
    if ask:
        question = f"{call.call.name} had started in session {session}. Run it again here?"
        return CallJudged(call.id, Ask(question, "interrupted"))
    told = "Interrupted: it had started, and whether it took effect is not known."
    return CallFinished(call.id, ToolResult.from_text("unknown", told))


# ── export ───────────────────────────────────────────────────────────────────


async def export_session(
    journal: Journal,
    session: str,
    write: Callable[[bytes], object],
    progress: ProgressCallback | None = None,
) -> int:
    """Write a session, line by line; returns how many records it has."""
    facts = await journal.read(session)
    if not facts:
        raise ConfigError(f"there is no session {session!r}")
    for at, line in _archive_lines(session, facts):
        write(line + b"\n")
        if progress is not None:
            progress(at)
    return len(facts)


def _archive_lines(session: str, facts: Sequence[Fact]) -> Iterator[tuple[int, bytes]]:
    yield 0, _encode_json(_ArchiveHead(FILE_FORMAT, FILE_VERSION, session, _windlass_version()))
    last, written = chain_root(session), set[str]()
    for fact in facts:
        record = encode_fact(fact)
        for name, data in record.blobs:
            if name not in written:
                written.add(name)
                yield (
                    last.seq,
                    _encode_json(_ArchiveLine(name, blob=base64.b64encode(data).decode())),
                )
        last = ChainLink(fact.seq, chain_hash(last.hash, record.body))
        yield last.seq, _encode_json(_ArchiveLine(last.hash.hex(), msgspec.Raw(record.body)))
    yield last.seq, _encode_json(_ArchiveLine(last.hash.hex(), end=last.seq))


def _windlass_version() -> str:
    try:
        return metadata.version("windlass")
    except metadata.PackageNotFoundError:
        return ""


# ── import ───────────────────────────────────────────────────────────────────


async def import_session(
    journal: Journal,
    file: IO[bytes],
    into: str | None = None,
    progress: ProgressCallback | None = None,
) -> str:
    """Take in a session from a file that can be read twice; returns its name.

    All of the file is checked before any of it is written. Raises JournalCorrupt, with the line, if
    it is not as it was exported, and ConfigError if there is such a session already. Under another
    name (`into`) the records are chained anew, to that name.
    """
    for _ in _ArchiveReader(file).read_facts():
        pass
    reader, done = _ArchiveReader(file), 0
    session, facts = into or reader.session, reader.read_facts()
    try:
        while batch := list(islice(facts, BATCH_RECORDS)):
            await journal.append(session, batch)
            done = batch[-1].seq
            if progress is not None:
                progress(done)
    except SessionBusy:
        if done:
            raise
        raise ConfigError(f"session {session!r} exists already; give another name") from None
    except BaseException:
        # Half a session is none; and a journal that cannot delete keeps a true beginning.
        if done and isinstance(journal, DeletingJournal):
            with suppress(Exception):
                await journal.delete(session)
        raise
    return session


class _ArchiveReader:
    """Reads a file from its first line to its last, and believes no line that it cannot prove."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._file.seek(0)
        self._line_number = 0
        self._blob_offsets: dict[str, int] = {}
        """Where the line of each attachment begins: they are not held in memory."""
        head = self._read_head()
        self.session = head.session

    def _read_head(self) -> _ArchiveHead:
        try:
            head = _decode_head(self._next_line())
        except msgspec.MsgspecError:
            raise self._corrupt_error("this is no exported session") from None
        if head.format != FILE_FORMAT:
            raise self._corrupt_error("this is no exported session")
        if head.version > FILE_VERSION:
            told = f"the file has version {head.version}, this Windlass knows {FILE_VERSION}: upgrade it"
            raise JournalFailed(told)
        return head

    def read_facts(self) -> Iterator[Fact]:
        """The facts in their order; raises JournalCorrupt where the file is not as it was."""
        last = chain_root(self.session)
        while True:
            begins = self._file.tell()
            line = self._read_line()
            if line.end is not None:
                break
            if line.blob is not None:
                self._blob_offsets[line.hash] = begins
                self._decode_attachment(line)
                continue
            body = bytes(line.record)
            last = ChainLink(last.seq + 1, chain_hash(last.hash, body))
            if last.hash.hex() != line.hash:
                raise self._corrupt_error(f"record {last.seq} was changed, moved or taken out")
            yield self._decode_record(last.seq, body)
        if (line.end, line.hash) != (last.seq, last.hash.hex()):
            raise self._corrupt_error(
                f"the session ends at record {line.end}, and not at {last.seq}"
            )
        if self._file.readline().strip():
            raise self._corrupt_error("there is more after the end")

    def _decode_record(self, seq: int, body: bytes) -> Fact:
        try:
            fact = decode_fact(body, self._fetch_blob)
        except UnreadableRecord as error:
            raise self._corrupt_error(f"record {seq} cannot be read: {error}") from None
        if fact.seq != seq:
            raise self._corrupt_error(f"record {seq} says that it is record {fact.seq}")
        return fact

    def _fetch_blob(self, name: str) -> bytes:
        begins, here = self._blob_offsets.get(name), self._file.tell()
        if begins is None:
            raise UnreadableRecord(f"its attachment {name} is missing")
        self._file.seek(begins)
        line = _decode_line(self._file.readline())
        self._file.seek(here)
        return self._decode_attachment(line)

    def _decode_attachment(self, line: _ArchiveLine) -> bytes:
        try:
            data = base64.b64decode(line.blob or "", validate=True)
        except binascii.Error:
            data = b""
        if blob_name(data) != line.hash:
            raise self._corrupt_error(f"attachment {line.hash} was changed")
        return data

    def _read_line(self) -> _ArchiveLine:
        try:
            return _decode_line(self._next_line())
        except msgspec.MsgspecError as error:
            raise self._corrupt_error(f"it is no line of a session: {error}") from None

    def _next_line(self) -> bytes:
        line = self._file.readline()
        self._line_number += 1
        if not line.strip():
            raise self._corrupt_error("the file ends before the session does")
        return line

    def _corrupt_error(self, told: str) -> JournalCorrupt:
        return JournalCorrupt(f"line {self._line_number}: {told}")
