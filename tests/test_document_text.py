"""Documents as text: real ones, broken ones, and ones that are made to do harm."""

import io
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import docx
import pptx
import pypdf
import pytest

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

TEXT = b"BT /F1 12 Tf 20 50 Td (The jib: 2 t) Tj ET"
OBJECTS = (
    b"<</Type/Catalog/Pages 2 0 R>>",
    b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
    b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 100]/Contents 4 0 R/Resources 6 0 R>>",
    b"<</Length %d>>stream\n%b\nendstream" % (len(TEXT), TEXT),
    b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    b"<</Font<</F1 5 0 R>>>>",
)


def text_pdf(objects: Sequence[bytes]) -> bytes:
    body, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj%bendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(places) + 1)
    tail = b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n"
    return body + head + table + tail % (len(places) + 1, len(body))


PDF = text_pdf(OBJECTS)
MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
HEAD = '<?xml version="1.0"?>'
SHEET = (
    f'{HEAD}<worksheet xmlns="{MAIN}"><sheetData><row r="1">'
    '<c r="A1" t="inlineStr"><is><t>part</t></is></c>'
    '<c r="B1" t="inlineStr"><is><t>tonnes</t></is></c></row><row r="2">'
    '<c r="A2" t="inlineStr"><is><t>jib</t></is></c><c r="B2"><v>2</v></c>'
    "</row></sheetData></worksheet>"
)
WORKBOOK = (
    f'{HEAD}<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}"><sheets>'
    '<sheet name="Parts" sheetId="1" r:id="rId1"/></sheets></workbook>'
)
TYPES = (
    f'{HEAD}<Types xmlns="{PACKAGE}/content-types"><Default Extension="xml" '
    'ContentType="application/xml"/></Types>'
)


def relations(kind: str, target: str) -> str:
    return (
        f'{HEAD}<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="rId1" '
        f'Type="{OFFICE}/{kind}" Target="{target}"/></Relationships>'
    )


