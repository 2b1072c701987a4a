"""Images and files that a caller sends before the run that uses them.

Invariant: an upload belongs to its caller, is bounded, and is forgotten after a day. A run takes a
copy of it into its own session, so it does not matter to the run what becomes of the upload.
"""

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable

import msgspec
from msgspec.structs import replace
from typing_extensions import override

from windlass.core.errors import NothingToDo
from windlass.core.messages import ContentPart, FilePart, ImagePart, TextPart
from windlass.ports import Journal
from windlass.server.access import Caller
from windlass.server.errors import ApiError
from windlass.server.limits import ServiceLimits
from windlass.server.owned_records import OwnedRecords, PageQuery, full_name

SCHEME = "upload:"
"""What the address of a part begins with that names an upload."""
DATA_KIND = "upload-data"
CHUNK_BYTES = 1_000_000
"""The most that a shared record holds."""
NAME_CHARS_MAX = 255
TYPE_CHARS_MAX = 100
Prompt = str | tuple[ContentPart, ...]


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an upload."""

    name: str
    """Its id."""
    owner: str
    file_name: str
    media_type: str
    bytes: int
    sha256: str
    created: float
    expires: float
    is_whole: bool = False
    """Whether all of it is there: a service may be killed while it writes."""


class UploadStore(OwnedRecords[Upload]):
    """The uploads of one journal."""

    def __init__(
        self, journal: Journal, limits: ServiceLimits, now: Callable[[], float] = time.time
    ) -> None:
        super().__init__(journal, "upload", Upload)
        self._limits = limits
        self._now = now

    async def keep(self, caller: Caller, data: bytes, media_type: str, file_name: str) -> Upload:
        """Keep what a caller sends. Raises ApiError 422 or 429 if it does not fit."""
        _check_upload(data, media_type, file_name)
        now = self._now()
        upload = Upload(
            name=f"up-{secrets.token_hex(12)}",
            owner=caller.name,
            file_name=file_name,
            media_type=media_type,
            bytes=len(data),
            sha256=await asyncio.to_thread(lambda: hashlib.sha256(data).hexdigest()),
            created=now,
            expires=now + self._limits.upload_kept_s,
        )
        # First what it is, so that the pieces of one that is never finished are found and removed.
        await self.add(upload)
        await self._check_room(upload)
        for number, start in enumerate(range(0, len(data), CHUNK_BYTES)):
            chunk = data[start : start + CHUNK_BYTES]
            await self.records.put_record(DATA_KIND, _chunk_name(upload, number), chunk, 0)
        await self.change(full_name(upload), lambda known: replace(known, is_whole=True))
        return replace(upload, is_whole=True)

    async def _check_room(self, new: Upload) -> None:
        """Forget a new upload and raise ApiError 429 if it is one too many, or too long.

        It is counted after it was kept, so that requests at the same time cannot exceed the bounds.
        """
        others = [upload async for upload in self.walk(new.owner) if upload != new]
        held = sum(upload.bytes for upload in others)
        is_room = held + new.bytes <= self._limits.uploads_bytes
        if is_room and len(others) < self._limits.uploads_per_owner:
            return
        await super().remove(new)
        raise ApiError(
            429,
            "uploads_full",
            f"Your {len(others)} uploads have {held} bytes, and there is no room for {new.bytes} "
            "more.",
            "Delete some, or wait until they expire: GET /uploads lists them.",
            retry_after=max(1.0, min((one.expires for one in others), default=0) - self._now()),
        )

    async def read_data(self, upload: Upload) -> bytes:
        """Return the bytes of an upload. Raises NothingToDo if some of it is missing."""
        pieces: list[bytes] = []
        for number in range(_count_chunks(upload)):
            record = await self.records.get_record(DATA_KIND, _chunk_name(upload, number))
            if record is None:
                raise NothingToDo(f"the upload {upload.name} is not whole")
            pieces.append(record.data)
        return b"".join(pieces)

    @override
    async def list_for(self, caller: Caller, query: PageQuery) -> tuple[list[Upload], str | None]:
        """Return a page of the caller's own uploads: also an admin's prompt can name no others."""
        return await self.list_page(caller.name, query.cursor, query.limit)

    @override
    async def remove(self, document: Upload) -> None:
        """Forget an upload. Runs that took it keep their copy."""
        for number in range(_count_chunks(document)):
            await self.records.delete_record(DATA_KIND, _chunk_name(document, number))
        await super().remove(document)

    async def remove_old(self) -> None:
        """Forget all uploads that have expired."""
        expired = [upload async for upload in self.walk() if upload.expires <= self._now()]
        for upload in expired:
            await self.remove(upload)

    async def resolve(self, caller: Caller, prompt: Prompt) -> Prompt:
        """Return a prompt with the caller's uploads in place of their names. Raises ApiError."""
        if isinstance(prompt, str):
            return prompt
        named = [await self._find_named(caller, part) for part in prompt]
        # A request of some bytes can name an upload a thousand times.
        bytes_max = self._limits.prompt_uploads_bytes
        if sum(upload.bytes for upload in named if upload is not None) > bytes_max:
            raise ApiError(
                413,
                "prompt_too_long",
                f"The uploads that the prompt names have more than {bytes_max} bytes.",
                "Name fewer of them, or raise the limit of the service.",
            )
        parts = zip(prompt, named, strict=True)
        return tuple([part if one is None else await self._take(one) for part, one in parts])

    async def _find_named(self, caller: Caller, part: ContentPart) -> Upload | None:
        """Return the upload that a part names; None if it names none. Raises ApiError 404."""
        if isinstance(part, TextPart) or part.url is None or not part.url.startswith(SCHEME):
            return None
        upload = await self.find(caller, part.url.removeprefix(SCHEME))
        if not upload.is_whole or upload.expires <= self._now():
            raise _gone(upload.name)
        return upload

    async def _take(self, upload: Upload) -> ContentPart:
        try:
            data = await self.read_data(upload)
        except NothingToDo:
            raise _gone(upload.name) from None
        if upload.media_type.startswith("image/"):
            return ImagePart(upload.media_type, data)
        return FilePart(upload.media_type, upload.file_name, data)


def _check_upload(data: bytes, media_type: str, file_name: str) -> None:
    kind, _, detail = media_type.partition("/")
    is_type = bool(kind and detail) and media_type.isascii() and media_type.isprintable()
    is_name = bool(file_name) and len(file_name) <= NAME_CHARS_MAX and file_name.isprintable()
    if data and is_type and is_name and len(media_type) <= TYPE_CHARS_MAX:
        return
    raise ApiError(
        422,
        "invalid_upload",
        "An upload needs bytes, a type and a name.",
        "Send the bytes as the body, Content-Type such as image/png, and ?name=plan.png.",
    )


def _count_chunks(upload: Upload) -> int:
    return -(-upload.bytes // CHUNK_BYTES)


def _chunk_name(upload: Upload, number: int) -> str:
    return f"{upload.name}.{number:06d}"


def _gone(name: str) -> ApiError:
    return ApiError(
        404, "upload_not_found", f"There is no upload {name[:100]!r} of yours.", "Send it again."
    )
