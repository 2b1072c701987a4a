"""U2: what a typed prompt brings along, and how far its words are the person's own."""

from pathlib import Path

import pytest

from windlass.cli.chat.completion import FolderFiles, find_matches
from windlass.cli.chat.references import (
    FILE_CHARS_MAX,
    OUTPUT_CHARS_MAX,
    ExpandedPrompt,
    ShellNotes,
    expand_prompt,
)
from windlass.core.messages import ImagePart, TextPart

pytestmark = pytest.mark.contract("U2")


def expand(text: str, folder: Path) -> ExpandedPrompt:
    return expand_prompt(text, folder, ShellNotes())


def test_files_are_attached_and_labelled_and_people_are_not(tmp_path: Path) -> None:
    (tmp_path / "a b.txt").write_text("alpha")
    (tmp_path / "p.png").write_bytes(b"\x89PNG\r\n\x1a\n0")
    (tmp_path / "data.bin").write_bytes(b"\xff\xfe\x00")
    plain = expand("mail me@example.com and ask @someone", tmp_path)
    assert (plain.parts, plain.labels) == (
        (TextPart("mail me@example.com and ask @someone"),),
        (),
    )
    found = expand('see @"a b.txt", @p.png. and @data.bin', tmp_path)
    assert found.names == ("a b.txt", "p.png")
    assert any(isinstance(part, ImagePart) for part in found.parts)
    assert found.labels == ("untrusted", "private")
    assert found.problems == ("data.bin is neither text, a picture nor a PDF",)
    (tmp_path / "long.txt").write_text("x" * (FILE_CHARS_MAX + 10))
    [_, part] = expand("@long.txt", tmp_path).parts
    assert isinstance(part, TextPart)
    assert part.by_program
    assert "only the first 60,000 characters" in part.text


def test_a_command_of_the_person_goes_along_once_bounded_and_without_codes(tmp_path: Path) -> None:
    notes = ShellNotes()
    notes.add("make", "\x1b[31mred\x1b[0m\n" + "y" * 2 * OUTPUT_CHARS_MAX, 2)
    first = expand_prompt("why?", tmp_path, notes)
    [_, part] = first.parts
    assert isinstance(part, TextPart)
    assert "`make` (exit code 2)" in part.text
    assert "\x1b" not in part.text
    assert len(part.text) < OUTPUT_CHARS_MAX + 200
    assert first.labels == ("untrusted", "private")
    assert expand_prompt("and now?", tmp_path, notes).labels == ()


def test_files_are_found_by_their_letters_the_nearest_first(tmp_path: Path) -> None:
    paths = ["src/parser.py", "parse.md", "docs/sparse.md", "p/a/r/x.py", "other"]
    assert list(find_matches("par", paths)) == [
        "parse.md",
        "src/parser.py",
        "docs/sparse.md",
        "p/a/r/x.py",
    ]
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "f.txt").write_text("")
    assert FolderFiles(tmp_path).list() == ["sub/f.txt"]


def test_a_prompt_of_the_project_attaches_no_file_from_elsewhere(tmp_path: Path) -> None:
    """G7: a repository cannot have a key of the person's sent by a command that it offers."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "plan.md").write_text("the plan")
    (tmp_path / "key").write_text("a private key")
    (tmp_path / "key.png").write_bytes(b"\x89PNG\r\n\x1a\n0")
    (folder / "link").symlink_to(tmp_path / "key")
    elsewhere = f"@../key @link @{tmp_path}/key {tmp_path}/key.png"
    text = f"Do it: @plan.md {elsewhere}"
    prompt = expand_prompt(text, folder, ShellNotes(), "")
    assert prompt.names == ("plan.md",)
    assert len(prompt.problems) == 4
    assert "private key" not in str(prompt.parts[1:])
    # What the person types, as a mention or as the word that is filled in, counts.
    for typed in ("@../key", "../key"):
        given = expand_prompt("Do it: @../key", folder, ShellNotes(), typed)
        assert (given.names, given.problems) == (("../key",), ())
    assert expand_prompt(text, folder, ShellNotes()).names != prompt.names