def packed(files: dict[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def word_file() -> bytes:
    document: Any = docx.Document()
    document.add_heading("The crane", level=1)
    document.add_paragraph("It lifts forty tonnes.")
    table = document.add_table(rows=1, cols=2)
    table.rows[0].cells[0].text = "jib"
    table.rows[0].cells[1].text = "2 t"
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def slides_file() -> bytes:
    presentation: Any = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    slide.shapes.title.text = "The crane"
    slide.placeholders[1].text = "Forty tonnes"
    slide.notes_slide.notes_text_frame.text = "Say it slowly."
    out = io.BytesIO()
    presentation.save(out)
    return out.getvalue()


def sheet_file() -> bytes:
    return packed(
        {
            "[Content_Types].xml": TYPES,
            "_rels/.rels": relations("officeDocument", "xl/workbook.xml"),
            "xl/workbook.xml": WORKBOOK,
            "xl/_rels/workbook.xml.rels": relations("worksheet", "worksheets/sheet1.xml"),
            "xl/worksheets/sheet1.xml": SHEET,
        }
    )


def blank_pdf() -> bytes:
    writer = pypdf.PdfWriter()
    writer.add_blank_page(300, 200)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


DOCUMENTS: dict[str, tuple[Callable[[], bytes], str]] = {
    "a.pdf": (lambda: PDF, "The jib: 2 t"),
    "a.docx": (word_file, "# The crane\nIt lifts forty tonnes.\njib | 2 t"),
    "a.pptx": (slides_file, "## Slide 1\nThe crane\nForty tonnes\nNotes: Say it slowly."),
    "a.XLSX": (sheet_file, "## Parts\npart | tonnes\njib | 2"),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_read_as_text(name: str) -> None:
    """T1, K1: the same text for the tool `read`, for attachments and for knowledge."""
    make, text = DOCUMENTS[name]
    assert read_document_text(name, make()) == text
    assert read_document(name, make()).text == text
    part = attach(make(), name=name, as_text=True)
    assert part == FilePart("text/plain", f"{name}.txt", text.encode())


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Any]:
    tools = {tool.name: tool for tool in file_tools(Workspace(tmp_path))}
    return tools["read"].function


def test_read_shows_documents_in_pages_and_scans_as_pictures(
    tmp_path: Path, read: Callable[..., Any]
) -> None:
    """T10."""
    (tmp_path / "a.docx").write_bytes(word_file())
    assert read(path="a.docx", offset=2, limit=1).startswith("     2\tIt lifts forty tonnes.")
    (tmp_path / "scan.pdf").write_bytes(blank_pdf())
    note, page = read(path="scan.pdf")
    assert "has no text" in note.text
    assert isinstance(page, ImagePart)
    assert page.data is not None
    assert page.data.startswith(b"\x89PNG")


def test_a_page_is_rendered_small_however_large_it_claims_to_be() -> None:
    writer = pypdf.PdfWriter()
    for _ in range(9):
        writer.add_blank_page(14_400, 200)
    out = io.BytesIO()
    writer.write(out)
    pages = render_pdf_pages(out.getvalue())
    assert len(pages) == document_text.RENDERED_PAGES_MAX
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
def test_a_harmful_document_is_refused(
    make: Callable[[], bytes], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T10: in one line, whatever it is, before its content fills the memory."""
    monkeypatch.setattr(document_text, "UNPACKED_BYTES_MAX", 2**22)
    monkeypatch.setattr(document_text, "ENTRIES_MAX", 50)
    with pytest.raises(UnreadableDocument) as raised:
        read_document_text(name, make())
    assert "\n" not in str(raised.value)
    with pytest.raises(UnreadableFile):
        read_document(name, make())


def test_a_valid_document_with_a_bomb_beside_it_is_not_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """T10: the archive as a whole counts, and not what a reader happens to look at."""
    monkeypatch.setattr(document_text, "UNPACKED_BYTES_MAX", 2**22)
    source = zipfile.ZipFile(io.BytesIO(word_file()))
    files: dict[str, str | bytes] = {name: source.read(name) for name in source.namelist()}
    with pytest.raises(UnreadableDocument, match="too large"):
        read_document_text("a.docx", packed({**files, "word/media/a.bin": b"\0" * 2**23}))


def test_entities_are_not_unfolded() -> None:
    try:
        text = read_document_text("a.docx", laughing_file())
    except UnreadableDocument:
        return
    assert len(text) < 1_000


def test_a_long_document_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_text, "TEXT_CHARS_MAX", 20)
    text = read_document_text("a.docx", word_file())
    assert text.startswith("# The crane\nIt lifts")
    assert text.endswith(CUT_NOTE)
    monkeypatch.setattr(document_text, "SECONDS_MAX", -1.0)
    assert read_document_text("a.docx", word_file()).endswith(CUT_NOTE)
    monkeypatch.setattr(document_text, "PAGES_MAX", 0)
    assert list(document_text._read_pages(PDF)) == [CUT_NOTE]


def slow_pdf() -> bytes:
    """A PDF of 100 KB with a page that keeps its reader busy for hours."""
    page = zlib.compress(b"BT /F1 12 Tf (a) Tj ET\n" * 3_000_000)
    stream = b"<</Length %d/Filter/FlateDecode>>stream\n%b\nendstream " % (len(page), page)
    return text_pdf([stream if b"stream" in one else one for one in OBJECTS])


@pytest.mark.contract("T10")
@pytest.mark.slow
def test_a_page_that_takes_for_ever_ends_with_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_text, "SECONDS_MAX", 3.0)
    with pytest.raises(UnreadableDocument, match="it takes more than 3 seconds"):
        read_document_text("a.pdf", slow_pdf())


def test_a_broken_document_is_told_to_the_model(tmp_path: Path, read: Callable[..., Any]) -> None:
    """T7."""
    (tmp_path / "a.docx").write_bytes(b"\0PK")
    with pytest.raises(ModelRetry, match=r"a\.docx.*not a readable archive"):
        read(path="a.docx")
    (tmp_path / "b.pdf").write_bytes(b"%PDF-1.7\n\0nothing")
    with pytest.raises(ModelRetry, match=r"b\.pdf.*cannot be read"):
        read(path="b.pdf")


def test_a_missing_reader_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_text, "find_spec", lambda package: None)
    with pytest.raises(ConfigError, match=r"windlass\[documents\]"):
        read_document_text("a.docx", word_file())
    with pytest.raises(ConfigError, match=r"windlass\[documents\]"):
        render_pdf_pages(PDF)


def test_what_is_not_a_document_stays_as_it_is(tmp_path: Path, read: Callable[..., Any]) -> None:
    assert not is_document("a.csv")
    (tmp_path / "notes.docx").write_text("only words")
    assert "only words" in read(path="notes.docx")
    with pytest.raises(ConfigError, match="not a document"):
        attach(b"x", name="a.csv", as_text=True)
    with pytest.raises(ConfigError, match="archive"):
        attach(b"x", name="a.docx", as_text=True)
