"""Exact replacements in a text: all edits are made, or none.

Invariant: the text to replace must be present exactly once, unless `replace_all` is set. Similar
text is never taken for it. Every step takes time that grows linearly with the file, and no edit can
make it grow beyond a bound.
"""

import difflib
import re
import time
from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from windlass.core.errors import ModelRetry

DIFF_LINES_MAX = 400
"""Lines of a diff that are shown."""
COMPARED_LINES_MAX = 20_000
"""With more lines than this, finding the shortest diff takes too long."""
EQUAL_PAIRS_MAX = 200_000
"""With more pairs of equal lines than this, too: the same few lines over and over."""
EDITS_MAX = 1_000
TEXT_CHARS_MAX = 8 * 2**20
"""Characters that a file may have after any of the edits."""
CONTEXT_LINES = 3
PLACES_SHOWN_MAX = 10
NEAREST_RATIO_MIN = 0.6
"""Lines that have less in common are not called similar."""
NEAREST_LINES = 3
NEAREST_CHARS_MAX = 300
NEAREST_S = 0.5
"""How long the nearest line may be looked for."""

_NUMBERED_LINE = re.compile(r"\s*\d+\t")
_HUNK_HEAD = re.compile(r"@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@")


# The class name is part of the schema that the model reads.
@dataclass(frozen=True)
class Edit:
    """One replacement."""

    old: Annotated[
        str,
        Meta(min_length=1, description="The text to replace, exactly as it is in the file."),
    ]
    new: Annotated[str, "The replacement text."]
    replace_all: Annotated[bool, "Replace every occurrence instead of exactly one."] = False


def apply_edits(text: str, edits: list[Edit]) -> str:
    """Apply all edits in order, each to the result of the one before it.

    Raises ModelRetry if one of them cannot be applied.
    """
    if len(edits) > EDITS_MAX:
        raise ModelRetry(
            f"{len(edits)} edits are too many for one call: send at most {EDITS_MAX}. Nothing was "
            "changed."
        )
    for number, edit in enumerate(edits, 1):
        prefix = f"Edit {number} of {len(edits)}: " if len(edits) > 1 else ""
        if edit.old == edit.new:
            raise ModelRetry(f"{prefix}`old` and `new` are the same. Nothing was changed.")
        if edit.old not in text:
            raise ModelRetry(
                f"{prefix}`old` was not found in the file. {_explain_missing(text, edit.old)} "
                "Nothing was changed."
            )
        # Searched from both ends, because `count` would count overlapping matches as one.
        if not edit.replace_all and text.find(edit.old) != text.rfind(edit.old):
            raise ModelRetry(
                f"{prefix}`old` occurs more than once in the file "
                f"({_line_numbers(text, edit.old)}). Add surrounding lines until it is unique, or "
                "set replace_all. Nothing was changed."
            )
        _check_growth(text, edit, prefix)
        text = text.replace(edit.old, edit.new)
    return text


def _check_growth(text: str, edit: Edit, prefix: str) -> None:
    """Raise ModelRetry if an edit would make the text too long.

    Each of a few edits can double every character that the one before it wrote.
    """
    growth = len(edit.new) - len(edit.old)
    if growth > 0 and len(text) + text.count(edit.old) * growth > TEXT_CHARS_MAX:
        raise ModelRetry(
            f"{prefix}the file would have more than {TEXT_CHARS_MAX} characters. Nothing was "
            "changed."
        )


def _explain_missing(text: str, old: str) -> str:
    """Say what may be wrong with a text that was not found."""
    if all(map(_NUMBERED_LINE.match, old.splitlines())):
        return "Leave out the line numbers that `read` shows."
    if old.strip():
        line = _find_line_ignoring_space(text, old)
        if line is not None:
            return f"Line {line} differs from it only in white space."
        nearest = _describe_nearest(text, old)
        if nearest:
            return f"{nearest} Copy the text exactly."
    return "Read the file again and copy the text exactly."


def _describe_nearest(text: str, old: str) -> str:
    """Say where the lines are that look most like the first ones of a text; empty if none does."""
    wanted = [line for line in old.split("\n") if line.strip()][:NEAREST_LINES]
    lines = text.split("\n")
    if len(lines) > COMPARED_LINES_MAX or any(len(line) > NEAREST_CHARS_MAX for line in wanted):
        return ""
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted[0].strip())
    best_ratio = NEAREST_RATIO_MIN
    best_line = 0
    deadline = time.monotonic() + NEAREST_S
    for number, line in enumerate(lines, 1):
        matcher.set_seq1(line.strip()[:NEAREST_CHARS_MAX])
        # Both bounds cost little, and rule out most lines.
        if matcher.real_quick_ratio() <= best_ratio or matcher.quick_ratio() <= best_ratio:
            continue
        ratio = matcher.ratio()
        if ratio > best_ratio:
            best_ratio = ratio
            best_line = number
        if time.monotonic() > deadline:
            break
    if not best_line:
        return ""
    shown = "\n".join(lines[best_line - 1 : best_line - 1 + len(wanted)])
    return f"The nearest text is at line {best_line}: {shown!r}."


