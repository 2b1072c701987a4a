"""Documents as text: real ones, broken ones, and ones that are made to do harm."""

import inspect
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pypdf
import pytest

from document_files import PDF, blank_pdf, packed, sheet_file, slides_file, slow_pdf, word_file
from windlass import ConfigError, FilePart, ImagePart, ModelRetry, attach, document_text
from windlass.document_text import (
    CUT_NOTE,
    UnreadableDocument,
    is_document,
    read_document_text,
    render_pdf_pages,
)
from windlass.knowledge.documents import UnreadableFile, read_document
from windlass.tools import Workspace, file_tools

pytestmark = pytest.mark.slow

DOCUMENTS: dict[str, tuple[Callable[[], bytes], str]] = {
    "a.pdf": (lambda: PDF, "The jib: 2 t"),
    "a.docx": (word_file, "# The crane\nIt lifts forty tonnes.\njib | 2 t"),
    "a.pptx": (slides_file, "## Slide 1\nThe crane\nForty tonnes\nNotes: Say it slowly."),
    "a.XLSX": (sheet_file, "## Parts\npart | tonnes\njib | 2"),
}


@pytest.mark.parametrize("name", DOCUMENTS)
async def test_a_document_is_read_as_text(name: str) -> None:
    """T1, K1: the same text for the tool `read`, for attachments and for knowledge."""
    make, text = DOCUMENTS[name]
    assert await read_document_text(name, make()) == text
    assert (await read_document(name, make())).text == text
    part = attach(make(), name=name, as_text=True)
    assert part == FilePart("text/plain", f"{name}.txt", text.encode())


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Any]:
    tools = {tool.name: tool for tool in file_tools(Workspace(tmp_path))}

    async def read_file(**arguments: Any) -> Any:
        result = tools["read"].function(**arguments)
        return await result if inspect.isawaitable(result) else result

    return read_file


async def test_read_shows_documents_in_pages_and_scans_as_pictures(
    tmp_path: Path, read: Callable[..., Any]
) -> None:
    """T10."""
    (tmp_path / "a.docx").write_bytes(word_file())
    page = await read(path="a.docx", offset=2, limit=1)
    assert page.startswith("     2\tIt lifts forty tonnes.")
    (tmp_path / "scan.pdf").write_bytes(blank_pdf())
    note, page = await read(path="scan.pdf")
    assert "has no text" in note.text
    assert isinstance(page, ImagePart)
    assert page.data is not None
    assert page.data.startswith(b"\x89PNG")


async def test_a_page_is_rendered_small_however_large_it_claims_to_be() -> None:
    writer = pypdf.PdfWriter()
    for _ in range(9):
        writer.add_blank_page(14_400, 200)
    out = io.BytesIO()
    writer.write(out)
    pages = await render_pdf_pages(out.getvalue())
    assert len(pages) == document_text.LIMITS.rendered_pages
    assert all(int.from_bytes(page[16:20], "big") <= 1_001 for page in pages)


LAUGHS = (
    "<!DOCTYPE w [<!ENTITY a '"
    + "ha" * 50
    + "'>"
    + "".join(f"<!ENTITY {chr(98 + at)} '{f'&{chr(97 + at)};' * 20}'>" for at in range(8))
)


def laughing_file() -> bytes:
    """A Word file whose text is an entity that would unfold to billions of letters."""
    source = zipfile.ZipFile(io.BytesIO(word_file()))
    files: dict[str, str | bytes] = {name: source.read(name) for name in source.namelist()}
    body = str(files["word/document.xml"], "utf-8")  # pyright: ignore[reportArgumentType]
    body = body.replace("?>", f"?>{LAUGHS}]>", 1).replace("It lifts", "&i; It lifts")
    return packed({**files, "word/document.xml": body})


def bomb() -> bytes:
    return packed({"word/document.xml": b"\0" * 2**23, "[Content_Types].xml": "x"})


def lying_bomb() -> bytes:
    """An archive whose directory says that its large file is small."""
    data = bytearray(bomb())
    size = (2**23).to_bytes(4, "little")
    small = (99).to_bytes(4, "little")
    return bytes(data.replace(size, small))


