"""The tools for files, called as a model calls them: through the toolbox."""

import re
import shutil
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.errors import ModelRetry
from windlass.core.messages import ImagePart, ToolResult
from windlass.ports import ReconcileOutcome
from windlass.testing.tools import call_context, cleared_call
from windlass.tools.core_toolset import core_tools
from windlass.tools.files import grep as grep_module
from windlass.tools.files.edits import Edit, apply_edits, build_diff, edit_state
from windlass.tools.files.file_globs import FileGlob
from windlass.tools.files.file_tools import file_tools
from windlass.tools.files.workspace import Workspace
from windlass.tools.results import TEXT_BYTES_MAX
from windlass.tools.run_context import RunContext
from windlass.tools.toolbox import Toolbox

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def box(root: Path) -> Toolbox:
    return Toolbox(file_tools(Workspace(root)))


async def use(box: Toolbox, name: str, **arguments: Any) -> ToolResult:
    spec = next(spec for spec in box.specs if spec.name == name)
    return await box.run(cleared_call(spec, arguments), call_context())


async def say(box: Toolbox, name: str, **arguments: Any) -> str:
    result = await use(box, name, **arguments)
    assert result.kind == "value", result.text
    return result.text


async def fail(box: Toolbox, name: str, **arguments: Any) -> str:
    result = await use(box, name, **arguments)
    assert result.kind == "error", result.text
    assert result.text.isprintable()
    return result.text


def test_what_is_offered(root: Path) -> None:
    """T13, T2: the effects; the core tools in one call."""
    effects = {tool.name: tool.spec.effect for tool in core_tools(root)}
    assert effects == {
        "read": "read",
        "glob": "read",
        "grep": "read",
        "write": "idempotent",
        "edit": "write",
        "bash": "write",
        "bash_output": "read",
        "bash_kill": "idempotent",
        "fetch": "read",
        "todo": "read",
    }


def test_labels_can_be_chosen(root: Path) -> None:
    """G7: files are neither private nor untrusted unless told; what shows content says so."""
    plain = {tool.name: tool.spec.labels for tool in file_tools(Workspace(root))}
    assert set(plain.values()) == {()}
    told = file_tools(Workspace(root), private=True, untrusted=True)
    assert {tool.name for tool in told if tool.spec.labels == ("untrusted", "private")} == {
        "read",
        "glob",
        "grep",
        "edit",
    }


def test_calls_on_different_files_may_run_side_by_side(box: Toolbox, root: Path) -> None:
    """T2: and on one file, however it is spelled, they may not."""
    (root / "link").symlink_to("a.txt")
    keys = [
        box.resource_of("edit", {"path": path}) for path in ("a.txt", "./a.txt", "link", "b.txt")
    ]
    assert keys == ["file:a.txt", "file:a.txt", "file:a.txt", "file:b.txt"]
    assert box.resource_of("write", {"path": "a\0"}) is None
    assert box.resource_of("grep", {"pattern": "x"}) is None


# ── read ─────────────────────────────────────────────────────────────────────


async def test_read_numbers_the_lines(box: Toolbox, root: Path) -> None:
    """T13."""
    (root / "a.txt").write_text("one\ntwo\nthree\n")
    assert await say(box, "read", path="a.txt") == "     1\tone\n     2\ttwo\n     3\tthree"
    page = await say(box, "read", path="a.txt", offset=2, limit=1)
    assert page == "     2\ttwo\n[lines 2 to 2 of 3; continue with offset=3]"
    assert "has 3 lines" in await fail(box, "read", path="a.txt", offset=4)


async def test_read_shows_a_big_file_page_by_page(box: Toolbox, root: Path) -> None:
    """T13, T10: the pages are whole, and each says how to read on."""
    lines = [f"line {number} " + "x" * 50 for number in range(1, 3_001)]
    (root / "big.txt").write_text("\n".join(lines))
    seen: list[str] = []
    offset: int | None = 1
    while offset is not None:
        page = await say(box, "read", path="big.txt", offset=offset)
        assert len(page.encode()) <= TEXT_BYTES_MAX
        assert "left out" not in page
        seen += [line.partition("\t")[2] for line in page.splitlines() if "\t" in line]
        further = re.search(r"continue with offset=(\d+)", page)
        offset = int(further[1]) if further else None
    assert seen == lines


