"""Folders taken in: text, Markdown, HTML, PDF; only what changed, and no more than is there."""

import asyncio
import io
import logging
from pathlib import Path

import pypdf
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from document_files import sheet_file, slides_file, word_file
from windlass import document_text
from windlass.core.errors import ConfigError
from windlass.knowledge import ingestion as ingesting
from windlass.knowledge.documents import DocumentText, UnreadableFile, read_document
from windlass.knowledge.ingestion import IngestProgress, IngestReport, IngestSettings, ingest
from windlass.knowledge.sqlite import SqliteKnowledge
from windlass.knowledge.store import Scope, Source

PROJECT = Scope("project", "crane")

pytestmark = [pytest.mark.realtime, pytest.mark.contract("K1")]


@pytest.fixture
def store(tmp_path: Path) -> SqliteKnowledge:
    return SqliteKnowledge(tmp_path / "notes.db")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    docs = tmp_path / "docs"
    (docs / "deep" / ".hidden").mkdir(parents=True)
    (docs / "crane.md").write_text("# Crane\n\nIt lifts.\n\n## Jib\n\nIt reaches.\n")
    (docs / "deep" / "winch.txt").write_text("The winch turns.")
    (docs / "deep" / ".hidden" / "key.txt").write_text("The winch has a secret.")
    (docs / "page.html").write_text("<title>Ropes</title><p>The rope <b>holds</b>.</p>")
    (docs / "picture.png").write_bytes(b"\x89PNG")
    return docs


def pdf(text: str) -> bytes:
    writer = pypdf.PdfWriter()
    page = writer.add_blank_page(200, 200)
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    fonts = DictionaryObject({NameObject("/F1"): writer._add_object(font)})
    page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
    stream = DecodedStreamObject()
    stream.set_data(f"BT /F1 12 Tf 10 100 Td ({text}) Tj ET".encode())
    page[NameObject("/Contents")] = writer._add_object(stream)
    writer.add_metadata({"/Title": "Manual"})
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


async def test_a_folder_is_taken_in(store: SqliteKnowledge, folder: Path) -> None:
    seen: list[IngestProgress] = []
    done = await ingest(store, folder, PROJECT, name="docs", progress=seen.append)
    assert done == IngestReport(
        kept=3,
        skipped=(
            ("docs/deep/.hidden", "it is hidden"),
            ("docs/picture.png", "its name matches none of the patterns"),
        ),
    )
    (jib,) = await store.recall("reaches", [PROJECT])
    assert jib.title == "Crane › Jib"  # noqa: RUF001
    assert jib.sources == (Source("docs/crane.md"),)
    (rope,) = await store.recall("rope holds", [PROJECT])
    assert (rope.title, rope.text) == ("Ropes", "The rope holds.")
    assert [one.sources for one in await store.recall("winch", [PROJECT])] == [
        (Source("docs/deep/winch.txt"),)
    ]
    places = ["docs/crane.md", "docs/deep/winch.txt", "docs/page.html"]
    assert seen == [IngestProgress(at, 3, place) for at, place in enumerate(places, 1)]


async def test_only_what_changed_is_read_anew(store: SqliteKnowledge, folder: Path) -> None:
    skipped = (await ingest(store, folder, PROJECT)).skipped
    assert await ingest(store, folder, PROJECT) == IngestReport(unchanged=3, skipped=skipped)
    (folder / "crane.md").write_text("# Crane\n\nIt is sold.\n")
    (folder / "page.html").unlink()
    (folder / "deep" / "winch.txt").write_text(" \n")
    emptied = ((folder / "deep" / "winch.txt").as_posix(), "it has no text")
    assert await ingest(store, folder, PROJECT) == IngestReport(
        kept=1, forgotten=2, skipped=(*skipped, emptied)
    )
    assert await store.recall("lifts reaches rope winch", [PROJECT]) == []
    assert len(await store.recall("sold", [PROJECT])) == 1


async def test_other_labels_are_a_change(store: SqliteKnowledge, folder: Path) -> None:
    """K2: taint is what the last intake says."""
    await ingest(store, folder, IngestSettings(PROJECT, frozenset(("untrusted",))))
    (found,) = await store.recall("winch", [PROJECT])
    assert found.labels == {"untrusted"}
    assert (await ingest(store, folder, PROJECT)).kept == 3
    (found,) = await store.recall("winch", [PROJECT])
    assert found.labels == frozenset()


async def test_two_folders_do_not_disturb_each_other(
    store: SqliteKnowledge, folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "crane.md").write_text("Another crane.")
    await ingest(store, folder, PROJECT)
    await ingest(store, other, PROJECT)
    (other / "crane.md").unlink()
    assert (await ingest(store, other, PROJECT)).forgotten == 1
    assert len(await store.recall("lifts", [PROJECT])) == 1