def encrypted() -> bytes:
    data = bytearray(packed({"word/document.xml": "x"}))
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + at] |= 1
    return bytes(data)


def limit(monkeypatch: pytest.MonkeyPatch, **limits: int) -> None:
    monkeypatch.setattr(document_text, "LIMITS", document_text.LIMITS._replace(**limits))


HARMFUL = {
    "bomb": bomb,
    "lying": lying_bomb,
    "many": lambda: packed({f"f{at}": "" for at in range(60)}),
    "encrypted": encrypted,
    "cut": lambda: word_file()[:2000],
    "empty": lambda: b"",
    "not_an_archive": lambda: b"\0" * 99,
    "no_document": lambda: packed({"a.txt": "hello"}),
}


@pytest.mark.parametrize("make", HARMFUL.values(), ids=HARMFUL.keys())
@pytest.mark.parametrize("name", ["a.docx", "a.pptx", "a.xlsx"])
async def test_a_harmful_document_is_refused(
    make: Callable[[], bytes], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T10: in one line, whatever it is, before its content fills the memory."""
    limit(monkeypatch, unpacked_bytes=2**22, entries=50)
    with pytest.raises(UnreadableDocument) as raised:
        await read_document_text(name, make())
    assert "\n" not in str(raised.value)
    with pytest.raises(UnreadableFile):
        await read_document(name, make())


async def test_a_valid_document_with_a_bomb_beside_it_is_not_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """T10: the archive as a whole counts, and not what a reader happens to look at."""
    limit(monkeypatch, unpacked_bytes=2**22)
    source = zipfile.ZipFile(io.BytesIO(word_file()))
    files: dict[str, str | bytes] = {name: source.read(name) for name in source.namelist()}
    with pytest.raises(UnreadableDocument, match="too large"):
        await read_document_text("a.docx", packed({**files, "word/media/a.bin": b"\0" * 2**23}))


async def test_entities_are_not_unfolded() -> None:
    try:
        text = await read_document_text("a.docx", laughing_file())
    except UnreadableDocument:
        return
    assert len(text) < 1_000


async def test_a_long_document_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, text_chars=20)
    text = await read_document_text("a.docx", word_file())
    assert text.startswith("# The crane\nIt lifts")
    assert text.endswith(CUT_NOTE)
    limit(monkeypatch, pages=0, text_chars=1_000)
    assert await read_document_text("a.pdf", PDF) == CUT_NOTE


@pytest.mark.contract("T10")
@pytest.mark.slow
async def test_a_page_that_takes_for_ever_ends_with_its_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(document_text, "SECONDS_MAX", 3.0)
    with pytest.raises(UnreadableDocument, match="it takes more than 3 seconds"):
        await read_document_text("a.pdf", slow_pdf())


async def test_a_broken_document_is_told_to_the_model(
    tmp_path: Path, read: Callable[..., Any]
) -> None:
    """T7."""
    (tmp_path / "a.docx").write_bytes(b"\0PK")
    with pytest.raises(ModelRetry, match=r"a\.docx.*not a readable archive"):
        await read(path="a.docx")
    (tmp_path / "b.pdf").write_bytes(b"%PDF-1.7\n\0nothing")
    with pytest.raises(ModelRetry, match=r"b\.pdf.*cannot be read"):
        await read(path="b.pdf")


async def test_a_missing_reader_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_text, "find_spec", lambda package: None)
    with pytest.raises(ConfigError, match=r"windlass\[documents\]"):
        await read_document_text("a.docx", word_file())
    with pytest.raises(ConfigError, match=r"windlass\[documents\]"):
        await render_pdf_pages(PDF)


async def test_what_is_not_a_document_stays_as_it_is(
    tmp_path: Path, read: Callable[..., Any]
) -> None:
    assert not is_document("a.csv")
    (tmp_path / "notes.docx").write_text("only words")
    assert "only words" in await read(path="notes.docx")
    with pytest.raises(ConfigError, match="not a document"):
        attach(b"x", name="a.csv", as_text=True)
    with pytest.raises(ConfigError, match="archive"):
        attach(b"x", name="a.docx", as_text=True)
