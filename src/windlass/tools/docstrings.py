"""Split a docstring into what a model should read: prose, and a description of each parameter.

Google, NumPy and Sphinx styles are understood. The parts about parameters and exceptions are
removed from the prose; everything else stays word for word.

A library such as `docstring_parser` does not replace this: it drops prose that follows the
parameters, and reads `x, y : int` as one parameter.
"""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

import msgspec

_PARAMETER_SECTIONS = frozenset({"args", "arguments", "parameters", "params", "other parameters"})
_DROPPED_SECTIONS = frozenset({"raises", "warns"})
_PROSE_SECTIONS = frozenset(
    {"returns", "return", "yields", "example", "examples", "note", "notes", "warning", "see also"}
)
_KNOWN_SECTIONS = _PARAMETER_SECTIONS | _DROPPED_SECTIONS | _PROSE_SECTIONS

# The type in brackets may itself have brackets, as in `point (tuple(int, int)): ...`.
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\((?:[^()]|\([^()]*\))*\))?\s*:\s*(.*)")
_NUMPY_ENTRY = re.compile(r"\*{0,2}(\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_SPHINX_FIELD = re.compile(r":(\w+)(?:\s+([^:]*))?:\s*(.*)")
_SPHINX_PARAMETERS = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})
_SPHINX_DROPPED = frozenset({"type", "rtype", "raises", "raise", "except", "exception"})


class DocstringParts(msgspec.Struct, frozen=True):
    """The prose of a docstring, and the description of each parameter."""

    prose: str = ""
    parameters: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])


class _DocstringSection(msgspec.Struct):
    title: str
    style: str
    lines: list[str] = msgspec.field(default_factory=list[str])


def read_docstring(text: str | None) -> DocstringParts:
    """Split a docstring into prose and the descriptions of parameters."""
    prose: list[str] = []
    parameters: dict[str, str] = {}
    for section in _split_sections(inspect.cleandoc(text or "").splitlines()):
        name = section.title.strip().rstrip(":").lower()
        if name in _PARAMETER_SECTIONS:
            if section.style == "google":
                entries = _google_entries
            else:
                entries = _numpy_entries
            parameters.update(entries(section.lines))
        elif name not in _DROPPED_SECTIONS:
            prose += _prose_lines(section, parameters)
    joined = re.sub(r"\n{3,}", "\n\n", "\n".join(prose))
    return DocstringParts(joined.strip(), parameters)


def _split_sections(lines: Sequence[str]) -> Iterator[_DocstringSection]:
    """Yield the sections of a docstring. The first has no title."""
    section = _DocstringSection("", "")
    is_underline = False
    for line, line_below in zip_longest(lines, lines[1:], fillvalue=""):
        if is_underline:
            is_underline = False
            continue
        style = _heading_style(line, line_below)
        if style:
            yield section
            section = _DocstringSection(line, style)
            is_underline = style == "numpy"
        elif section.style == "google" and line and not line[0].isspace():
            # A Google section ends with its indent.
            yield section
            section = _DocstringSection("", "", [line])
        else:
            section.lines.append(line)
    yield section


def _heading_style(line: str, line_below: str) -> str:
    """Return the style in which a line begins a section; empty if it does not."""
    name = line.strip().lower()
    if name in _KNOWN_SECTIONS and re.fullmatch(r"\s*-{3,}\s*", line_below):
        return "numpy"
    if name.endswith(":") and name[:-1] in _KNOWN_SECTIONS and not line[:1].isspace():
        return "google"
    return ""


def _google_entries(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield entries such as `path (str): The file.`, which deeper lines continue."""
    for head, deeper in _group_by_indent(lines):
        found = _GOOGLE_ENTRY.fullmatch(head)
        if found:
            yield found[1], _join_lines([found[2], *deeper])


def _numpy_entries(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield entries such as `path : str`, with their description on the deeper lines below."""
    for head, deeper in _group_by_indent(lines):
        found = _NUMPY_ENTRY.fullmatch(head)
        if found:
            for name in found[1].split(","):
                yield name.strip(" *"), _join_lines(deeper)


def _group_by_indent(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each line of the outermost indent, with the deeper lines below it."""
    filled = [line for line in lines if line.strip()]
    indent = min((len(line) - len(line.lstrip()) for line in filled), default=0)
    groups: list[tuple[str, list[str]]] = []
    for line in filled:
        if not line[indent:][:1].isspace():
            groups.append((line.strip(), []))
        elif groups:
            groups[-1][1].append(line)
    yield from groups


def _prose_lines(section: _DocstringSection, parameters: dict[str, str]) -> Iterator[str]:
    """Yield the lines of a section that stay prose, and move its Sphinx fields to `parameters`."""
    if section.title:
        yield section.title
        if section.style == "numpy":
            yield "-" * len(section.title)
    in_field = False
    parameter = ""
    for line in section.lines:
        found = _SPHINX_FIELD.fullmatch(line)
        if found is None:
            # An indented line continues a field, and is dropped or kept with it.
            in_field = in_field and line[:1].isspace()
            if not in_field:
                yield line
            elif parameter:
                parameters[parameter] = _join_lines([parameters[parameter], line])
            continue
        kind = found[1]
        parameter = ""
        in_field = kind in _SPHINX_DROPPED
        if kind in _SPHINX_PARAMETERS and (found[2] or "").split():
            in_field = True
            parameter = found[2].split()[-1].lstrip("*")  # `:param int count:` has the type first.
            parameters[parameter] = found[3].strip()
        elif kind in {"return", "returns"}:
            yield f"Returns: {found[3]}"
        elif not in_field:
            yield line


def _join_lines(lines: Sequence[str]) -> str:
    return " ".join(" ".join(lines).split())
