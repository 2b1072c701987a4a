"""What a call would change, before anyone is asked about it (W4)."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from windlass.core.errors import ConfigError, ModelRetry
from windlass.core.verdicts import CallPreview
from windlass.ports import PreviewingTools
from windlass.private_files import mark_private
from windlass.tools import call_changes
from windlass.tools.files.edits import build_diff
from windlass.tools.files.file_tools import file_tools
from windlass.tools.files.workspace import Workspace
from windlass.tools.function import tool
from windlass.tools.toolbox import Toolbox

pytestmark = pytest.mark.contract("W4")


@pytest.fixture
def box(tmp_path: Path) -> Toolbox:
    return Toolbox(file_tools(Workspace(tmp_path)))


async def preview(box: Toolbox, name: str, **arguments: Any) -> CallPreview:
    found = await box.preview(name, arguments)
    assert found is not None
    return found


async def test_a_write_over_a_file_is_shown_as_its_difference(box: Toolbox, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("one\ntwo\nthree\n")
    shown = await preview(box, "write", path="./notes.txt", content="one\n2\nthree\n")
    assert shown.note == "'notes.txt' would be replaced. It can be undone."
    assert shown.diff.splitlines()[3:] == [" one", "-two", "+2", " three", " "]
    assert file.read_text() == "one\ntwo\nthree\n"


async def test_an_edit_is_shown_at_its_place_and_a_wrong_one_as_wrong(
    box: Toolbox, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("one\ntwo\nthree\n")
    shown = await preview(box, "edit", path="notes.txt", edits=[{"old": "two", "new": "2"}])
    assert "\n-two\n+2\n" in shown.diff
    wrong = await preview(box, "edit", path="notes.txt", edits=[{"old": "four", "new": "4"}])
    assert wrong.note.startswith("As things are now, the call would fail: `old` was not found")
    assert not wrong.diff


async def test_what_has_no_difference_is_said_in_words(box: Toolbox, tmp_path: Path) -> None:
    (tmp_path / "same.txt").write_text("same")
    (tmp_path / "data.bin").write_bytes(b"\x00\x01")
    for path, words in {
        "new/folder/new.txt": "does not exist and would be created",
        "same.txt": "has exactly this content already",
        "data.bin": "is binary data of 2 bytes; all of it would be replaced",
        "same.txt/below": "would fail: There is no 'same.txt/below'",
        ".": "would fail: '.' is a folder",
    }.items():
        shown = await preview(box, "write", path=path, content="same")
        assert words in shown.note
        assert not shown.diff
    assert not (tmp_path / "new").exists()


async def test_nothing_outside_of_the_workspace_and_nothing_private_is_read(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside.txt").write_text("hidden words")
    (root / "link.txt").symlink_to(tmp_path / "outside.txt")
    private = root / "sessions.db"
    private.write_text("hidden words")
    mark_private(private)
    box = Toolbox(file_tools(Workspace(root)))
    for path in ("../outside.txt", str(tmp_path / "outside.txt"), "link.txt", "sessions.db"):
        for name, more in {
            "write": {"content": "x"},
            "edit": {"edits": [{"old": "hidden", "new": "x"}]},
        }.items():
            shown = await preview(box, name, path=path, **more)
            assert shown.note.startswith("As things are now, the call would fail: ")
            assert "hidden words" not in str(shown)


async def test_bytes_and_line_ends_that_change_can_be_sent_and_seen(
    box: Toolbox, tmp_path: Path
) -> None:
    (tmp_path / "old.txt").write_bytes(b"caf\xe9\r\nend\r\n")
    shown = await preview(box, "write", path="old.txt", content="café\nend\n")
    assert b"udce9" in msgspec.json.encode(shown)
    assert "-end\r\n" in shown.diff
    assert "+end\n" in shown.diff


async def test_a_preview_is_bounded_and_says_what_it_leaves_out(
    box: Toolbox, tmp_path: Path
) -> None:
    before = "x" * 200 + "\n"
    (tmp_path / "long.txt").write_text(before)
    content = "\n".join(f"{number} {'y' * 200}" for number in range(300))
    whole = build_diff(before, content, "long.txt").splitlines()
    shown = await preview(box, "write", path="long.txt", content=content)
    assert len(shown.diff) < call_changes.DIFF_CHARS_MAX + 100
    *kept, last = shown.diff.splitlines()
    assert kept == whole[: len(kept)]
    assert last == f"[{len(whole) - len(kept)} more lines]"


async def test_a_preview_that_fails_or_hangs_stops_nobody() -> None:
    def fail() -> str:
        raise SystemExit("no")

    def refuse() -> str:
        raise ModelRetry("not on Sundays")

    async def hang() -> str:
        await asyncio.Event().wait()
        return ""

    def act() -> None:
        raise AssertionError("a preview runs nothing")

    shown = {
        preview.__name__: await Toolbox([tool(act, preview=preview)]).preview("act", {})
        for preview in (fail, refuse, hang, lambda: 5, lambda: "It acts.")
    }
    final = "It cannot be undone."
    assert shown == {
        "fail": CallPreview(final),
        "refuse": CallPreview(
            "As things are now, the call would fail: not on Sundays", would_fail=True
        ),
        "hang": CallPreview(
            f"What would change is not known: it took too long to find out. {final}"
        ),
        "<lambda>": CallPreview(f"It acts. {final}"),
    }


async def test_a_tool_without_a_preview_and_an_unknown_one_say_nothing(box: Toolbox) -> None:
    assert isinstance(box, PreviewingTools)
    assert await box.preview("glob", {"pattern": "*"}) is None
    assert await box.preview("nothing", {}) is None
    missing = await preview(box, "write", path="a")
    assert missing.note.startswith("As things are now, the call would fail: ")


def test_a_preview_takes_the_arguments_of_its_tool() -> None:
    def act(path: str) -> None: ...

    with pytest.raises(ConfigError, match=r"preview must take \(path\), and no context"):
        tool(act, preview=lambda context, path: "")
