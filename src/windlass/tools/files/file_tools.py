"""The tools that read, search and change files: `read`, `glob`, `grep`, `write`, `edit`.

Invariant: they reach only what the `Workspace` reaches. When a result says that a file was changed,
the change is on the disk, also after a power cut. After a crash in the middle of a call, the file
has its old content or all of its new content: so `write` may simply be run again, and `edit` reads
the file to find out which of the two it is.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace as struct_replace

from windlass.core.errors import ModelRetry
from windlass.core.messages import ContentPart, ImagePart
from windlass.core.verdicts import CallPreview
from windlass.tools.files.edits import (
    TEXT_CHARS_MAX,
    Edit,
    apply_edits,
    build_diff,
    edit_state,
    is_whole_diff,
)
from windlass.tools.files.file_globs import FileGlob
from windlass.tools.files.grep import GrepQuery, search_files
from windlass.tools.files.paths import MissingPath, quote_path
from windlass.tools.files.reading import (
    FILE_BYTES_MAX,
    LINES_MAX,
    decode_text,
    detect_binary_kind,
    format_listing,
    format_page,
    format_size,
    holds_document,
    is_binary,
    printable_name,
    read_document,
    read_picture,
)
from windlass.tools.files.snapshots import FileSnapshots
from windlass.tools.files.workspace import FileContent, FileStamp, Workspace
from windlass.tools.function import NOT_DONE, UNKNOWN, Reconciliation, Tool, ToolFunction, tool
from windlass.tools.run_context import RunContext

PATHS_MAX = 500
"""Paths in one result of `glob`."""
WALKED_MAX = 200_000
"""Files that one `glob` looks at."""
MATCHES_MAX = 100
EDITED_BYTES_MAX = TEXT_CHARS_MAX

PathArgument = Annotated[str, "A path in the workspace, such as src/main.py."]
FolderArgument = Annotated[str, "The path in the workspace to search in."]


def file_tools(
    workspace: Workspace, *, private: bool = False, untrusted: bool = False
) -> tuple[Tool[..., Any], ...]:
    """Build the tools `read`, `glob`, `grep`, `write` and `edit` for a workspace.

    If the files are secrets or private data (`private`), or come from strangers (`untrusted`),
    every tool that shows content is labelled so.
    """

    def make_tool(function: ToolFunction, **traits: Any) -> Tool[..., Any]:  # noqa: ANN401 - see ToolTraits
        return tool(function, private=private, untrusted=untrusted, retries=0, **traits)

    def file_resource(arguments: Mapping[str, Any]) -> str:
        return f"file:{workspace.resource_key(arguments['path'])}"

    files = FileToolset(workspace)
    read = make_tool(files.read, effect="read", resource=file_resource)
    return (
        # Whatever parses a file does so in its own process.
        replace(read, spec=struct_replace(read.spec, isolated=True)),
        make_tool(files.glob, effect="read"),
        make_tool(files.grep, effect="read"),
        tool(
            files.write,
            effect="idempotent",
            resource=file_resource,
            preview=files.preview_write,
            undo=tool(files.undo_write, effect="idempotent"),
            snapshot=files.snapshot_write,
        ),
        make_tool(
            files.edit,
            effect="write",
            resource=file_resource,
            reconcile=files.reconcile_edit,
            preview=files.preview_edit,
            undo=tool(files.undo_edit, effect="idempotent"),
            snapshot=files.snapshot_edit,
        ),
    )


class FileToolset:
    """The functions behind the tools. The name of a method is the name of its tool."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._snapshots = FileSnapshots(workspace)

    def read(
        self,
        path: PathArgument,
        offset: Annotated[int, Meta(ge=1, description="The first line to read, from 1.")] = 1,
        limit: Annotated[
            int, Meta(ge=1, le=LINES_MAX, description="How many lines to read.")
        ] = LINES_MAX,
    ) -> str | ImagePart | Awaitable[str | list[ContentPart]]:
        """Read a file: text with line numbers, a picture, or the text of a document such as a PDF.

        For a folder, list its contents.
        """
        if self._workspace.is_folder(path):
            folder = self._workspace.locate_path(path)
            return format_listing(folder, self._workspace.list_entries(path))
        content = self._workspace.read_file(path, FILE_BYTES_MAX)
        if holds_document(content):
            # It is awaited on the event loop, where a cancel ends the reading.
            return read_document(content, offset, limit)
        return read_picture(content) or format_page(content, offset, limit)

    def glob(
        self,
        pattern: Annotated[
            str, "For example **/*.py or src/**/test_*.{js,ts}; ./* matches in one folder only."
        ],
        path: FolderArgument = ".",
    ) -> str:
        """Find files by name.

        A pattern without a slash matches in all folders. Links, version control, caches, virtual
        environments and node_modules are skipped, unless `path` leads into them.
        """
        file_glob = FileGlob(pattern)
        base = self._workspace.locate_path(path)
        prefix = "" if base == "." else f"{base}/"
        walk = self._workspace.walk_files(base)
        found = [
            printable_name(file)
            for file in itertools.islice(walk, WALKED_MAX)
            if file_glob.matches_path(file.removeprefix(prefix))
        ]
        lines = found[:PATHS_MAX]
        if len(found) > PATHS_MAX:
            lines.append(f"[{len(found) - PATHS_MAX} more: narrow the pattern]")
        if next(walk, None) is not None:
            lines.append(f"[stopped after {WALKED_MAX} files: pass a folder as `path`]")
        return "\n".join(lines) or "No file matches."

    def grep(
        self,
        context: RunContext,
        pattern: Annotated[str, "A Python regular expression, matched line by line."],
        path: FolderArgument = ".",
        glob: Annotated[str | None, "Search only files that match, such as *.py."] = None,
        ignore_case: Annotated[bool, "Ignore the difference of upper and lower case."] = False,  # noqa: FBT002
        around: Annotated[
            int, Meta(ge=0, le=20, description="Lines to show before and after each match.")
        ] = 0,
        limit: Annotated[
            int, Meta(ge=1, le=1_000, description="The most matches to show.")
        ] = MATCHES_MAX,
    ) -> str:
        """Search file contents. Results are path:number:line. Skips what glob skips."""
        if not pattern:
            raise ModelRetry("`pattern` is empty and would match every line.")
        file_glob = FileGlob(glob) if glob else None
        query = GrepQuery(pattern, path, file_glob, ignore_case, around, limit)
        return search_files(self._workspace, query, context)

    def write(
        self, path: PathArgument, content: Annotated[str, "The whole content of the file."]
    ) -> str:
        """Create a file, or replace its whole content. To change a part, use edit."""
        data = _encode_content(content)
        is_new = self._workspace.write_file(path, data)
        verb = "Created" if is_new else "Replaced"
        return f"{verb} {quote_path(path)}: {format_size(len(data))}."

    async def snapshot_write(self, context: RunContext, path: str, content: str) -> str:
        """Keep what `write` is about to replace."""
        before = await asyncio.to_thread(self._snapshots.read_before, path)
        return await self._snapshots.keep(context, before, _encode_content(content))

    async def undo_write(self, context: RunContext, path: str, content: str) -> str:  # noqa: ARG002 - as `write` takes them
        """Restore the file that `write` replaced, or delete the one that it created."""
        return await self._snapshots.restore(context, path)

    def preview_write(self, path: str, content: str) -> CallPreview:
        """Return the difference that `write` would make to the file as it is now."""
        _encode_content(content)
        try:
            found = self._workspace.read_file(path, EDITED_BYTES_MAX)
        except MissingPath:
            return CallPreview(f"{quote_path(path)} does not exist and would be created.")
        name = quote_path(found.path)
        kind = detect_binary_kind(found.data)
        if kind:
            return CallPreview(
                f"{name} is {kind} of {format_size(found.size)}; all of it would be replaced."
            )
        if found.size > EDITED_BYTES_MAX:
            return CallPreview(
                f"{name} has {format_size(found.size)}, too much to be compared; all of it would "
                "be replaced."
            )
        before = found.data.decode("utf-8", "surrogateescape")
        if before == content:
            return CallPreview(f"{name} has exactly this content already.")
        diff = build_diff(before, content, printable_name(found.path))
        return CallPreview(f"{name} would be replaced.", diff, is_whole=is_whole_diff(diff))

    def edit(self, path: PathArgument, edits: Annotated[list[Edit], Meta(min_length=1)]) -> str:
        """Replace exact texts in a file. All edits are made, in order, or none is."""
        file = _EditableText.open_file(self._workspace, path)
        after = apply_edits(file.text, file.normalize_edits(edits))
        self._workspace.write_file(path, file.encode_text(after), file.stamp)
        return (
            f"Edited {quote_path(path)}.\n{build_diff(file.text, after, printable_name(file.path))}"
        )

    async def snapshot_edit(self, context: RunContext, path: str, edits: list[Edit]) -> str:
        """Keep what `edit` is about to change."""
        before, after = await asyncio.to_thread(self._plan_edit, path, edits)
        return await self._snapshots.keep(context, before, after)

    def _plan_edit(self, path: str, edits: list[Edit]) -> tuple[FileContent, bytes]:
        file = _EditableText.open_file(self._workspace, path)
        after = apply_edits(file.text, file.normalize_edits(edits))
        return file.content, file.encode_text(after)

    async def undo_edit(self, context: RunContext, path: str, edits: list[Edit]) -> str:  # noqa: ARG002 - as `edit` takes them
        """Restore the file that `edit` changed."""
        return await self._snapshots.restore(context, path)

    def preview_edit(self, path: str, edits: list[Edit]) -> CallPreview:
        """Return the difference that `edit` would make to the file as it is now."""
        file = _EditableText.open_file(self._workspace, path)
        after = apply_edits(file.text, file.normalize_edits(edits))
        diff = build_diff(file.text, after, printable_name(file.path))
        note = f"{quote_path(file.path)} would be edited."
        return CallPreview(note, diff, is_whole=is_whole_diff(diff))

    def reconcile_edit(
        self,
        context: RunContext,  # noqa: ARG002 - the file itself has the answer
        path: str,
        edits: list[Edit],
    ) -> str | Reconciliation:
        """Find out from the file whether an edit that a crash interrupted was made."""
        file = _EditableText.open_file(self._workspace, path)
        match edit_state(file.text, file.normalize_edits(edits)):
            case "done":
                return (
                    f"Edited {quote_path(path)}. (The call was interrupted afterwards; the file "
                    "was checked.)"
                )
            case "not_done":
                return NOT_DONE
            case "unknown":
                return UNKNOWN


