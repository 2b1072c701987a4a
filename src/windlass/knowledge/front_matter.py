"""The front matter of a Markdown file: the small part of YAML that says `name: text`.

Invariant: a value is text, or it is left out; nothing is evaluated. A mistake is an error that
names the line. A YAML library would be a dependency of every agent for this one task.
"""

import re
import sys
from collections.abc import Sequence

MARK = "---"

# No pattern may backtrack over long text: a file of one long line must not take long to read.
_KEY = re.compile(
    r"""(?P<quote>["']?)(?P<key>\w[\w.-]*(?: [\w.-]+)*)(?P=quote) *:(?: +(?P<value>.*))?"""
)
_BLOCK = re.compile(r"(?P<style>[>|])(?P<signs>[-+1-9]{0,2})(?:\s+#.*)?")
_SINGLE = re.compile(r"'(?P<text>(?:[^']|'')*)'(?:\s+#.*|\s*)")
_DOUBLE = re.compile(r'"(?P<text>(?:[^"\\]|\\.)*)"(?:\s+#.*|\s*)', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*")
_NESTED = re.compile(r"-(?: |$)|[\w\"'][^:]*:(?: |$)|[\[{&*!]")
_ESCAPES = dict(zip('nrtbfvae0 "\\/', '\n\r\t\b\f\v\a\x1b\0 "\\/', strict=True))
_HALF_CHARACTERS = range(0xD800, 0xE000)


class MalformedFrontMatter(Exception):
    """The front matter has a mistake; the message says which, in one line."""


def split_front_matter(text: str) -> tuple[dict[str, str], str]:
    """The text values of the front matter by name, and the body below it.

    A file without front matter has no values. Raises MalformedFrontMatter.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    if lines[0].rstrip() != MARK:
        return {}, text
    ends = (at for at in range(1, len(lines)) if lines[at].rstrip() in (MARK, "..."))
    end = next(ends, None)
    if end is None:
        raise MalformedFrontMatter(f"its front matter starts with {MARK} but does not end with it")
    return _parse_values(lines[1:end]), "\n".join(lines[end + 1 :])


def _parse_values(lines: Sequence[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    seen: set[str] = set()
    at = 0
    while at < len(lines):
        line = lines[at]
        number = at + 2  # Of the file: it counts from 1, and the mark is its first line.
        at += 1
        if not line.strip() or line.startswith("#"):
            continue
        found = _KEY.fullmatch(line.rstrip())
        if found is None:
            raise MalformedFrontMatter(f"line {number} is not `name: value`")
        if found["key"] in seen:
            raise MalformedFrontMatter(f"line {number} repeats {found['key']!r}")
        seen.add(found["key"])
        start = at
        while at < len(lines) and _continues_value(lines[at], bare=not found["value"]):
            at += 1
        value = _parse_value((found["value"] or "").strip(), lines[start:at], number)
        if value is not None:
            values[found["key"]] = value
    return values


def _continues_value(line: str, *, bare: bool) -> bool:
    """Whether a line continues the value above it. A list below a bare key need not be indented."""
    return not line.strip() or line[0] in " \t" or (bare and line.startswith("-"))


def _parse_value(first: str, more: Sequence[str], number: int) -> str | None:
    """The value as text; None for anything else, such as a list."""
    if (block := _BLOCK.fullmatch(first)) is not None:
        return _parse_block(block["style"], block["signs"], more, number)
    rest = [line.strip() for line in more]
    if first[:1] in ("'", '"'):
        return _parse_quoted(_fold_lines([first, *rest]), number)
    first = _COMMENT.sub("", first).rstrip()
    following = [line for line in rest if line and not line.startswith("#")]
    if first[:1] in tuple("[{&*!") or (not first and following and _NESTED.match(following[0])):
        return None
    return _fold_lines([first, *(_COMMENT.sub("", line).rstrip() for line in rest)])


def _parse_quoted(text: str, number: int) -> str:
    if (single := _SINGLE.fullmatch(text)) is not None:
        return single["text"].replace("''", "'")
    if (double := _DOUBLE.fullmatch(text)) is not None:
        return _ESCAPE.sub(lambda found: _decode_escape(found, number), double["text"])
    raise MalformedFrontMatter(f"line {number}: the quoted text does not end, or more follows it")


def _decode_escape(found: re.Match[str], number: int) -> str:
    code = found[1] or found[2] or found[3]
    if code is None:
        if found[4] not in _ESCAPES:
            raise MalformedFrontMatter(f"line {number}: \\{found[4]} is not an escape")
        return _ESCAPES[found[4]]
    point = int(code, 16)
    if point > sys.maxunicode or point in _HALF_CHARACTERS:
        raise MalformedFrontMatter(f"line {number}: \\{found[0][1:]} is not a character")
    return chr(point)


def _parse_block(style: str, signs: str, lines: Sequence[str], number: int) -> str:
    """A text of several lines: `|` keeps them, `>` folds them into paragraphs."""
    filled = [line for line in lines if line.strip()]
    if any(line.startswith("\t") for line in filled):
        raise MalformedFrontMatter(f"line {number}: the lines below are indented by a tab")
    declared = re.sub(r"\D", "", signs)
    indent = 0
    if declared:
        indent = int(declared)
    elif filled:
        indent = _count_indent(filled[0])
    if any(_count_indent(line) < indent for line in filled):
        raise MalformedFrontMatter(f"line {number}: the lines below have different indents")
    content = [line[indent:] for line in lines]
    while content and not content[-1].strip():
        content.pop()
    text = "\n".join(content) if style == "|" else _fold_lines(content)
    # `-` strips the last line break; without it, a block ends with one.
    return text if "-" in signs or not text else f"{text}\n"


def _count_indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _fold_lines(lines: Sequence[str]) -> str:
    """Join lines by spaces; an empty line becomes a line break."""
    text = ""
    for line in lines:
        if not line.strip():
            text += "\n"
        else:
            text += line if not text or text.endswith("\n") else f" {line}"
    return text.strip("\n")
