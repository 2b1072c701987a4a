"""The docs are programs: every Python block and every example runs as printed.

A block whose fence reads `python no-run: reason` is only compiled. If a block has comments
that read `# prints: text`, these lines are all that it prints, in that order. Blocks and examples
import only from public modules, and the files that the guides for contributors name are there.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from warm_python import run_program

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE_LINES_MAX = 48
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
GUIDES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "docs/security.md")
"""Pages that lead to files of the repository."""

PUBLIC = re.compile(
    r"windlass(\.(client|evaluation|fleet|gates|journals|knowledge|models|notebook|ports|project|server"
    r"|telemetry|tools|testing(\.\w+)?))?"
)
"""Modules that users may import from."""
FENCE = re.compile(
    r"^(?P<indent> *)```(?:python|py)\b(?P<info>[^\n]*)\n(?P<code>.*?)^(?P=indent)```\s*?$",
    re.MULTILINE | re.DOTALL,
)
NO_RUN = re.compile(r"no-run\b:?\s*(?P<reason>.*)")


@dataclass(frozen=True, slots=True)
class Block:
    """A Python block of a page, with what its fence says."""

    place: str
    info: str
    code: str

    @property
    def printed(self) -> list[str]:
        """What the block says that it prints."""
        return re.findall(r"# prints: (.*)$", self.code, re.MULTILINE)


def blocks_in(text: str, page: str) -> Iterator[Block]:
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        indent = re.compile("^" + found["indent"], re.MULTILINE)
        yield Block(f"{page}:{line}", found["info"].strip(), indent.sub("", found["code"]))


def blocks() -> list[Block]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [
        block
        for page in pages
        if page.exists()
        for block in blocks_in(page.read_text("utf-8"), page.relative_to(ROOT).as_posix())
    ]


def run_warm(program: Path, cwd: Path) -> str:
    """Run a program as a newcomer would, without a key and a network, in a warm Python."""
    exit_code, output, errors = run_program(program, cwd, seconds=50)
    assert exit_code == 0, errors
    return output


def prove(block: Block, folder: Path) -> None:
    # A cell of a notebook may have `await` at its top; a block that is run may not.
    compile(block.code, block.place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if skipped := NO_RUN.search(block.info):
        assert skipped["reason"], f"{block.place}: no-run needs a reason"
        return
    assert not block.info, f"{block.place}: unknown words in the fence: {block.info}"
    program = folder / "block.py"
    program.write_text(block.code, "utf-8")
    output = run_warm(program, folder)
    if block.printed:
        assert [line.rstrip() for line in output.splitlines()] == block.printed


@pytest.mark.slow
@pytest.mark.parametrize("block", [pytest.param(b, id=b.place) for b in blocks()])
def test_a_block_of_the_docs_runs(block: Block, tmp_path: Path) -> None:
    prove(block, tmp_path)


@pytest.mark.parametrize("example", [pytest.param(p, id=p.name) for p in EXAMPLES])
def test_an_example_is_short(example: Path) -> None:
    """What it prints is in `test_examples.py`."""
    assert len(example.read_text("utf-8").splitlines()) <= EXAMPLE_LINES_MAX


def test_the_tour_names_every_package() -> None:
    """A newcomer finds each folder in the table, and the table names no folder that is gone."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    named = set(re.findall(r"^\| `(\w+)/` \|", text, re.MULTILINE))
    packages = {path.parent.name for path in (ROOT / "src" / "windlass").glob("*/__init__.py")}
    assert named == packages | {"proof", "bench"}


def imported_modules(code: str) -> Iterator[str]:
    """Our own modules that a program imports from."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.ImportFrom(module=str(module)):
                names = [module]
            case ast.Import(aliases):
                names = [alias.name for alias in aliases]
            case _:
                names = []
        yield from (name for name in names if name.split(".")[0] == "windlass")


def test_docs_and_examples_import_only_from_public_modules() -> None:
    programs = {block.place: block.code for block in blocks()}
    programs |= {path.name: path.read_text("utf-8") for path in EXAMPLES}
    inner = [
        f"{place}: {module}"
        for place, code in programs.items()
        for module in imported_modules(code)
        if not PUBLIC.fullmatch(module)
    ]
    assert inner == []


@pytest.mark.parametrize("page", GUIDES)
def test_each_file_that_a_guide_names_is_there(page: str) -> None:
    """A path is relative to the repository or to `src/windlass`; `path::test` names a test."""
    lost: list[str] = []
    for span in re.findall(r"`([\w./-]+(?:::\w+)?)`", (ROOT / page).read_text("utf-8")):
        path, _, test = span.partition("::")
        if "/" not in path and not path.endswith((".py", ".toml")):
            continue
        found = [
            base / path for base in (ROOT, ROOT / "src" / "windlass") if (base / path).exists()
        ]
        if not found or (test and f"def {test}(" not in found[0].read_text("utf-8")):
            lost.append(span)
    assert lost == []


def test_each_promise_about_security_names_its_tests() -> None:
    """A promise is a row of a table whose second column is "held by"."""
    page = (ROOT / "docs" / "security.md").read_text("utf-8")
    tables = re.findall(r"^\| promise \| held by \|\n\|[-|]+\|\n((?:\|.*\n)+)", page, re.MULTILINE)
    rows = [row for table in tables for row in table.splitlines()]
    assert rows
    for row in rows:
        promise, _, tests = row.strip("| ").partition(" | ")
        assert re.findall(r"`tests/[\w/]+\.py::test_\w+`", tests), promise


PAGE = """
```python
print("one")  # prints: one
```

- In a list:
  ```python no-run: needs a key
  raise SystemExit
  ```
"""


def test_blocks_are_found_with_their_place() -> None:
    first, second = blocks_in(PAGE, "page.md")
    assert first == Block("page.md:2", "", 'print("one")  # prints: one\n')
    assert second == Block("page.md:7", "no-run: needs a key", "raise SystemExit\n")


@pytest.mark.parametrize(
    ("info", "code"),
    [
        ("", "print('two')  # prints: one\n"),
        ("", "raise SystemExit(1)\n"),
        ("no-run", "pass\n"),
        ("norun: a typo", "pass\n"),
    ],
    ids=["another output", "a failure", "no reason", "unknown words"],
)
def test_a_block_that_is_wrong_is_noticed(info: str, code: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        prove(Block("page.md:1", info, code), tmp_path)


def test_a_block_that_is_right_passes(tmp_path: Path) -> None:
    for block in blocks_in(PAGE, "page.md"):
        prove(block, tmp_path)
