"""References to the elements of a page: what the model reads, and what it may act on.

Invariant: a reference means one element of one document. It names the document, so that one that
was read before the page changed is refused instead of meaning another element. The name of the
element comes from the page's tree, and never from its text: a text that looks like an element does
not count as one.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from windlass.core.errors import ModelRetry

# A line of the tree: `- button "Send" [disabled] [ref=e7]: text`. Names are quoted as in JSON, and
# a line that YAML would misread is quoted as a whole.
_ELEMENT_LINE = re.compile(
    r"""(?P<start>[ ]*-\ '?)(?P<role>[a-z]+)(?:\ (?P<name>"(?:[^"\\]|\\.)*"))?"""
    r"""(?P<traits>(?:\ \[[a-z]+(?:=[^\]\s]*)?\])*?)\ \[ref=(?P<ref>(?:f\d+)?e\d+)\]""",
    re.VERBOSE,
)
_REFERENCE = re.compile(r"p(\d+)((?:f\d+)?e\d+)")
_UNNAMED = ""


@final
@dataclass(frozen=True, slots=True)
class PageTree:
    """The tree of a document, as text with references."""

    document: int = 0
    text: str = ""
    elements: Mapping[str, str] = field(default_factory=dict[str, str])
    """By reference: the role and the name of each element."""

    def find_element(self, reference: str, element: str) -> str:
        """Return what the browser calls an element.

        Raises ModelRetry if it is not in this tree, or if `element` does not name it: a person who
        is asked reads the name, and not the reference.
        """
        found = _REFERENCE.fullmatch(reference.strip().strip("[]").removeprefix("ref="))
        if found is None:
            raise ModelRetry(
                f"{reference!r} is not a reference. One looks like p{self.document}e7."
            )
        if int(found[1]) != self.document or found[0] not in self.elements:
            raise ModelRetry(
                f"{found[0]} is not on the page that is shown now: it has changed, or another page "
                "was opened since. Use browser_read, and a reference of its result."
            )
        role_and_name = self.elements[found[0]]
        name = role_and_name.partition(" ")[2]
        if _plain(name) not in _plain(element):
            raise ModelRetry(
                f'{found[0]} is: {role_and_name}. Name it so in the argument "element", or use '
                "another reference."
            )
        return found[2]


def read_tree(snapshot: str, document: int, chars_max: int) -> PageTree:
    """Number the references of a snapshot, and collect its elements."""
    elements: dict[str, str] = {}
    lines: list[str] = []
    chars = 0
    # Only where the tree begins a new line: a name may contain other characters that end lines.
    for line in snapshot.split("\n"):
        shown = line
        if found := _ELEMENT_LINE.match(line):
            reference = f"p{document}{found['ref']}"
            shown = f"{line[: found.start('ref')]}{reference}{line[found.end('ref') :]}"
            elements[reference] = f"{found['role']} {_read_name(found['name'])}".strip()
        chars += len(shown) + 1
        if chars > chars_max:
            lines.append(f"[the page is longer: {len(snapshot)} characters in all]")
            break
        lines.append(shown)
    return PageTree(document, "\n".join(lines), elements)


def _read_name(quoted: str | None) -> str:
    try:
        return json.loads(quoted) if quoted else _UNNAMED
    except ValueError:
        return quoted or _UNNAMED


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))
