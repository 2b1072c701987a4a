"""The routes of owned records: each kind is made, listed, read, changed and deleted the same way.

Invariant: a route finds a record through the caller of its request, so that no resource can show,
change or delete what another owner has.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from windlass.server.access import Role
from windlass.server.messages import HttpReply, HttpRequest, Reply
from windlass.server.owned_records import DocumentT, OwnedRecords, PageQuery
from windlass.server.routing import HandlerT, Routes
from windlass.server.service import Service

ReplyT = TypeVar("ReplyT", bound=Struct)


class Resource(Routes, Generic[DocumentT]):
    """The routes of one kind of owned record, under `/{kind}s`."""

    def __init__(
        self,
        kind: str,
        reply: type[Struct],
        describe: Callable[[DocumentT], Struct],
        open_store: Callable[[Service], OwnedRecords[DocumentT]],
        *,
        role: Role,
        reader: Role = "watch",
        parameter: str = "name",
    ) -> None:
        """Begin without routes. `kind` is in the singular, as in the code of an error.

        `describe`: makes the description of a document for a client, as a `reply`. `role`: who may
        make, change and delete one. `reader`: who may list and read them. `parameter`: what a path
        calls the name of a document.
        """
        super().__init__()
        self._kind = kind
        self._reply = reply
        self._describe = describe
        self._open_store = open_store
        self._role: Role = role
        self._reader: Role = reader
        self._parameter = parameter
        self._path = f"/{kind}s"
        self._one = f"/{kind}s/{{{parameter}}}"
        title = kind.capitalize()
        self._title = title
        self.page: type[Struct] = msgspec.defstruct(
            f"{title}Page",
            [(f"{kind}s", list[reply]), ("cursor", str | None, None)],
            frozen=True,
            namespace={"__doc__": f"Some {kind}s, by name.", "__module__": __name__},
        )

    async def find(self, service: Service, request: HttpRequest) -> DocumentT:
        """Return the document that a path names. Raises ApiError 404 if it is not the caller's."""
        name = request.params[self._parameter]
        return await self._open_store(service).find(request.caller, name)

    def create(self, **fields: Any) -> Callable[[HandlerT], HandlerT]:  # noqa: ANN401 - of a route
        """Add the route that makes a document."""
        usual: dict[str, Any] = {"reply": self._reply, "status": 201, "stored_replies": True}
        given = usual | fields
        return self.add("POST", self._path, role=self._role, scope="caller", **given)

    def change(self, verb: str, **fields: Any) -> Callable[[HandlerT], HandlerT]:  # noqa: ANN401 - of a route
        """Add the route that does something to one document."""
        usual: dict[str, Any] = {"reply": self._reply, "stored_replies": True}
        given = usual | {"errors": (f"{self._kind}_not_found",)} | fields
        return self.add("POST", f"{self._one}/{verb}", role=self._role, scope="caller", **given)

    def list(self, **fields: Any) -> Callable[[HandlerT], HandlerT]:  # noqa: ANN401 - of a route
        """Add the route that lists documents."""
        given: dict[str, Any] = {"query": PageQuery, "reply": self.page} | fields
        return self.add("GET", self._path, role=self._reader, scope="caller", **given)

    def add_list(self, summary: str) -> None:
        """Add the route that lists the caller's documents, or all for an admin."""
        self.list(name=f"list{self._title}s", summary=summary)(self._list_page)

    def add_read(self, summary: str) -> None:
        """Add the route that reads one document."""
        self.add(
            "GET",
            self._one,
            role=self._reader,
            scope="caller",
            name=f"read{self._title}",
            summary=summary,
            reply=self._reply,
            errors=(f"{self._kind}_not_found",),
        )(self._read_one)

    def add_delete(self, summary: str, verb: str = "delete") -> None:
        """Add the route that deletes one document. `verb`: what the operation calls it."""
        self.add(
            "DELETE",
            self._one,
            role=self._role,
            scope="caller",
            name=f"{verb}{self._title}",
            summary=summary,
            stored_replies=True,
            status=204,
            errors=(f"{self._kind}_not_found",),
        )(self._delete_one)

    async def _list_page(self, service: Service, request: HttpRequest) -> Reply:
        query = request.decode_query(PageQuery)
        found, cursor = await self._open_store(service).list_for(request.caller, query)
        return HttpReply(200, self.page([self._describe(each) for each in found], cursor))

    async def _read_one(self, service: Service, request: HttpRequest) -> Reply:
        return HttpReply(200, self._describe(await self.find(service, request)))

    async def _delete_one(self, service: Service, request: HttpRequest) -> Reply:
        name = request.params[self._parameter]
        await self._open_store(service).delete_for(request.caller, name)
        return HttpReply(204)


def fill_reply(reply: type[ReplyT], document: object, **other: object) -> ReplyT:
    """Return a reply with the fields of a document that have the same names, and some others."""
    names = [name for name in reply.__struct_fields__ if name not in other]
    same = {name: getattr(document, name) for name in names if hasattr(document, name)}
    return reply(**same, **other)
