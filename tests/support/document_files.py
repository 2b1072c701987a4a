"""Small documents of every kind, and some that are made to do harm."""

import io
import zipfile
import zlib
from collections.abc import Sequence
from typing import Any

import docx
import pptx
import pypdf

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


def sheet_file(sheet: str = SHEET) -> bytes:
    return packed(
        {
            "[Content_Types].xml": TYPES,
            "_rels/.rels": relations("officeDocument", "xl/workbook.xml"),
            "xl/workbook.xml": WORKBOOK,
            "xl/_rels/workbook.xml.rels": relations("worksheet", "worksheets/sheet1.xml"),
            "xl/worksheets/sheet1.xml": sheet,
        }
    )


def blank_pdf() -> bytes:
    writer = pypdf.PdfWriter()
    writer.add_blank_page(300, 200)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def slow_pdf() -> bytes:
    """A PDF of 100 KB with a page that keeps its reader busy for hours."""
    page = zlib.compress(b"BT /F1 12 Tf (a) Tj ET\n" * 3_000_000)
    stream = b"<</Length %d/Filter/FlateDecode>>stream\n%b\nendstream " % (len(page), page)
    return text_pdf([stream if b"stream" in one else one for one in OBJECTS])


def vast_sheet() -> bytes:
    """A spreadsheet of a kilobyte with two cells, in opposite corners of the largest sheet."""
    return sheet_file(
        f'{HEAD}<worksheet xmlns="{MAIN}"><sheetData><row r="1"><c r="A1"><v>1</v></c></row>'
        '<row r="1048576"><c r="XFD1048576"><v>2</v></c></row></sheetData></worksheet>'
    )


def long_word_file(paragraphs: int, text: str = "x") -> bytes:
    """A Word file that is small only while it is packed."""
    source = zipfile.ZipFile(io.BytesIO(word_file()))
    files: dict[str, str | bytes] = {name: source.read(name) for name in source.namelist()}
    body = source.read("word/document.xml").decode()
    added = f"<w:p><w:r><w:t>{text}</w:t></w:r></w:p>" * paragraphs
    body = body.replace("<w:sectPr", f"{added}<w:sectPr", 1)
    return packed({**files, "word/document.xml": body})
