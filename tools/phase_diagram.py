"""Draw the phases of a call in `docs/concepts.md` from the table: `python tools/phase_diagram.py`.

With `--check` nothing is written, and the exit code is 1 if the diagram is not what would be.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from windlass.core.fold.phases import CALL_PHASES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "concepts.md"
BEGIN = "<!-- Written by tools/phase_diagram.py; not to be edited. -->\n"
END = "<!-- The end of the diagram. -->\n"
WIDTH = max(map(len, CALL_PHASES))


def diagram_lines() -> Iterator[str]:
    """The arrows of the table, each with the facts that lead along it; loops are left out."""
    for phase, row in CALL_PHASES.items():
        arrows: dict[str, list[str]] = {}
        for fact, target in row.items():
            if target != phase:
                arrows.setdefault(target, []).append(fact)
        label = phase
        for target, facts in arrows.items():
            yield f"{label:<{WIDTH}} ──▶ {target:<{WIDTH}}   {' · '.join(facts)}"
            label = ""
        if not arrows:
            yield phase


def draw_diagram() -> str:
    """The block between the marks of the page, with its fences."""
    lines = "\n".join(diagram_lines())
    return f"{BEGIN}\n```text\n{lines}\n```\n\n{END}"


def update_page(text: str) -> str:
    """The page with the diagram of the present table."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{draw_diagram()}{after}"


def main() -> int:
    text = PAGE.read_text("utf-8")
    updated = update_page(text)
    if "--check" in sys.argv[1:]:
        if text == updated:
            return 0
        sys.stderr.write(f"{PAGE.name} is not current: run `python tools/phase_diagram.py`\n")
        return 1
    PAGE.write_text(updated, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
