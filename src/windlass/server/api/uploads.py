"""Uploads: send an image or a file once, and name it in the prompts of runs."""

from typing import Annotated

import msgspec
from msgspec import Meta

from windlass.server.messages import HttpReply, HttpRequest, Reply
from windlass.server.owned_records import PageQuery
from windlass.server.routing import Route
from windlass.server.service import Service
from windlass.server.uploads import NAME_CHARS_MAX, SCHEME, Upload


class UploadQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What is uploaded."""

    name: Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)] = "file"
    """The name of the file, which the model sees."""


class UploadReply(msgspec.Struct, frozen=True, kw_only=True):
    """An upload. Times are seconds since the epoch."""

    id: str
    url: str
    """Give it as `url` of an image or a file in a prompt."""
    name: str
    media_type: str
    bytes: int
    sha256: str
    created: float
    expires: float


class UploadPage(msgspec.Struct, frozen=True):
    """Some uploads of the caller."""

    uploads: list[UploadReply]
    cursor: str | None = None


async def create_upload(service: Service, request: HttpRequest) -> Reply:
    query = request.decode_query(UploadQuery)
    media_type = request.header("content-type").partition(";")[0].strip().lower()
    data = await request.read_body()
    made = await service.uploads.keep(request.caller, data, media_type, query.name)
    return HttpReply(201, _upload_reply(made), {"Location": f"/uploads/{made.name}"})


async def list_uploads(service: Service, request: HttpRequest) -> Reply:
    query = request.decode_query(PageQuery)
    caller = request.caller
    # Also for an admin: only their own uploads can be named in a prompt.
    found, cursor = await service.uploads.list_page(caller.name, query.cursor, query.limit)
    return HttpReply(200, UploadPage([_upload_reply(one) for one in found], cursor))


async def read_upload(service: Service, request: HttpRequest) -> Reply:
    return HttpReply(200, _upload_reply(await _find(service, request)))


async def delete_upload(service: Service, request: HttpRequest) -> Reply:
    await service.uploads.remove(await _find(service, request))
    return HttpReply(204)


async def _find(service: Service, request: HttpRequest) -> Upload:
    return await service.uploads.find(request.caller, request.params["upload"])


def _upload_reply(upload: Upload) -> UploadReply:
    return UploadReply(
        id=upload.name,
        url=SCHEME + upload.name,
        name=upload.file_name,
        media_type=upload.media_type,
        bytes=upload.bytes,
        sha256=upload.sha256,
        created=upload.created,
        expires=upload.expires,
    )


ROUTES = (
    Route(
        method="POST",
        path="/uploads",
        handler=create_upload,
        role="start",
        scope="caller",
        name="createUpload",
        summary="Send an image or a file, as the body, to be named in the prompts of runs.",
        query=UploadQuery,
        takes_upload=True,
        reply=UploadReply,
        status=201,
        stored_replies=True,
        errors=("invalid_upload", "uploads_full", "body_too_long"),
    ),
    Route(
        method="GET",
        path="/uploads",
        handler=list_uploads,
        role="watch",
        scope="caller",
        name="listUploads",
        summary="List the caller's uploads.",
        query=PageQuery,
        reply=UploadPage,
    ),
    Route(
        method="GET",
        path="/uploads/{upload}",
        handler=read_upload,
        role="watch",
        scope="caller",
        name="readUpload",
        summary="Read about an upload.",
        reply=UploadReply,
        errors=("upload_not_found",),
    ),
    Route(
        method="DELETE",
        path="/uploads/{upload}",
        handler=delete_upload,
        role="start",
        scope="caller",
        name="deleteUpload",
        summary="Delete an upload. Runs that took it keep their copy.",
        status=204,
        stored_replies=True,
        errors=("upload_not_found",),
    ),
)
