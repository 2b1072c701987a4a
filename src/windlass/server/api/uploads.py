"""Uploads: send an image or a file once, and name it in the prompts of runs."""

from typing import Annotated

import msgspec
from msgspec import Meta

from windlass.server.messages import HttpReply, HttpRequest, Reply
from windlass.server.resources import Resource, fill_reply
from windlass.server.service import Service
from windlass.server.uploads import NAME_CHARS_MAX, SCHEME, Upload, UploadStore


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


def describe_upload(upload: Upload) -> UploadReply:
    url = SCHEME + upload.name
    return fill_reply(UploadReply, upload, id=upload.name, url=url, name=upload.file_name)


def open_uploads(service: Service) -> UploadStore:
    return service.uploads


UPLOADS = Resource(
    "upload", UploadReply, describe_upload, open_uploads, role="start", parameter="upload"
)


@UPLOADS.create(
    query=UploadQuery,
    takes_upload=True,
    errors=("invalid_upload", "uploads_full", "body_too_long"),
)
async def create_upload(service: Service, request: HttpRequest) -> Reply:
    """Send an image or a file, as the body, to be named in the prompts of runs."""
    query = request.decode_query(UploadQuery)
    media_type = request.header("content-type").partition(";")[0].strip().lower()
    data = await request.read_body()
    made = await service.uploads.keep(request.caller, data, media_type, query.name)
    return HttpReply(201, describe_upload(made), {"Location": f"/uploads/{made.name}"})


UPLOADS.add_list("List the caller's uploads.")
UPLOADS.add_read("Read about an upload.")
UPLOADS.add_delete("Delete an upload. Runs that took it keep their copy.")
