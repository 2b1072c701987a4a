"""Exact replacements in a text: all of them, or none.

The law: a text that is to be replaced must be there, and once, unless all of its places are meant.
What is near to it is never taken for it.
"""

import difflib
import re
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from windlass.core.errors import ModelRetry

DIFF_LINES_MAX = 400
"""What is shown of a diff."""
COMPARED_LINES_MAX = 20_000
"""Past this, to find the shortest diff takes too long."""
CONTEXT_LINES = 3
PLACES_SHOWN_MAX = 10

_NUMBERED_LINE = re.compile(r"\s*\d+\t")
_HUNK_HEAD = re.compile(r"@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@")


@dataclass(frozen=True)
class Edit:
    """One replacement."""

    old: Annotated[
        str,
        Meta(min_length=1, description="The text to replace, exactly as it stands in the file."),
    ]
    new: Annotated[str, "What to put in its place."]
    replace_all: Annotated[bool, "Replace each place, and not only the one that there is."] = False


def apply_edits(text: str, edits: list[Edit]) -> str:
    """The text after all edits, each made on what the one before it left; raises ModelRetry."""
    for number, edit in enumerate(edits, 1):
        which = f"Edit {number} of {len(edits)}: " if len(edits) > 1 else ""
        if edit.old == edit.new:
            raise ModelRetry(f"{which}`old` and `new` are the same. Nothing was changed.")
        if edit.old not in text:
            raise ModelRetry(f"{which}`old` is not in the file. {_explain_missing(text, edit.old)}")
        # From both ends, so that places which overlap count as two.
        if not edit.replace_all and text.find(edit.old) != text.rfind(edit.old):
            raise ModelRetry(
                f"{which}`old` is in the file more than once ({_line_numbers(text, edit.old)}): add lines "
                "around it until it is there once, or set replace_all. Nothing was changed."
            )
        text = text.replace(edit.old, edit.new)
    return text


def _explain_missing(text: str, old: str) -> str:
    """What may be wrong with a text that is not there."""
    if all(map(_NUMBERED_LINE.match, old.splitlines())):
        return "Leave out the line numbers that `read` shows. Nothing was changed."
    found = re.search(r"\s+".join(map(re.escape, old.split())), text) if old.strip() else None
    if found is not None:
        line = text.count("\n", 0, found.start()) + 1
        return f"Line {line} differs from it in white space only. Nothing was changed."
    return "Read the file again, and copy the text exactly. Nothing was changed."


def _line_numbers(text: str, old: str) -> str:
    places: list[str] = []
    at = text.find(old)
    while at >= 0 and len(places) < PLACES_SHOWN_MAX:
        places.append(str(text.count("\n", 0, at) + 1))
        at = text.find(old, at + 1)
    return f"lines {', '.join(places)}{', …' if at >= 0 else ''}"


def edit_state(text: str, edits: list[Edit]) -> Literal["done", "not_done", "unknown"]:
    """Whether a text that is the old one or the new one is the new one.

    It is not the new one if what the last edit puts there is not there, and not the old one if the
    edits cannot be made; that they can be taken back is asked for as well, since a call that was
    wrong to begin with cannot be made either. Where `new` holds `old`, or where text is only taken
    away, both may be, and nobody guesses.
    """
    back = [Edit(edit.new, edit.old, edit.replace_all) for edit in reversed(edits)]
    if _can_apply(text, edits):
        return "not_done" if edits[-1].new not in text else "unknown"
    return "done" if all(edit.old for edit in back) and _can_apply(text, back) else "unknown"


def _can_apply(text: str, edits: list[Edit]) -> bool:
    try:
        apply_edits(text, edits)
    except ModelRetry:
        return False
    return True


def build_diff(before: str, after: str, path: str) -> str:
    """A unified diff, bounded. Only what lies between the first and the last change is compared."""
    old, new = before.split("\n"), after.split("\n")
    head = _common_prefix(old, new)
    tail = min(_common_prefix(old[::-1], new[::-1]), min(len(old), len(new)) - head)
    start, end = max(0, head - CONTEXT_LINES), max(0, tail - CONTEXT_LINES)
    old, new = old[start : len(old) - end], new[start : len(new) - end]
    if len(old) + len(new) > COMPARED_LINES_MAX:
        return f"[too long to show: lines {head + 1} to {start + len(new)} of {path}]"
    lines = list(difflib.unified_diff(old, new, path, path, n=CONTEXT_LINES, lineterm=""))
    lines = [_HUNK_HEAD.sub(lambda hunk: _shift_hunk(hunk, start), line, count=1) for line in lines]
    left = len(lines) - DIFF_LINES_MAX
    return "\n".join(lines[:DIFF_LINES_MAX] + ([f"[{left} more lines]"] if left > 0 else []))


def _common_prefix(old: list[str], new: list[str]) -> int:
    """How many lines are the same at the beginning."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(old), len(new)))


def _shift_hunk(hunk: re.Match[str], start: int) -> str:
    if hunk.start():  # A line of the file that looks like the head of a hunk.
        return hunk[0]
    old, new = int(hunk[1]) + start, int(hunk[3]) + start
    return f"@@ -{old}{hunk[2] or ''} +{new}{hunk[4] or ''} @@"
