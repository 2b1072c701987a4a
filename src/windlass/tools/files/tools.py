"""The tools that read, search and change files: `read`, `glob`, `grep`, `write`, `edit`.

The law: they reach what the `Workspace` reaches, and nothing else. Whoever is told that a file was
changed finds it changed, also after a power cut; and after a crash in the middle of a call it holds
what it held before, or all of what it should hold: so `write` may simply be run again, and `edit`
looks which of the two it was.
"""

import itertools
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from windlass.core.errors import ModelRetry
from windlass.core.messages import Image
from windlass.tools.files.edits import Edit, diff, edited, state_of
from windlass.tools.files.globs import Glob
from windlass.tools.files.grep import Search, search
from windlass.tools.files.paths import told
from windlass.tools.files.reading import (
    FILE_BYTES_MAX,
    LINES_MAX,
    is_binary,
    listing,
    page,
    picture,
    size_of,
    text_of,
    visible,
)
from windlass.tools.files.workspace import Content, Stamp, Workspace
from windlass.tools.function import NOT_DONE, UNKNOWN, Function, Reconciliation, Tool, tool
from windlass.tools.run_context import RunContext

PATHS_MAX = 500
"""Paths in one answer of `glob`."""
WALKED_MAX = 200_000
"""Files that `glob` looks at."""
MATCHES_MAX = 100
EDITED_BYTES_MAX = 8 * 2**20

Path = Annotated[str, "A path in the workspace, such as src/main.py."]
Folder = Annotated[str, "Where to look: a path in the workspace."]


def file_tools(
    workspace: Workspace, *, private: bool = False, untrusted: bool = False
) -> tuple[Tool[..., Any], ...]:
    """Tools over the files of a workspace.

    Args:
        workspace: What they can reach.
        private: Its files are secrets or private data: all that shows their content says so.
        untrusted: Its files come from strangers: as `private`.
    """

    def labelled(function: Function, **traits: Any) -> Tool[..., Any]:  # noqa: ANN401 - see Traits
        return tool(function, private=private, untrusted=untrusted, retries=0, **traits)

    def resource(arguments: Mapping[str, Any]) -> str:
        return f"file:{workspace.key(arguments['path'])}"

    files = Files(workspace)
    return (
        labelled(files.read, effect="read", resource=resource),
        labelled(files.glob, effect="read"),
        labelled(files.grep, effect="read"),
        tool(files.write, effect="idempotent", resource=resource),
        labelled(files.edit, effect="write", resource=resource, reconcile=files.look_after_edit),
    )