def _find_line_ignoring_space(text: str, old: str) -> int | None:
    """Return the line of the first text that has the same words, or None.

    A regular expression with white space between the words could try all of them again at each
    position, and holds the interpreter while it does.
    """
    words = " ".join(text.split())
    position = words.find(" ".join(old.split()))
    if position < 0:
        return None
    words_before = words.count(" ", 0, position)
    for number, line in enumerate(text.split("\n"), 1):
        words_before -= len(line.split())
        if words_before < 0:
            return number
    return None


def _line_numbers(text: str, old: str) -> str:
    places: list[str] = []
    position = text.find(old)
    while position >= 0 and len(places) < PLACES_SHOWN_MAX:
        places.append(str(text.count("\n", 0, position) + 1))
        position = text.find(old, position + 1)
    if position >= 0:
        places.append("…")
    return f"lines {', '.join(places)}"


def edit_state(text: str, edits: list[Edit]) -> Literal["done", "not_done", "unknown"]:
    """Tell whether a text is the one before the edits or the one after them.

    The edits are not done if they can be applied and the last replacement is not in the text. They
    are done if they cannot be applied but can be reverted: a call that was wrong from the start
    cannot be reverted either. Where `new` contains `old`, or where text is only removed, both may
    be true, and the answer is "unknown".
    """
    if _can_apply(text, edits):
        return "not_done" if edits[-1].new not in text else "unknown"
    reverse_edits = [Edit(edit.new, edit.old, edit.replace_all) for edit in reversed(edits)]
    if all(edit.old for edit in reverse_edits) and _can_apply(text, reverse_edits):
        return "done"
    return "unknown"


def _can_apply(text: str, edits: list[Edit]) -> bool:
    try:
        apply_edits(text, edits)
    except ModelRetry:
        return False
    return True


def build_diff(before: str, after: str, path: str) -> str:
    """Return a unified diff of at most DIFF_LINES_MAX lines.

    Only the lines from the first to the last change are compared, so that one edit in a long file
    is fast.
    """
    old = before.split("\n")
    new = after.split("\n")
    head = _common_prefix(old, new)
    tail = min(_common_prefix(old[::-1], new[::-1]), min(len(old), len(new)) - head)
    start = max(0, head - CONTEXT_LINES)
    cut = max(0, tail - CONTEXT_LINES)
    old = old[start : len(old) - cut]
    new = new[start : len(new) - cut]
    if len(old) + len(new) > COMPARED_LINES_MAX or _count_equal_pairs(old, new) > EQUAL_PAIRS_MAX:
        return f"[diff too long to show: lines {head + 1} to {start + len(new)} of {path}]"
    lines = list(difflib.unified_diff(old, new, path, path, n=CONTEXT_LINES, lineterm=""))
    lines = [_HUNK_HEAD.sub(lambda hunk: _shift_hunk(hunk, start), line, count=1) for line in lines]
    hidden_lines = len(lines) - DIFF_LINES_MAX
    if hidden_lines > 0:
        lines[DIFF_LINES_MAX:] = [f"[{hidden_lines} more lines]"]
    return "\n".join(lines)


def is_whole_diff(diff: str) -> bool:
    """Whether `build_diff` left nothing out."""
    return bool(diff) and not diff.rpartition("\n")[2].startswith("[")


def _count_equal_pairs(old: list[str], new: list[str]) -> int:
    """Count the pairs of equal lines, which is about what comparing looks at each time."""
    in_new = Counter(new)
    return sum(count * in_new[line] for line, count in Counter(old).items())


def _common_prefix(old: list[str], new: list[str]) -> int:
    """Count the equal lines at the beginning."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(old), len(new)))


def _shift_hunk(hunk: re.Match[str], start: int) -> str:
    """Add the lines that were cut off before comparing to the numbers in a hunk's head."""
    if hunk.start():  # A line of the file that looks like the head of a hunk.
        return hunk[0]
    old_line = int(hunk[1]) + start
    new_line = int(hunk[3]) + start
    return f"@@ -{old_line}{hunk[2] or ''} +{new_line}{hunk[4] or ''} @@"
