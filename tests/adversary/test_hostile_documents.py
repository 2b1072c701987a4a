"""Documents that are made to take the runtime down: a reader of its own pays for them (T18)."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

pytest.importorskip("docx", reason="needs the extra `documents`")

from document_files import PDF, long_word_file, sheet_file, slides_file, slow_pdf, vast_sheet
from document_files import word_file as small_word_file
from mcp_peers import wait_until
from windlass import ConfigError, attach, document_text
from windlass.core.messages import ToolResult
from windlass.document_text import CUT_NOTE, UnreadableDocument, read_document_text
from windlass.knowledge import Scope, SqliteKnowledge, ingest
from windlass.testing.tools import call_context, cleared_call
from windlass.tools import Workspace, file_tools
from windlass.tools.processes import HAS_PROC, ProcessInfo, find_descendants
from windlass.tools.toolbox import Toolbox

pytestmark = [pytest.mark.slow, pytest.mark.realtime, pytest.mark.contract("T18")]
needs_proc = pytest.mark.skipif(not HAS_PROC, reason="processes are found by /proc")
PATIENCE_S = 10


def read_call(root: Path, path: str) -> Coroutine[Any, Any, ToolResult]:
    """Call the tool `read` through a toolbox, as a run does."""
    box = Toolbox(file_tools(Workspace(root)))
    spec = next(spec for spec in box.specs if spec.name == "read")
    return box.run(cleared_call(spec, {"path": path}), call_context())


def find_readers(runtime: int) -> list[ProcessInfo]:
    """The readers at work, and not the server that forks them."""
    servers = [
        process.pid
        for process in find_descendants(runtime)
        if b"windlass.readers.server" in process.read_proc_file("cmdline")
        and process.parent == runtime
    ]
    return find_descendants(*servers) if servers else []


async def test_a_sheet_with_two_far_cells_is_refused(tmp_path: Path) -> None:
    """Its 16 billion cells would take 512 GiB, and end the process that asks for them."""
    assert len(vast_sheet()) < 2_000
    (tmp_path / "a.xlsx").write_bytes(vast_sheet())
    result = await read_call(tmp_path, "a.xlsx")
    assert result.kind == "error"
    assert "'a.xlsx': its reader crashed" in result.text
    with pytest.raises(ConfigError, match="crashed"):
        attach(tmp_path / "a.xlsx", as_text=True)
    (tmp_path / "b.md").write_text("words")
    store = SqliteKnowledge(tmp_path / "notes.db")
    report = await ingest(store, tmp_path, Scope("project", "p"), globs=["*.xlsx", "*.md"])
    assert report.kept == 1
    assert ["crashed" in reason for _, reason in report.failed] == [True]


async def test_a_reader_cannot_take_more_memory_than_its_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same document is read with more memory. A parser may report the lack of it in its way."""
    document = long_word_file(20, "x" * 4_000_000)
    assert len(document) < 200_000
    assert (await read_document_text("a.docx", document)).endswith(CUT_NOTE)
    monkeypatch.setattr(document_text, "PROCESS_BYTES_MAX", 128 * 2**20)
    with pytest.raises(UnreadableDocument, match=r"more than 128 MiB of memory|cannot be read"):
        await read_document_text("a.docx", document)


async def test_a_reader_cannot_return_more_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_text, "RESULT_BYTES_MAX", 50_000)
    with pytest.raises(UnreadableDocument, match="returned too much"):
        await read_document_text("a.docx", long_word_file(20, "x" * 10_000))


