"""The routes of owned records: each kind is made, listed, read, changed and deleted the same way.

Invariant: a route finds a record through the caller of its request, so that no resource can show,
change or delete what another owner has.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from windlass.server.access import Role
from windlass.server.messages import HttpReply, HttpRequest, Reply
from windlass.server.owned_records import DocumentT, OwnedRecords, PageQuery
from windlass.server.routing import Handler, Route
from windlass.server.service import Service

ReplyT = TypeVar("ReplyT", bound=Struct)


@dataclass(frozen=True)
class Resource(Generic[DocumentT]):
    """One kind of owned record, as a service offers it under `/{kind}s`."""

    kind: str
    """In the singular, as it is in the code of an error and in the name of an operation."""
    role: Role
    """What a caller must be allowed to do to make, change and delete one."""
    reply: type[Struct]
    describe: Callable[[DocumentT], Struct]
    """Returns what a client is told about a document, as a `reply`."""
    open_store: Callable[[Service], OwnedRecords[DocumentT]]
    reader: Role = "watch"
    """What a caller must be allowed to do to list and read them."""
    parameter: str = "name"
    """What the path calls the name of a document."""

    @cached_property
    def page(self) -> type[Struct]:
        """The reply of a list: documents by name, and the cursor of the next page."""
        fields = [(f"{self.kind}s", list[self.reply]), ("cursor", str | None, None)]
        named = {"__doc__": f"Some {self.kind}s, by name.", "__module__": __name__}
        return msgspec.defstruct(f"{self._title}Page", fields, frozen=True, namespace=named)

    @property
    def _title(self) -> str:
        return self.kind.capitalize()

    async def find(self, service: Service, request: HttpRequest) -> DocumentT:
        """Return the document that a path names. Raises ApiError 404 if it is not the caller's."""
        return await self.open_store(service).find(request.caller, request.params[self.parameter])

    async def list_page(self, service: Service, request: HttpRequest) -> Reply:
        """Answer a request for a list."""
        query = request.decode_query(PageQuery)
        found, cursor = await self.open_store(service).list_for(request.caller, query)
        return HttpReply(200, self.page([self.describe(each) for each in found], cursor))

    async def read_one(self, service: Service, request: HttpRequest) -> Reply:
        """Answer a request for one document."""
        return HttpReply(200, self.describe(await self.find(service, request)))

    async def delete_one(self, service: Service, request: HttpRequest) -> Reply:
        """Answer a request to delete a document."""
        name = request.params[self.parameter]
        await self.open_store(service).delete_for(request.caller, name)
        return HttpReply(204)

    def create_route(self, summary: str, handler: Handler, **other: Any) -> Route:  # noqa: ANN401 - fields of a route
        """Return the route that makes a document."""
        fields: dict[str, Any] = {"reply": self.reply, "stored_replies": True, **other}
        return Route(
            method="POST",
            path=f"/{self.kind}s",
            handler=handler,
            role=self.role,
            scope="caller",
            name=f"create{self._title}",
            summary=summary,
            status=201,
            **fields,
        )

    def list_route(self, summary: str, handler: Handler | None = None) -> Route:
        """Return the route that lists documents."""
        return Route(
            method="GET",
            path=f"/{self.kind}s",
            handler=handler or self.list_page,
            role=self.reader,
            scope="caller",
            name=f"list{self._title}s",
            summary=summary,
            query=PageQuery,
            reply=self.page,
        )

    def read_route(self, summary: str) -> Route:
        """Return the route that reads one document."""
        return Route(
            method="GET",
            path=f"/{self.kind}s/{{{self.parameter}}}",
            handler=self.read_one,
            role=self.reader,
            scope="caller",
            name=f"read{self._title}",
            summary=summary,
            reply=self.reply,
            errors=(f"{self.kind}_not_found",),
        )

    def change_route(self, verb: str, summary: str, handler: Handler, **other: Any) -> Route:  # noqa: ANN401 - fields of a route
        """Return the route that does something to one document."""
        fields: dict[str, Any] = {"reply": self.reply, **other}
        return Route(
            method="POST",
            path=f"/{self.kind}s/{{{self.parameter}}}/{verb}",
            handler=handler,
            role=self.role,
            scope="caller",
            name=f"{verb}{self._title}",
            summary=summary,
            stored_replies=True,
            errors=(f"{self.kind}_not_found",),
            **fields,
        )

    def delete_route(self, summary: str, verb: str = "delete") -> Route:
        """Return the route that deletes a document. `verb`: what the operation calls it."""
        return Route(
            method="DELETE",
            path=f"/{self.kind}s/{{{self.parameter}}}",
            handler=self.delete_one,
            role=self.role,
            scope="caller",
            name=f"{verb}{self._title}",
            summary=summary,
            stored_replies=True,
            status=204,
            errors=(f"{self.kind}_not_found",),
        )


def fill_reply(reply: type[ReplyT], document: object, **other: object) -> ReplyT:
    """Return a reply with the fields of a document that have the same names, and some others."""
    names = [name for name in reply.__struct_fields__ if name not in other]
    same = {name: getattr(document, name) for name in names if hasattr(document, name)}
    return reply(**same, **other)
