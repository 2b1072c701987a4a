"""The head of a Markdown file: the small part of YAML that says `name: words`.

The law: a value is text or it is left out; nothing is evaluated. What cannot be read is refused in
one line that names the line.
"""

import re
import sys
from collections.abc import Sequence

MARK = "---"

# No pattern may read a stretch twice: a file of one long line must not make us wait.
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
    """What is wrong with a head, in a line."""


def split_front_matter(text: str) -> tuple[dict[str, str], str]:
    """The text values of a head by name, and the body below it. No head: no values."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    if lines[0].rstrip() != MARK:
        return {}, text
    ends = (at for at in range(1, len(lines)) if lines[at].rstrip() in (MARK, "..."))
    end = next(ends, None)
    if end is None:
        raise MalformedFrontMatter(f"its front matter, begun with {MARK}, does not end")
    return _parse_values(lines[1:end]), "\n".join(lines[end + 1 :])


def _parse_values(lines: Sequence[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    seen: set[str] = set()
    at = 0
    while at < len(lines):
        line, number = lines[at], at + 2
        at += 1
        if not line.strip() or line.startswith("#"):
            continue
        found = _KEY.fullmatch(line.rstrip())
        if found is None:
            raise MalformedFrontMatter(f"line {number} is not `name: value`")
        if found["key"] in seen:
            raise MalformedFrontMatter(f"line {number} gives {found['key']!r} again")
        seen.add(found["key"])
        start = at
        while at < len(lines) and _continues_value(lines[at], bare=not found["value"]):
            at += 1
        value = _parse_value((found["value"] or "").strip(), lines[start:at], number)
        if value is not None:
            values[found["key"]] = value
    return values


def _continues_value(line: str, *, bare: bool) -> bool:
    """Whether a line goes on with the value above it. A list need not be set in."""
    return not line.strip() or line[0] in " \t" or (bare and line.startswith("-"))


def _parse_value(first: str, more: Sequence[str], number: int) -> str | None:
    """A text; None for what is no text, such as a list."""
    if (block := _BLOCK.fullmatch(first)) is not None:
        return _parse_block(block["style"], block["signs"], more, number)
    rest = [line.strip() for line in more]
    if first[:1] in ("'", '"'):
        return _parse_quoted(_fold_lines([first, *rest]), number)
    first = _COMMENT.sub("", first).rstrip()
    told = [line for line in rest if line and not line.startswith("#")]
    if first[:1] in tuple("[{&*!") or (not first and told and _NESTED.match(told[0])):
        return None
    return _fold_lines([first, *(_COMMENT.sub("", line).rstrip() for line in rest)])


def _parse_quoted(text: str, number: int) -> str:
    if (single := _SINGLE.fullmatch(text)) is not None:
        return single["text"].replace("''", "'")
    if (double := _DOUBLE.fullmatch(text)) is not None:
        return _ESCAPE.sub(lambda found: _decode_escape(found, number), double["text"])
    raise MalformedFrontMatter(f"line {number}: the quotation does not end, or more follows it")


def _decode_escape(found: re.Match[str], number: int) -> str:
    code = found[1] or found[2] or found[3]
    if code is None:
        if found[4] not in _ESCAPES:
            raise MalformedFrontMatter(f"line {number}: \\{found[4]} is no escape")
        return _ESCAPES[found[4]]
    point = int(code, 16)
    if point > sys.maxunicode or point in _HALF_CHARACTERS:
        raise MalformedFrontMatter(f"line {number}: \\{found[0][1:]} is no character")
    return chr(point)


def _parse_block(style: str, signs: str, lines: Sequence[str], number: int) -> str:
    """A text over many lines: `|` keeps them, `>` folds them into paragraphs."""
    told = [line for line in lines if line.strip()]
    if any(line.startswith("\t") for line in told):
        raise MalformedFrontMatter(f"line {number}: the lines below are set in by a tab")
    given = re.sub(r"\D", "", signs)
    depth = int(given) if given else min((_count_indent(line) for line in told[:1]), default=0)
    if any(_count_indent(line) < depth for line in told):
        raise MalformedFrontMatter(f"line {number}: the lines below are not set in alike")
    cut = [line[depth:].rstrip("\n") for line in lines]
    while cut and not cut[-1].strip():
        cut.pop()
    text = "\n".join(cut) if style == "|" else _fold_lines(cut)
    return text if "-" in signs or not text else f"{text}\n"


def _count_indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _fold_lines(lines: Sequence[str]) -> str:
    """Lines joined by spaces; an empty line is a new line."""
    text = ""
    for line in lines:
        if not line.strip():
            text += "\n"
        else:
            text += line if not text or text.endswith("\n") else f" {line}"
    return text.strip("\n")