async def test_read_shows_long_lines_in_part(box: Toolbox, root: Path) -> None:
    """T10."""
    (root / "a.txt").write_text("x" * 1_000_000)
    assert "998000 more characters" in await say(box, "read", path="a.txt")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "[a.txt is empty]"),
        (b"\xef\xbb\xbfmark\r\nline\r\n", "     1\tmark\n     2\tline"),
        ("wide".encode("utf-16"), "     1\twide"),
        (
            b"caf\xe9",
            (
                "     1\tcaf\ufffd\n[the file is not entirely UTF-8: invalid bytes are shown "
                "as \ufffd]"
            ),
        ),
    ],
)
async def test_read_takes_text_as_it_comes(
    box: Toolbox, root: Path, data: bytes, text: str
) -> None:
    """T13."""
    (root / "a.txt").write_bytes(data)
    assert await say(box, "read", path="a.txt") == text


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"\x7fELF" + bytes(2_000), "a program of 1.96 kB"),
        (b"PK\x03\x04", "a zip archive of 4 bytes"),
        (b"%PDF-1.7", "a PDF document"),
        (b"text\x00text", "binary data"),
    ],
)
async def test_read_refuses_what_is_not_text(
    box: Toolbox, root: Path, data: bytes, kind: str
) -> None:
    """T13: with a word on its kind and size."""
    (root / "a").write_bytes(data)
    assert kind in await fail(box, "read", path="a")


async def test_read_shows_pictures(box: Toolbox, root: Path) -> None:
    """P7, T10: as parts."""
    (root / "a.png").write_bytes(PNG)
    assert (await use(box, "read", path="a.png")).content == (ImagePart("image/png", PNG),)
    (root / "a.png").write_bytes(PNG + bytes(6 * 2**20))
    assert "5 MB is the most" in await fail(box, "read", path="a.png")


async def test_read_lists_a_folder(box: Toolbox, root: Path) -> None:
    """T13."""
    (root / "sub").mkdir()
    (root / "b\nc").touch()
    (root / "l").symlink_to("/")
    assert await say(box, "read", path=".") == ". is a folder:\n'b\\nc'\nl@\nsub/"
    assert "it is empty" in await say(box, "read", path="sub")


async def test_read_tells_what_is_wrong(box: Toolbox, root: Path) -> None:
    """T13, T7."""
    (root / "main.py").touch()
    assert "Did you mean main.py?" in await fail(box, "read", path="mian.py")
    assert "outside of the workspace" in await fail(box, "read", path="/etc/passwd")


# ── write ────────────────────────────────────────────────────────────────────


async def test_write_makes_and_replaces(box: Toolbox, root: Path) -> None:
    """T13: twice is as good as once."""
    assert await say(box, "write", path="x/a.txt", content="é\n") == "Created 'x/a.txt': 3 bytes."
    assert await say(box, "write", path="x/a.txt", content="é\n") == "Replaced 'x/a.txt': 3 bytes."
    assert (root / "x" / "a.txt").read_text("utf-8") == "é\n"


def test_write_refuses_half_a_character(root: Path) -> None:
    """T13."""
    write = next(tool for tool in file_tools(Workspace(root)) if tool.name == "write")
    with pytest.raises(ModelRetry, match="half a character"):
        write(path="a", content="\ud800")
    assert list(root.iterdir()) == []


# ── edit ─────────────────────────────────────────────────────────────────────


async def test_edit_replaces_and_shows_a_diff(box: Toolbox, root: Path) -> None:
    """T13."""
    (root / "a.py").write_text("".join(f"line {n}\n" for n in range(1, 101)))
    (root / "a.py").chmod(0o755)
    edits = [{"old": "line 50\n", "new": "fifty\nand\n"}, {"old": "line 60", "new": "sixty"}]
    told = await say(box, "edit", path="a.py", edits=edits)
    assert told.startswith("Edited 'a.py'.\n--- a.py\n+++ a.py\n@@ -47,7 +47,8 @@\n line 47\n")
    assert "-line 50\n+fifty\n+and\n" in told
    assert "@@ -57,7 +58,7 @@" in told
    assert "fifty\nand\nline 51" in (root / "a.py").read_text()
    assert stat.S_IMODE((root / "a.py").stat().st_mode) == 0o755


