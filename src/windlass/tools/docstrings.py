"""A docstring in, what a model should read out: prose, and a line for each parameter.

Google, NumPy and Sphinx styles are understood. What is about parameters and exceptions is taken
out of the prose; all else stays, word for word.
"""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

_PARAMETERS = frozenset({"args", "arguments", "parameters", "params", "other parameters"})
_DROPPED = frozenset({"raises", "warns"})
_KEPT = frozenset(
    {"returns", "return", "yields", "example", "examples", "note", "notes", "warning", "see also"}
)
_SECTIONS = _PARAMETERS | _DROPPED | _KEPT

_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY_ENTRY = re.compile(r"\*{0,2}(\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_FIELD = re.compile(r":(\w+)(?:\s+([^:]*))?:\s*(.*)")
_FIELD_PARAMETERS = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})
_FIELD_DROPPED = frozenset({"type", "rtype", "raises", "raise", "except", "exception"})


@dataclass(frozen=True, slots=True)
class Docs:
    """What a docstring says."""

    prose: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class _Section:
    title: str
    style: str
    lines: list[str] = field(default_factory=list[str])


def read_docstring(text: str | None) -> Docs:
    """Split a docstring into prose and parameters."""
    prose: list[str] = []
    parameters: dict[str, str] = {}
    for section in _sections(inspect.cleandoc(text or "").splitlines()):
        name = section.title.strip().rstrip(":").lower()
        if name in _PARAMETERS:
            entries = _google if section.style == "google" else _numpy
            parameters.update(entries(section.lines))
        elif name not in _DROPPED:
            prose += _plain(section, parameters)
    joined = re.sub(r"\n{3,}", "\n\n", "\n".join(prose))
    return Docs(joined.strip(), parameters)


def _sections(lines: Sequence[str]) -> Iterator[_Section]:
    """The parts of a docstring; the first has no title."""
    section = _Section("", "")
    skip = False
    for line, below in zip_longest(lines, lines[1:], fillvalue=""):
        if skip:
            skip = False
            continue
        style = _heading(line, below)
        if style:
            yield section
            section = _Section(line, style)
            skip = style == "numpy"
        elif section.style == "google" and line and not line[0].isspace():
            # A Google section ends where the indent does.
            yield section
            section = _Section("", "", [line])
        else:
            section.lines.append(line)
    yield section


def _heading(line: str, below: str) -> str:
    """The style in which this line opens a section, or nothing."""
    name = line.strip().lower()
    if name in _SECTIONS and re.fullmatch(r"\s*-{3,}\s*", below):
        return "numpy"
    if name.endswith(":") and name[:-1] in _SECTIONS and not line[:1].isspace():
        return "google"
    return ""


def _google(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Entries such as `path (str): The file.`, with deeper lines as their continuation."""
    for head, rest in _indented(lines):
        found = _GOOGLE_ENTRY.fullmatch(head)
        if found:
            yield found[1], _one_line([found[2], *rest])


def _numpy(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Entries such as `path : str`, with their text on the deeper lines below."""
    for head, rest in _indented(lines):
        found = _NUMPY_ENTRY.fullmatch(head)
        if found:
            for name in found[1].split(","):
                yield name.strip(" *"), _one_line(rest)


def _indented(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Each line of the outermost indent, with the deeper lines below it."""
    filled = [line for line in lines if line.strip()]
    outer = min((len(line) - len(line.lstrip()) for line in filled), default=0)
    head, rest = "", list[str]()
    for line in filled:
        if line[outer:][:1].isspace():
            rest.append(line)
            continue
        if head:
            yield head, rest
        head, rest = line.strip(), []
    if head:
        yield head, rest


def _plain(section: _Section, parameters: dict[str, str]) -> Iterator[str]:
    """The lines of a section that stay prose; Sphinx fields among them are taken out."""
    if section.title:
        yield section.title
        if section.style == "numpy":
            yield "-" * len(section.title)
    taken = ""
    in_field = False
    for line in section.lines:
        found = _FIELD.fullmatch(line)
        if found is None:
            in_field = in_field and line[:1].isspace()
            if not in_field:
                yield line
            elif taken:
                parameters[taken] = _one_line([parameters[taken], line])
            continue
        kind, about, told = found[1], (found[2] or "").split(), found[3]
        in_field, taken = True, ""
        if kind in _FIELD_PARAMETERS and about:
            taken = about[-1].lstrip("*")  # `:param int count:` names the type first.
            parameters[taken] = told.strip()
        elif kind in {"return", "returns"}:
            in_field = False
            yield f"Returns: {told}"
        elif kind not in _FIELD_DROPPED:
            in_field = False
            yield line


def _one_line(lines: Sequence[str]) -> str:
    return " ".join(" ".join(lines).split())