class Files:
    """What the tools do."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def read(
        self,
        path: Path,
        offset: Annotated[int, Meta(ge=1, description="The first line to read, from 1.")] = 1,
        limit: Annotated[
            int, Meta(ge=1, le=LINES_MAX, description="How many lines to read.")
        ] = LINES_MAX,
    ) -> str | Image:
        """Read a file: text with line numbers, or a picture. Of a folder, list what is in it."""
        if self._workspace.is_folder(path):
            return listing(self._workspace.locate(path), self._workspace.entries(path))
        content = self._workspace.read(path, FILE_BYTES_MAX)
        return picture(content) or page(content, offset, limit)

    def glob(
        self,
        pattern: Annotated[str, "Such as **/*.py, src/**/test_*.{js,ts} or, in one folder, ./*."],
        path: Folder = ".",
    ) -> str:
        """Find files by their names.

        A pattern without a slash fits in all folders. Links, version control, caches, virtual
        environments and node_modules are left out, unless `path` leads into them.
        """
        glob, base = Glob(pattern), self._workspace.locate(path)
        below = "" if base == "." else f"{base}/"
        walk = self._workspace.walk(base)
        walked = itertools.islice(walk, WALKED_MAX)
        found = [visible(one) for one in walked if glob.fits(one.removeprefix(below))]
        notes = [f"[{len(found) - PATHS_MAX} more: narrow it]"] if len(found) > PATHS_MAX else []
        if next(walk, None) is not None:
            notes.append(f"[stopped after {WALKED_MAX} files: name a folder as `path`]")
        return "\n".join(found[:PATHS_MAX] + notes) or "No file fits."

    def grep(
        self,
        context: RunContext,
        pattern: Annotated[str, "A regular expression, matched line by line, as Python knows it."],
        path: Folder = ".",
        glob: Annotated[str | None, "Only files that fit, such as *.py."] = None,
        ignore_case: Annotated[bool, "Take upper and lower case as the same."] = False,  # noqa: FBT002
        around: Annotated[
            int, Meta(ge=0, le=20, description="Lines to show before and after each match.")
        ] = 0,
        limit: Annotated[
            int, Meta(ge=1, le=1_000, description="The most matches to show.")
        ] = MATCHES_MAX,
    ) -> str:
        """Find lines in files, as path:number:line. What glob leaves out, this leaves out too."""
        if not pattern:
            raise ModelRetry("`pattern` is empty: it would match each line.")
        chosen = Glob(glob) if glob else None
        asked = Search(pattern, path, chosen, ignore_case, around, limit)
        return search(self._workspace, asked, context)

    def write(self, path: Path, content: Annotated[str, "All of what the file shall hold."]) -> str:
        """Write a whole file, new or in place of the old one. To change a part, use edit."""
        try:
            data = content.encode()
        except UnicodeEncodeError:
            raise ModelRetry("`content` holds half a character: write it as text.") from None
        new = self._workspace.write(path, data)
        return f"{'Made' if new else 'Replaced'} {told(path)}: {size_of(len(data))}."

    def edit(self, path: Path, edits: Annotated[list[Edit], Meta(min_length=1)]) -> str:
        """Replace exact texts in a file: all edits are made, in their order, or none is."""
        file = _Text.open(self._workspace, path)
        after = edited(file.text, file.in_its_lines(edits))
        self._workspace.write(path, file.encoded(after), file.stamp)
        return f"Edited {told(path)}.\n{diff(file.text, after, visible(file.path))}"

    def look_after_edit(
        self,
        context: RunContext,  # noqa: ARG002 - what is asked is in the file
        path: str,
        edits: list[Edit],
    ) -> str | Reconciliation:
        """Tell from the file what became of an edit that a crash interrupted."""
        file = _Text.open(self._workspace, path)
        match state_of(file.text, file.in_its_lines(edits)):
            case "done":
                return (
                    f"Edited {told(path)}. (It was interrupted afterwards; the file was checked.)"
                )
            case "not_done":
                return NOT_DONE
            case "unknown":
                return UNKNOWN


class _Text:
    """A text file that can be put back byte by byte, but for what is edited.

    Where all lines end in CR LF they are shown and edited as if they ended in LF alone. Bytes that
    are not UTF-8 are carried along.
    """

    def __init__(self, content: Content) -> None:
        self.path = content.path
        self.stamp: Stamp = content.stamp
        self._mark = b"\xef\xbb\xbf" if content.data.startswith(b"\xef\xbb\xbf") else b""
        text = content.data.removeprefix(self._mark).decode("utf-8", "surrogateescape")
        self._crlf = 0 < text.count("\r\n") == text.count("\n") == text.count("\r")
        self.text = text.replace("\r\n", "\n") if self._crlf else text

    @classmethod
    def open(cls, workspace: Workspace, path: str) -> "_Text":
        content = workspace.read(path, EDITED_BYTES_MAX)
        if is_binary(content.data):
            text_of(content)  # Says what it is instead.
        if content.size > EDITED_BYTES_MAX:
            raise ModelRetry(
                f"{told(path)} has {size_of(content.size)}: "
                f"{size_of(EDITED_BYTES_MAX)} is the most that can be edited."
            )
        return cls(content)

    def in_its_lines(self, edits: list[Edit]) -> list[Edit]:
        if not self._crlf:
            return edits
        return [
            Edit(one.old.replace("\r\n", "\n"), one.new.replace("\r\n", "\n"), one.replace_all)
            for one in edits
        ]

    def encoded(self, text: str) -> bytes:
        lines = text.replace("\n", "\r\n") if self._crlf else text
        try:
            return self._mark + lines.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise ModelRetry("`new` holds half a character: write it as text.") from None