@pytest.mark.parametrize(
    ("edits", "why"),
    [
        ([{"old": "gone", "new": "x"}], "was not found in the file"),
        ([{"old": "one", "new": "1"}, {"old": "gone", "new": "x"}], "Edit 2 of 2"),
        ([{"old": "two", "new": "x"}], "more than once in the file (lines 2, 3)"),
        ([{"old": "one", "new": "one"}], "are the same"),
        ([{"old": "one\n  two", "new": "x"}], "Line 1 differs from it only in white space"),
        ([{"old": "     1\tone", "new": "x"}], "Leave out the line numbers"),
        ([{"old": "aa", "new": "x"}], "more than once"),
    ],
)
async def test_edit_changes_all_or_nothing(
    box: Toolbox, root: Path, edits: list[dict[str, Any]], why: str
) -> None:
    """T13, T9: and what is wrong is told without the content."""
    (root / "a.txt").write_text("one\ntwo\ntwo\naaa\n")
    assert why in await fail(box, "edit", path="a.txt", edits=edits)
    assert (root / "a.txt").read_text() == "one\ntwo\ntwo\naaa\n"


async def test_edit_keeps_every_other_byte(box: Toolbox, root: Path) -> None:
    """T13: line ends, a byte order mark, and bytes that are not UTF-8."""
    (root / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\ncaf\xe9\r\n")
    await say(box, "edit", path="a.txt", edits=[{"old": "one\ntwo", "new": "1\n2\n3"}])
    assert (root / "a.txt").read_bytes() == b"\xef\xbb\xbf1\r\n2\r\n3\r\ncaf\xe9\r\n"
    (root / "b.txt").write_bytes(b"one\r\ntwo\n")
    await say(box, "edit", path="b.txt", edits=[{"old": "two", "new": "2"}])
    assert (root / "b.txt").read_bytes() == b"one\r\n2\n"


async def test_edit_replaces_each_place_if_told(box: Toolbox, root: Path) -> None:
    """T13."""
    (root / "a.txt").write_text("a b a")
    await say(box, "edit", path="a.txt", edits=[{"old": "a", "new": "c", "replace_all": True}])
    assert (root / "a.txt").read_text() == "c b c"


async def test_edit_refuses_binary_and_missing_files(box: Toolbox, root: Path) -> None:
    """T13."""
    (root / "a").write_bytes(b"\x00")
    assert "binary data" in await fail(box, "edit", path="a", edits=[{"old": "x", "new": "y"}])
    assert "no file" in await fail(box, "edit", path="b", edits=[{"old": "x", "new": "y"}])


async def reconcile(box: Toolbox, **arguments: Any) -> ReconcileOutcome:
    spec = next(spec for spec in box.specs if spec.name == "edit")
    return await box.reconcile(cleared_call(spec, arguments, started=True), call_context())


@pytest.mark.parametrize(
    ("edits", "before", "after"),
    [
        ([Edit("one", "two")], "not_done", "done"),
        ([Edit("one", "1"), Edit("three", "3")], "not_done", "done"),
        ([Edit("one", "one more")], "not_done", "unknown"),
        ([Edit("one", "")], "unknown", "unknown"),
        ([Edit("one", ""), Edit("three", "3")], "not_done", "unknown"),
        ([Edit("one", "two", replace_all=True)], "not_done", "done"),
    ],
)
async def test_an_interrupted_edit_is_looked_up_in_the_file(
    box: Toolbox, root: Path, edits: list[Edit], before: str, after: str
) -> None:
    """T13: a crash leaves the old content or the new; where both could be, nobody guesses."""
    arguments = [vars(edit) for edit in edits]
    (root / "a.txt").write_text("one\nthree\n")
    assert await reconcile(box, path="a.txt", edits=arguments) == before
    await say(box, "edit", path="a.txt", edits=arguments)
    found = await reconcile(box, path="a.txt", edits=arguments)
    assert (found.kind if isinstance(found, ToolResult) else found) == {"done": "value"}.get(
        after, after
    )


async def test_an_edit_of_a_file_that_is_gone_is_unknown(box: Toolbox) -> None:
    """T13."""
    assert await reconcile(box, path="a", edits=[{"old": "x", "new": "y"}]) == "unknown"


SHORT = st.text("ab\n", min_size=1, max_size=3)
EDITS = st.lists(st.builds(Edit, SHORT, st.text("abc\n", max_size=3), st.booleans()), min_size=1)


@given(st.text("abc\n", max_size=30), EDITS)
def test_no_interrupted_edit_is_made_twice_or_forgotten(text: str, edits: list[Edit]) -> None:
    """T13: "done" is never said of the old text, nor "not done" of the new one."""
    try:
        after = apply_edits(text, edits)
    except ModelRetry:
        return
    if after != text:
        assert edit_state(text, edits) != "done"
        assert edit_state(after, edits) != "not_done"


LINES = st.lists(st.sampled_from("abcd"), max_size=12)


@given(LINES, LINES)
def test_a_diff_says_where_and_what(old: list[str], new: list[str]) -> None:
    """T13: its heads count from the beginning of the file."""
    patch = build_diff("\n".join(old), "\n".join(new), "p").splitlines()
    before, after = "\n".join(old).split("\n"), "\n".join(new).split("\n")
    at, to = 0, 0
    for line in patch[2:]:
        head = re.match(r"@@ -(\d+)(?:,(\d+))? \+(\d+)", line)
        if head:
            at, to = int(head[1]) - 1, int(head[3]) - 1
        elif line[0] in " -":
            assert before[at] == line[1:]
            at += 1
        if not head and line[0] in " +":
            assert after[to] == line[1:]
            to += 1


# ── glob ─────────────────────────────────────────────────────────────────────


@pytest.fixture
def tree(root: Path) -> Path:
    for name in ("a.py", "src/b.py", "src/deep/c.py", "src/d.ts", "docs/e.md", ".hidden/f.py"):
        (root / name).parent.mkdir(exist_ok=True, parents=True)
        (root / name).write_text(f"def {Path(name).stem}():\n    pass\n")
    for skipped in (".git", "node_modules", "src/__pycache__"):
        (root / skipped).mkdir()
        (root / skipped / "g.py").write_text("def g(): pass\n")
    return root


@pytest.mark.parametrize(
    ("pattern", "path", "found"),
    [
        ("*.py", ".", ".hidden/f.py a.py src/b.py src/deep/c.py"),
        ("./*.py", ".", "a.py"),
        ("**/*.py", "src", "src/b.py src/deep/c.py"),
        ("src/**", ".", "src/b.py src/d.ts src/deep/c.py"),
        ("src/**/c.py", ".", "src/deep/c.py"),
        ("**/deep/**", ".", "src/deep/c.py"),
        ("src/*.{py,ts}", ".", "src/b.py src/d.ts"),
        ("[a-b].py", ".", "a.py src/b.py"),
        ("g.py", ".", ""),
        ("*", "node_modules", "node_modules/g.py"),
    ],
)
async def test_glob_finds_files(
    box: Toolbox, tree: Path, pattern: str, path: str, found: str
) -> None:
    """T13: sorted, without version control, caches and node_modules."""
    told = await say(box, "glob", pattern=pattern, path=path)
    assert told == ("\n".join(found.split()) or "No file matches.")


async def test_glob_is_bounded_and_shows_odd_names(box: Toolbox, root: Path) -> None:
    """T13, T10."""
    for number in range(600):
        (root / f"{number:03}\n.txt").touch()
    lines = (await say(box, "glob", pattern="*.txt")).splitlines()
    assert (lines[0], lines[-1], len(lines)) == (
        "'000\\n.txt'",
        "[100 more: narrow the pattern]",
        501,
    )


@pytest.mark.parametrize("pattern", ["/etc/*", "../*", "", "{a,b}" * 10, "a\0"])
async def test_glob_refuses_what_it_cannot_do(box: Toolbox, pattern: str) -> None:
    """T13, T7."""
    assert "lob" in await fail(box, "glob", pattern=pattern)


def test_a_hostile_pattern_takes_no_longer() -> None:
    """T13: as a pattern of one expression would."""
    assert not FileGlob("*a" * 100 + "b").matches_path("a" * 250)
    assert not FileGlob("**/" * 50 + "b").matches_path("a/" * 50 + "a")


# ── grep ─────────────────────────────────────────────────────────────────────


def without_ripgrep(_name: str, **_options: object) -> None:
    return None


@pytest.fixture(params=["own", "ripgrep"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ripgrep and without: the answers are the same."""
    if request.param == "own":
        monkeypatch.setattr(shutil, "which", without_ripgrep)
    elif shutil.which("rg") is None:
        pytest.skip("ripgrep is not installed")


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (
            {"pattern": "def [a-c]\\("},
            "a.py:1:def a():|src/b.py:1:def b():|src/deep/c.py:1:def c():",
        ),
        ({"pattern": "DEF b", "ignore_case": True}, "src/b.py:1:def b():"),
        ({"pattern": "pass$", "path": "docs"}, "docs/e.md:2:    pass"),
        ({"pattern": "^def", "glob": "*.ts"}, "src/d.ts:1:def d():"),
        ({"pattern": "def", "path": "src", "glob": "deep/*"}, "src/deep/c.py:1:def c():"),
        (
            {"pattern": "d\\(", "path": "src/d.ts", "around": 1},
            "--|src/d.ts:1:def d():|src/d.ts-2-    pass",
        ),
        ({"pattern": "(?<=def )e"}, "docs/e.md:1:def e():"),
        ({"pattern": "g\\(\\)"}, "No line matches."),
        ({"pattern": "g\\(\\)", "path": ".git"}, ".git/g.py:1:def g(): pass"),
        (
            {"pattern": "def", "limit": 1},
            ".hidden/f.py:1:def f():|[stopped at 1 matches: narrow the search]",
        ),
    ],
)
async def test_grep_finds_lines(
    box: Toolbox, tree: Path, asked: dict[str, Any], found: str
) -> None:
    """T13."""
    assert await say(box, "grep", **asked) == "\n".join(found.split("|"))


@pytest.mark.usefixtures("either")
async def test_grep_takes_files_as_they_come(box: Toolbox, root: Path) -> None:
    """T13: no binary files, no links; long lines around their match; odd names in one line."""
    (root / "binary").write_bytes(b"needle\x00")
    (root / "link").symlink_to("/")
    (root / "crlf").write_bytes(b"\xef\xbb\xbfneedle\r\n")
    (root / "long").write_text("x" * 5_000 + "needle" + "y" * 5_000)
    (root / "odd\nname").write_bytes(b"caf\xe9 needle")
    lines = (await say(box, "grep", pattern="needle")).splitlines()
    assert lines[0] == "crlf:1:needle"
    assert "needle" in lines[1]
    assert len(lines[1]) < 320
    assert lines[2] == "'odd\\nname':1:caf\ufffd needle"
    assert await say(box, "grep", pattern="^needle$") == "crlf:1:needle"


@pytest.mark.parametrize("pattern", ["(", "a**", "[z-a]", "(?P<a", "x{99999999999}"])
async def test_grep_tells_what_is_wrong_with_a_pattern(box: Toolbox, pattern: str) -> None:
    """T13, T7."""
    assert "regular expression" in await fail(box, "grep", pattern=pattern)


async def test_grep_of_nothing_is_refused(box: Toolbox) -> None:
    assert "empty" in await fail(box, "grep", pattern="")


@pytest.mark.slow
@pytest.mark.realtime
async def test_a_pattern_that_takes_for_ever_takes_nobody_along(
    box: Toolbox, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T13, T3: it is matched in a process of its own, which is ended."""
    monkeypatch.setattr(grep_module, "SEARCH_S_MAX", 1)
    (root / "a.txt").write_text("a" * 60 + "!\n")
    assert "took more than 1 s" in await fail(box, "grep", pattern="^(a+)+$")


def test_grep_stops_when_it_is_told_to(root: Path) -> None:
    """C4."""
    (root / "a.txt").write_text("needle")
    grep = next(tool for tool in file_tools(Workspace(root)) if tool.name == "grep")
    stopping = threading.Event()
    stopping.set()
    assert grep(RunContext(deps=None, stopping=stopping), "needle") == "No line matches."