async def test_a_file_that_cannot_be_read_is_told_and_left_out(
    store: SqliteKnowledge, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """K2: a failure is a warning."""
    (folder / "broken.txt").write_bytes(b"\0\1\2")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 and no more")
    with caplog.at_level(logging.WARNING, ingesting.__name__):
        done = await ingest(store, folder, PROJECT, name="docs")
    assert done.kept == 3
    assert [place for place, _ in done.failed] == ["docs/broken.pdf", "docs/broken.txt"]
    assert len([one for one in caplog.records if one.name == ingesting.__name__]) == 2


async def test_a_file_that_is_too_large_is_left_out(
    store: SqliteKnowledge, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingesting, "FILE_BYTES_MAX", 30)
    done = await ingest(store, folder, PROJECT)
    assert (done.kept, len(done.failed)) == (1, 2)


async def test_a_link_brings_nothing_in_from_outside(
    store: SqliteKnowledge, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("The vault.")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "other").symlink_to(tmp_path, target_is_directory=True)
    done = await ingest(store, folder, PROJECT, name="docs")
    assert await store.recall("vault", [PROJECT]) == []
    assert set(done.skipped) >= {
        ("docs/link.txt", "it is a link out of the folder"),
        ("docs/other", "it is a link to a folder"),
    }


async def test_office_documents_and_tables_are_read(store: SqliteKnowledge, tmp_path: Path) -> None:
    """K1: with the patterns that are the default."""
    (tmp_path / "letter.docx").write_bytes(word_file())
    (tmp_path / "talk.pptx").write_bytes(slides_file())
    (tmp_path / "parts.csv").write_text("name,weight\nhawser,12\n")
    (tmp_path / "parts.xlsx").write_bytes(sheet_file())
    report = await ingest(store, tmp_path, PROJECT, name="f")
    assert (report.kept, report.failed) == (4, ())
    for words, place in (
        ("lifts", "f/letter.docx"),
        ("slowly", "f/talk.pptx"),
        ("hawser", "f/parts.csv"),
        ("part tonnes", "f/parts.xlsx"),
    ):
        found = await store.recall(words, [PROJECT])
        assert found[0].sources == (Source(place),)


async def test_a_folder_that_is_not_there_is_an_error(
    store: SqliteKnowledge, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        await ingest(store, tmp_path / "nowhere", PROJECT)


async def test_a_pdf_is_read(store: SqliteKnowledge, tmp_path: Path) -> None:
    (tmp_path / "manual.pdf").write_bytes(pdf("Grease the gears"))
    await ingest(store, tmp_path, PROJECT)
    (found,) = await store.recall("gears", [PROJECT])
    assert (found.title, found.text) == ("Manual", "Grease the gears")


async def test_a_pdf_without_its_reader_does_not_stop_the_others(
    store: SqliteKnowledge, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "manual.pdf").write_bytes(pdf("Grease"))
    monkeypatch.setattr(document_text, "find_spec", lambda _name: None)
    report = await ingest(store, folder, PROJECT, name="docs")
    assert report.kept == 3
    ((place, reason),) = report.failed
    assert place == "docs/manual.pdf"
    assert "windlass[documents]" in reason


def read_now(name: str, data: bytes) -> DocumentText:
    return asyncio.run(read_document(name, data))


def test_a_page_is_read_as_text() -> None:
    html = b"""<!doctype html><html><head><title>A &amp; B</title><style>x{}</style>
    <script>evil()</script></head><body><h2>Parts</h2><ul><li>One<li>Two</ul>
    <table><tr><td>a</td><td>b</td></tr></table>caf&eacute; <b>au</b> lait</body>"""
    assert read_now("page.HTML", html) == DocumentText(
        "A & B", "## Parts\n\n- One\n- Two\n\n| a | b\n\ncafé au lait", "markdown"
    )


@given(st.text(alphabet="<>/!-abtscriple \"'=&;#1\n", max_size=300))
def test_any_page_ends(html: str) -> None:
    assert read_now("a.html", html.encode()).format == "markdown"


@pytest.mark.slow
def test_a_page_that_never_ends_a_tag_ends() -> None:
    assert "x" in read_now("a.html", b"<p>x<!--" + b"<" * 300_000).text
    assert read_now("a.html", b"x" + b"<svg></p>" * 50_000).text == "x"


@given(st.binary(max_size=300), st.sampled_from(["a.md", "a.txt", "a.html", "a", "a.pdf"]))
def test_any_bytes_are_read_or_refused(data: bytes, name: str) -> None:
    told = ""
    try:
        assert isinstance(read_now(name, data).text, str)
    except UnreadableFile as error:
        told = str(error)
    assert "\n" not in told
