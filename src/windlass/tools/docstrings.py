"""A docstring in, what a model should read out: prose, and a line for each parameter.

Google, NumPy and Sphinx styles are understood. What is about parameters and exceptions is taken
out of the prose; all else stays, word for word.
"""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

_PARAMETER_SECTIONS = frozenset({"args", "arguments", "parameters", "params", "other parameters"})
_DROPPED_SECTIONS = frozenset({"raises", "warns"})
_PROSE_SECTIONS = frozenset(
    {"returns", "return", "yields", "example", "examples", "note", "notes", "warning", "see also"}
)
_KNOWN_SECTIONS = _PARAMETER_SECTIONS | _DROPPED_SECTIONS | _PROSE_SECTIONS

_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY_ENTRY = re.compile(r"\*{0,2}(\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_SPHINX_FIELD = re.compile(r":(\w+)(?:\s+([^:]*))?:\s*(.*)")
_SPHINX_PARAMETERS = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})
_SPHINX_DROPPED = frozenset({"type", "rtype", "raises", "raise", "except", "exception"})


@dataclass(frozen=True, slots=True)
class DocstringParts:
    """What a docstring says."""

    prose: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(slots=True)
class _DocstringSection:
    title: str
    style: str
    lines: list[str] = field(default_factory=list[str])


def read_docstring(text: str | None) -> DocstringParts:
    """Split a docstring into prose and parameters."""
    prose: list[str] = []
    parameters: dict[str, str] = {}
    for section in _split_sections(inspect.cleandoc(text or "").splitlines()):
        name = section.title.strip().rstrip(":").lower()
        if name in _PARAMETER_SECTIONS:
            entries = _google_entries if section.style == "google" else _numpy_entries
            parameters.update(entries(section.lines))
        elif name not in _DROPPED_SECTIONS:
            prose += _prose_lines(section, parameters)
    joined = re.sub(r"\n{3,}", "\n\n", "\n".join(prose))
    return DocstringParts(joined.strip(), parameters)


def _split_sections(lines: Sequence[str]) -> Iterator[_DocstringSection]:
    """The parts of a docstring; the first has no title."""
    section = _DocstringSection("", "")
    skip = False
    for line, below in zip_longest(lines, lines[1:], fillvalue=""):
        if skip:
            skip = False
            continue
        style = _heading_style(line, below)
        if style:
            yield section
            section = _DocstringSection(line, style)
            skip = style == "numpy"
        elif section.style == "google" and line and not line[0].isspace():
            # A Google section ends where the indent does.
            yield section
            section = _DocstringSection("", "", [line])
        else:
            section.lines.append(line)
    yield section


def _heading_style(line: str, below: str) -> str:
    """The style in which this line opens a section, or nothing."""
    name = line.strip().lower()
    if name in _KNOWN_SECTIONS and re.fullmatch(r"\s*-{3,}\s*", below):
        return "numpy"
    if name.endswith(":") and name[:-1] in _KNOWN_SECTIONS and not line[:1].isspace():
        return "google"
    return ""


def _google_entries(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Entries such as `path (str): The file.`, with deeper lines as their continuation."""
    for head, rest in _group_by_indent(lines):
        found = _GOOGLE_ENTRY.fullmatch(head)
        if found:
            yield found[1], _join_lines([found[2], *rest])


def _numpy_entries(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Entries such as `path : str`, with their text on the deeper lines below."""
    for head, rest in _group_by_indent(lines):
        found = _NUMPY_ENTRY.fullmatch(head)
        if found:
            for name in found[1].split(","):
                yield name.strip(" *"), _join_lines(rest)


def _group_by_indent(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
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


def _prose_lines(section: _DocstringSection, parameters: dict[str, str]) -> Iterator[str]:
    """The lines of a section that stay prose; Sphinx fields among them are taken out."""
    if section.title:
        yield section.title
        if section.style == "numpy":
            yield "-" * len(section.title)
    taken = ""
    in_field = False
    for line in section.lines:
        found = _SPHINX_FIELD.fullmatch(line)
        if found is None:
            in_field = in_field and line[:1].isspace()
            if not in_field:
                yield line
            elif taken:
                parameters[taken] = _join_lines([parameters[taken], line])
            continue
        kind, about, told = found[1], (found[2] or "").split(), found[3]
        in_field, taken = True, ""
        if kind in _SPHINX_PARAMETERS and about:
            taken = about[-1].lstrip("*")  # `:param int count:` names the type first.
            parameters[taken] = told.strip()
        elif kind in {"return", "returns"}:
            in_field = False
            yield f"Returns: {told}"
        elif kind not in _SPHINX_DROPPED:
            in_field = False
            yield line


def _join_lines(lines: Sequence[str]) -> str:
    return " ".join(" ".join(lines).split())