def test_no_document_is_parsed_in_the_process_itself(tmp_path: Path) -> None:
    """Whichever way it comes in: the packages that parse documents are never loaded here."""
    made = {"a.pdf": PDF, "a.docx": small_word_file(), "a.pptx": slides_file()}
    made["a.xlsx"] = made["a.xlsm"] = sheet_file()
    for name, data in made.items():
        (tmp_path / name).write_bytes(data)
    program = dedent("""
        import asyncio, sys
        from windlass import attach
        from windlass.knowledge import Scope, SqliteKnowledge, ingest
        from windlass.tools import Workspace, file_tools

        async def main(folder, names):
            read = file_tools(Workspace(folder))[0].function
            for name in names:
                assert "\\t" in await read(path=name), name
            store = SqliteKnowledge(f"{folder}/notes.db")
            report = await ingest(store, folder, Scope("project", "p"), globs=["a.*"])
            assert report.kept == len(names), report

        folder, *names = sys.argv[1:]
        asyncio.run(main(folder, names))
        for name in names:
            attach(f"{folder}/{name}", as_text=True)
        parsers = {"docx", "lxml", "pptx", "pypdf", "python_calamine", "pypdfium2"}
        print(sorted(parsers & set(sys.modules)))
    """)
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path, *made],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


@asynccontextmanager
async def slow_reading() -> AsyncGenerator[asyncio.Task[str]]:
    """A document that keeps its reader busy for hours, and the reading of it."""
    reading = asyncio.create_task(read_document_text("a.pdf", slow_pdf()))
    try:
        await wait_until(lambda: bool(find_readers(os.getpid())), PATIENCE_S)
        yield reading
    finally:
        reading.cancel()
        await asyncio.wait({reading})


@needs_proc
async def test_a_cancel_kills_the_reader() -> None:
    """T6."""
    async with slow_reading() as reading:
        reading.cancel()
        await asyncio.wait({reading})
        await wait_until(lambda: not find_readers(os.getpid()), PATIENCE_S)


@needs_proc
async def test_a_call_that_is_cancelled_kills_the_reader(tmp_path: Path) -> None:
    """T6: through the tool `read`, which reads its file in a thread."""
    (tmp_path / "a.pdf").write_bytes(slow_pdf())
    call = asyncio.create_task(read_call(tmp_path, "a.pdf"))
    await wait_until(lambda: bool(find_readers(os.getpid())), PATIENCE_S)
    call.cancel()
    await asyncio.wait({call})
    await wait_until(lambda: not find_readers(os.getpid()), PATIENCE_S)


@needs_proc
async def test_the_end_of_its_time_kills_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_text, "SECONDS_MAX", 3.0)
    async with slow_reading() as reading:
        with pytest.raises(UnreadableDocument, match="more than 3 seconds"):
            await reading
        await wait_until(lambda: not find_readers(os.getpid()), PATIENCE_S)


@needs_proc
async def test_a_server_of_readers_that_is_killed_is_replaced() -> None:
    """Its reader dies with it, the document is refused, and the next one is read."""
    async with slow_reading() as reading:
        readers = find_readers(os.getpid())
        os.kill(readers[0].parent, signal.SIGKILL)
        with pytest.raises(UnreadableDocument, match="crashed"):
            await reading
        await wait_until(lambda: not any(one.is_same_process() for one in readers), PATIENCE_S)
    assert await read_document_text("a.pdf", PDF) == "The jib: 2 t"


@needs_proc
async def test_no_reader_outlives_a_runtime_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(slow_pdf())
    program = "import sys; from windlass import attach; attach(sys.argv[1], as_text=True)"
    command = [sys.executable, "-c", program, str(tmp_path / "a.pdf")]
    runtime = await asyncio.create_subprocess_exec(*command)
    try:
        await wait_until(lambda: bool(find_readers(runtime.pid)), PATIENCE_S)
        helpers = find_descendants(runtime.pid)
        assert len(helpers) == 2
    finally:
        runtime.kill()
        await runtime.wait()
    await wait_until(lambda: not any(one.is_same_process() for one in helpers), PATIENCE_S)


async def test_many_documents_at_once_are_all_read() -> None:
    texts = await asyncio.gather(
        *(read_document_text("a.docx", small_word_file()) for _ in range(20))
    )
    assert len(texts) == 20
    assert len(set(texts)) == 1