def _encode_content(content: str) -> bytes:
    try:
        return content.encode()
    except UnicodeEncodeError:
        raise ModelRetry(
            "`content` contains an unpaired surrogate (half a character). Write it as valid text."
        ) from None


class _EditableText:
    """A text file of which every byte is kept, except for what is edited.

    If all lines end in CR LF, they are edited as if they ended in LF alone. Bytes that are not
    UTF-8 are kept as surrogates.
    """

    def __init__(self, content: FileContent) -> None:
        self.content = content
        self.path = content.path
        self.stamp: FileStamp = content.stamp
        self._byte_order_mark = b""
        if content.data.startswith(b"\xef\xbb\xbf"):
            self._byte_order_mark = b"\xef\xbb\xbf"
        data = content.data.removeprefix(self._byte_order_mark)
        text = data.decode("utf-8", "surrogateescape")
        self._crlf = 0 < text.count("\r\n") == text.count("\n") == text.count("\r")
        self.text = text.replace("\r\n", "\n") if self._crlf else text

    @classmethod
    def open_file(cls, workspace: Workspace, path: str) -> "_EditableText":
        content = workspace.read_file(path, EDITED_BYTES_MAX)
        if is_binary(content.data):
            decode_text(content)  # Raises a ModelRetry that names the kind of the file.
        if content.size > EDITED_BYTES_MAX:
            raise ModelRetry(
                f"{quote_path(path)} has {format_size(content.size)}, and "
                f"{format_size(EDITED_BYTES_MAX)} is the most that can be edited."
            )
        return cls(content)

    def normalize_edits(self, edits: list[Edit]) -> list[Edit]:
        """Return the edits with the line ends that `text` has."""
        if not self._crlf:
            return edits
        return [
            Edit(edit.old.replace("\r\n", "\n"), edit.new.replace("\r\n", "\n"), edit.replace_all)
            for edit in edits
        ]

    def encode_text(self, text: str) -> bytes:
        """Return the bytes of the file with this text, with its own line ends."""
        if self._crlf:
            text = text.replace("\n", "\r\n")
        try:
            return self._byte_order_mark + text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise ModelRetry(
                "`new` contains an unpaired surrogate (half a character). Write it as valid text."
            ) from None
