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
from windlass.core.messages import ImagePart
from windlass.tools.files.edits import Edit, apply_edits, build_diff, edit_state
from windlass.tools.files.globs import FileGlob
from windlass.tools.files.grep import GrepQuery, search_files
from windlass.tools.files.paths import quote_path
from windlass.tools.files.reading import (
    FILE_BYTES_MAX,
    LINES_MAX,
    decode_text,
    format_listing,
    format_page,
    format_size,
    is_binary,
    printable_name,
    read_picture,
)
from windlass.tools.files.workspace import FileContent, FileStamp, Workspace
from windlass.tools.function import NOT_DONE, UNKNOWN, Reconciliation, Tool, ToolFunction, tool
from windlass.tools.run_context import RunContext

PATHS_MAX = 500
"""Paths in one answer of `glob`."""
WALKED_MAX = 200_000
"""Files that `glob` looks at."""
MATCHES_MAX = 100
EDITED_BYTES_MAX = 8 * 2**20

PathArgument = Annotated[str, "A path in the workspace, such as src/main.py."]
FolderArgument = Annotated[str, "Where to look: a path in the workspace."]


def file_tools(
    workspace: Workspace, *, private: bool = False, untrusted: bool = False
) -> tuple[Tool[..., Any], ...]:
    """Tools over the files of a workspace.

    Args:
        workspace: What they can reach.
        private: Its files are secrets or private data: all that shows their content says so.
        untrusted: Its files come from strangers: as `private`.
    """

    def make_tool(function: ToolFunction, **traits: Any) -> Tool[..., Any]:  # noqa: ANN401 - see Traits
        return tool(function, private=private, untrusted=untrusted, retries=0, **traits)

    def file_resource(arguments: Mapping[str, Any]) -> str:
        return f"file:{workspace.resource_key(arguments['path'])}"

    files = FileToolset(workspace)
    return (
        make_tool(files.read, effect="read", resource=file_resource),
        make_tool(files.glob, effect="read"),
        make_tool(files.grep, effect="read"),
        tool(files.write, effect="idempotent", resource=file_resource),
        make_tool(
            files.edit, effect="write", resource=file_resource, reconcile=files.reconcile_edit
        ),
    )


class FileToolset:
    """What the tools do."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def read(
        self,
        path: PathArgument,
        offset: Annotated[int, Meta(ge=1, description="The first line to read, from 1.")] = 1,
        limit: Annotated[
            int, Meta(ge=1, le=LINES_MAX, description="How many lines to read.")
        ] = LINES_MAX,
    ) -> str | ImagePart:
        """Read a file: text with line numbers, or a picture. Of a folder, list what is in it."""
        if self._workspace.is_folder(path):
            return format_listing(
                self._workspace.locate_path(path), self._workspace.list_entries(path)
            )
        content = self._workspace.read_file(path, FILE_BYTES_MAX)
        return read_picture(content) or format_page(content, offset, limit)

    def glob(
        self,
        pattern: Annotated[str, "Such as **/*.py, src/**/test_*.{js,ts} or, in one folder, ./*."],
        path: FolderArgument = ".",
    ) -> str:
        """Find files by their names.

        A pattern without a slash fits in all folders. Links, version control, caches, virtual
        environments and node_modules are left out, unless `path` leads into them.
        """
        glob, base = FileGlob(pattern), self._workspace.locate_path(path)
        below = "" if base == "." else f"{base}/"
        walk = self._workspace.walk_files(base)
        walked = itertools.islice(walk, WALKED_MAX)
        found = [
            printable_name(one) for one in walked if glob.matches_path(one.removeprefix(below))
        ]
        notes = [f"[{len(found) - PATHS_MAX} more: narrow it]"] if len(found) > PATHS_MAX else []
        if next(walk, None) is not None:
            notes.append(f"[stopped after {WALKED_MAX} files: name a folder as `path`]")
        return "\n".join(found[:PATHS_MAX] + notes) or "No file fits."

    def grep(
        self,
        context: RunContext,
        pattern: Annotated[str, "A regular expression, matched line by line, as Python knows it."],
        path: FolderArgument = ".",
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
        chosen = FileGlob(glob) if glob else None
        asked = GrepQuery(pattern, path, chosen, ignore_case, around, limit)
        return search_files(self._workspace, asked, context)

    def write(
        self, path: PathArgument, content: Annotated[str, "All of what the file shall hold."]
    ) -> str:
        """Write a whole file, new or in place of the old one. To change a part, use edit."""
        try:
            data = content.encode()
        except UnicodeEncodeError:
            raise ModelRetry("`content` holds half a character: write it as text.") from None
        new = self._workspace.write_file(path, data)
        return f"{'Made' if new else 'Replaced'} {quote_path(path)}: {format_size(len(data))}."

    def edit(self, path: PathArgument, edits: Annotated[list[Edit], Meta(min_length=1)]) -> str:
        """Replace exact texts in a file: all edits are made, in their order, or none is."""
        file = _EditableText.open_file(self._workspace, path)
        after = apply_edits(file.text, file.normalize_edits(edits))
        self._workspace.write_file(path, file.encode_text(after), file.stamp)
        return (
            f"Edited {quote_path(path)}.\n{build_diff(file.text, after, printable_name(file.path))}"
        )

    def reconcile_edit(
        self,
        context: RunContext,  # noqa: ARG002 - what is asked is in the file
        path: str,
        edits: list[Edit],
    ) -> str | Reconciliation:
        """Tell from the file what became of an edit that a crash interrupted."""
        file = _EditableText.open_file(self._workspace, path)
        match edit_state(file.text, file.normalize_edits(edits)):
            case "done":
                return f"Edited {quote_path(path)}. (It was interrupted afterwards; the file was checked.)"
            case "not_done":
                return NOT_DONE
            case "unknown":
                return UNKNOWN


class _EditableText:
    """A text file that can be put back byte by byte, but for what is edited.

    Where all lines end in CR LF they are shown and edited as if they ended in LF alone. Bytes that
    are not UTF-8 are carried along.
    """

    def __init__(self, content: FileContent) -> None:
        self.path = content.path
        self.stamp: FileStamp = content.stamp
        self._byte_order_mark = b"\xef\xbb\xbf" if content.data.startswith(b"\xef\xbb\xbf") else b""
        text = content.data.removeprefix(self._byte_order_mark).decode("utf-8", "surrogateescape")
        self._crlf = 0 < text.count("\r\n") == text.count("\n") == text.count("\r")
        self.text = text.replace("\r\n", "\n") if self._crlf else text

    @classmethod
    def open_file(cls, workspace: Workspace, path: str) -> "_EditableText":
        content = workspace.read_file(path, EDITED_BYTES_MAX)
        if is_binary(content.data):
            decode_text(content)  # Says what it is instead.
        if content.size > EDITED_BYTES_MAX:
            raise ModelRetry(
                f"{quote_path(path)} has {format_size(content.size)}: "
                f"{format_size(EDITED_BYTES_MAX)} is the most that can be edited."
            )
        return cls(content)

    def normalize_edits(self, edits: list[Edit]) -> list[Edit]:
        if not self._crlf:
            return edits
        return [
            Edit(one.old.replace("\r\n", "\n"), one.new.replace("\r\n", "\n"), one.replace_all)
            for one in edits
        ]

    def encode_text(self, text: str) -> bytes:
        lines = text.replace("\n", "\r\n") if self._crlf else text
        try:
            return self._byte_order_mark + lines.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise ModelRetry("`new` holds half a character: write it as text.") from None
