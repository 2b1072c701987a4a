"""Documents in, text out: PDF, Word, PowerPoint and Excel, for tools, prompts and knowledge.

Invariant: reading a document ends, and takes no more memory than its limits allow, whatever it
holds. Each one is read by its own process (`readers/`), which is killed when its time is over.
"""

from importlib.util import find_spec
from typing import NamedTuple

from windlass.core.errors import ConfigError
from windlass.readers.documents import CUT_NOTE, DocumentLimits
from windlass.readers.pool import ReaderJob, ReaderPool, ReaderResult

LIMITS = DocumentLimits(
    unpacked_bytes=256 * 2**20,
    entries=10_000,
    pages=2_000,
    text_chars=4_000_000,
    rendered_pages=4,
)
SECONDS_MAX = 20.0
"""How long one document may take."""
PROCESS_BYTES_MAX = 2**30
"""Memory of the process that reads a document."""
RESULT_BYTES_MAX = 64 * 2**20
"""What that process may return."""
READERS_MAX = 4
"""Documents that are read at the same time; others wait."""

_pool = ReaderPool(READERS_MAX)


class UnreadableDocument(Exception):
    """A document cannot be read; the message says why, in one line."""


class _Format(NamedTuple):
    what: str
    package: str
    """The package that reads it."""


_FORMATS = {
    "pdf": _Format("pdf", "pypdf"),
    "docx": _Format("docx", "docx"),
    "pptx": _Format("pptx", "pptx"),
    "xlsx": _Format("xlsx", "python_calamine"),
    "xlsm": _Format("xlsx", "python_calamine"),
    "ods": _Format("xlsx", "python_calamine"),
}
"""How each kind of file is read, by its extension."""
DOCUMENT_EXTENSIONS = tuple(_FORMATS)


def is_document(name: str) -> bool:
    """Whether the name of a file says that it is a document that can be read as text."""
    return _extension(name) in _FORMATS


def require_reader(name: str) -> None:
    """Raise ConfigError if the package that reads such files is not installed."""
    if find_spec(_FORMATS[_extension(name)].package) is None:
        raise ConfigError(
            f"reading {name} needs another package: pip install 'windlass[documents]'"
        )


async def read_document_text(name: str, data: bytes) -> str:
    """Return the text of a document, by the extension of its name. A cancel ends the reading.

    Raises UnreadableDocument if it is damaged or too large, ConfigError if the extra is missing.
    """
    return _join_text(await _pool.run(_text_job(name), data))


def read_document_text_blocking(name: str, data: bytes) -> str:
    """Return the text of a document, as `read_document_text` does, and block until it is read."""
    return _join_text(_pool.run_blocking(_text_job(name), data))


async def read_pdf_title(data: bytes) -> str:
    """Return the title that a PDF says it has; empty if it says none, or is damaged."""
    return b"".join((await _pool.run(_make_job("title", "pypdf"), data)).parts).decode()


async def render_pdf_pages(data: bytes) -> list[bytes]:
    """Return the first pages of a PDF as PNG pictures, for scans, which have no text.

    Raises UnreadableDocument if it is damaged, and ConfigError if the extra is missing.
    """
    if find_spec("pypdfium2") is None:
        raise ConfigError("showing PDF pages needs: pip install 'windlass[documents]'")
    return list(_check(await _pool.run(_make_job("pictures", "pypdfium2"), data)))


def _text_job(name: str) -> ReaderJob:
    require_reader(name)
    return _make_job(*_FORMATS[_extension(name)])


def _make_job(what: str, package: str) -> ReaderJob:
    return ReaderJob(
        "windlass.readers.documents:read_document",
        {"what": what, "limits": LIMITS},
        seconds=SECONDS_MAX,
        memory_bytes=PROCESS_BYTES_MAX,
        result_bytes=RESULT_BYTES_MAX,
        preload=(package,),
    )


def _join_text(result: ReaderResult) -> str:
    """Return the parts as one text. A note at its end says that the time was over."""
    parts = [part.decode() for part in _check(result)]
    if result.is_late:
        parts.append(CUT_NOTE)
    return "\n".join(parts).strip()


def _check(result: ReaderResult) -> tuple[bytes, ...]:
    """Return the parts of a document; raises UnreadableDocument if it could not be read.

    What came before the time was over is of use.
    """
    if result.failure and not (result.is_late and result.parts):
        raise UnreadableDocument(result.failure)
    return result.parts


def _extension(name: str) -> str:
    return name.rpartition(".")[2].casefold()
