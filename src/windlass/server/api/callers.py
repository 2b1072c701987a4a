"""Who is calling: login of a browser, logout, tokens, the end of a caller.

Invariant: a login code is used up by a POST, never by a GET, so that a program that previews links
cannot use it. Scripts cannot read the cookie. The page keeps the page key for its own origin, and
sends it in a header, never in an address.
"""

from contextlib import suppress
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from windlass.core.errors import NothingToDo
from windlass.server.access import (
    CALLER_CHARS_MAX,
    Caller,
    Role,
    TeamGrant,
    check_caller_name,
    invited_person,
)
from windlass.server.caller_end import CallerEnd, RunChoice, end_caller
from windlass.server.caller_export import export_caller
from windlass.server.erasure import CallerErasure, RunFate
from windlass.server.errors import ApiError
from windlass.server.guard import cookie_name, read_credentials
from windlass.server.messages import HttpReply, HttpRequest, Reply, StreamReply
from windlass.server.resources import Resource, fill_reply
from windlass.server.routing import Routes
from windlass.server.service import Service
from windlass.server.tokens import (
    BROWSER_MAX_S,
    INVITATION_S,
    TokenKind,
    TokenRecord,
    TokenStore,
)


class LoginBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A login code, from the link that `windlass serve` or an invitation shows, or a token."""

    code: Annotated[str, Meta(max_length=200)] = ""
    token: Annotated[str, Meta(max_length=200)] = ""


class CallerReply(msgspec.Struct, frozen=True, kw_only=True):
    """Who is calling, and what they may do."""

    caller: str
    roles: list[Role]
    token: str
    """The id of the token."""
    person: str
    """Whose identity was verified; empty for a program."""
    grants: tuple[TeamGrant, ...]
    """What they may do with runs that others started."""


class LoginReply(CallerReply, frozen=True, kw_only=True):
    """Who has signed in, and the page key, which is shown only here."""

    page_key: str
    """Send it as `Windlass-Page-Key` with every request that has the cookie."""


class TokenBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token to make."""

    caller: str
    roles: tuple[Role, ...] = ("watch", "start", "answer")
    expires_in_s: Annotated[float, Meta(gt=0)] | None = None
    note: Annotated[str, Meta(max_length=200)] = ""
    context: dict[str, Any] = {}
    person: Annotated[str, Meta(max_length=CALLER_CHARS_MAX)] = ""
    """Who uses it, if that is one person."""
    grants: Annotated[tuple[TeamGrant, ...], Meta(max_length=20)] = ()


class InvitationBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A person who is invited to the page."""

    person: Annotated[str, Meta(min_length=1, max_length=CALLER_CHARS_MAX)]
    roles: tuple[Role, ...] = ("watch", "start", "answer")
    """What the person may do with runs of their own."""
    grants: Annotated[tuple[TeamGrant, ...], Meta(max_length=20)] = ()
    """What the person may do with runs that others started."""
    valid_s: Annotated[float, Meta(gt=0, le=30 * 86_400)] = INVITATION_S


class InvitationReply(msgspec.Struct, frozen=True):
    """An invitation. Its code is shown only here."""

    code: str
    """Signs one browser in, once: open the page with `#login=CODE`."""
    path: str
    """The path of the link, from the address of the service."""


class TokenReply(msgspec.Struct, frozen=True, kw_only=True):
    """A token or a signed-in browser, without its secrets."""

    id: str
    kind: TokenKind
    caller: str
    roles: tuple[Role, ...]
    created: float
    expires: float | None
    note: str
    person: str
    grants: tuple[TeamGrant, ...]


class NewTokenReply(msgspec.Struct, frozen=True):
    """A new token. Its secret is shown only here."""

    secret: str
    token: TokenReply


class EndBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What becomes of the runs of a caller that is ended."""

    runs: RunChoice = "keep"
    """`cancel` ends the open ones; `keep` leaves them on, and an admin can answer and end them."""


class EraseBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What becomes of the open runs of a caller that is erased."""

    runs: RunFate = "cancel"
    """`cancel` ends them; `wait` erases their sessions once they have ended."""


TAR_TYPE = "application/x-tar"
ReplyT = TypeVar("ReplyT", bound=CallerReply)
ROUTES = Routes()


@ROUTES.add(
    "POST",
    "/login",
    role=None,
    takes_secret=True,
    body=LoginBody,
    reply=LoginReply,
    errors=("login_refused",),
)
async def log_in(service: Service, request: HttpRequest) -> Reply:
    """Sign a browser in with a login code, which works once, or with a token."""
    body = await request.decode(LoginBody)
    if bool(body.code) == bool(body.token):
        raise ApiError(422, "invalid_body", "Give either a login code or a token.", "Give one.")
    if body.token:
        browser = await service.tokens.sign_in_with_token(body.token)
    else:
        browser = await service.tokens.exchange_login(body.code)
    await _end_browser(service, request)
    caller = browser.record.to_caller()
    reply = fill_caller(LoginReply, caller, page_key=browser.page_key)
    cookie = _cookie(request, browser.cookie, int(BROWSER_MAX_S))
    return HttpReply(200, reply, {"Set-Cookie": cookie})


@ROUTES.add("POST", "/logout", role="watch", scope="caller", status=204)
async def log_out(service: Service, request: HttpRequest) -> Reply:
    """End the sign-in of this browser."""
    await _end_browser(service, request)
    return HttpReply(204, headers={"Set-Cookie": _cookie(request, "", 0)})


async def _end_browser(service: Service, request: HttpRequest) -> None:
    """Revoke the sign-in that the browser of a request has, if it has one."""
    given = read_credentials(request)
    if given.cookie:
        caller = await service.tokens.authenticate_browser(given.cookie, given.page_key)
        if caller is not None:
            with suppress(NothingToDo):
                await service.tokens.delete(caller.token)


@ROUTES.add("GET", "/me", role="watch", scope="caller", reply=CallerReply)
async def read_caller(_service: Service, request: HttpRequest) -> Reply:
    """Say who is calling, and with which roles."""
    return HttpReply(200, fill_caller(CallerReply, request.caller))


def fill_caller(shape: type[ReplyT], caller: Caller, **more: str) -> ReplyT:
    """Return the reply that says who a caller is."""
    return shape(
        caller=caller.name,
        roles=sorted(caller.roles),
        token=caller.token,
        person=caller.person,
        grants=caller.grants,
        **more,
    )


@ROUTES.add(
    "POST",
    "/invitations",
    name="invitePerson",
    role="admin",
    body=InvitationBody,
    reply=InvitationReply,
    status=201,
)
async def invite_person(service: Service, request: HttpRequest) -> Reply:
    """Invite a person to the page. The link signs one browser in as them, once."""
    body = await request.decode(InvitationBody)
    caller = invited_person(body.person, body.roles, body.grants)
    code = await service.tokens.create_login(caller, body.valid_s)
    return HttpReply(201, InvitationReply(code, f"/#login={code}"))


def describe_token(record: TokenRecord) -> TokenReply:
    return fill_reply(TokenReply, record)


def open_tokens(service: Service) -> TokenStore:
    return service.tokens


TOKENS = Resource(
    "token",
    TokenReply,
    describe_token,
    open_tokens,
    role="admin",
    reader="admin",
    parameter="token",
)


# The reply is not kept for a request that is sent again, because it holds the secret.
@TOKENS.create(body=TokenBody, reply=NewTokenReply, stored_replies=False)
async def create_token(service: Service, request: HttpRequest) -> Reply:
    """Make a token. Its secret is shown once."""
    body = await request.decode(TokenBody)
    made = await service.tokens.create(
        body.caller,
        body.roles,
        expires_in_s=body.expires_in_s,
        context=body.context,
        note=body.note,
        person=body.person,
        grants=body.grants,
    )
    return HttpReply(201, NewTokenReply(made.secret, describe_token(made.record)))


TOKENS.add_list("List tokens, without their secrets.")
TOKENS.add_delete("Revoke a token.", "revoke")


@ROUTES.add(
    "POST",
    "/callers/{caller}/end",
    name="endCaller",
    role="admin",
    body=EndBody,
    reply=CallerEnd,
    stored_replies=True,
)
async def end_named_caller(service: Service, request: HttpRequest) -> Reply:
    """End a caller: tokens, login links, webhooks, schedules, and runs by choice."""
    body = await request.decode(EndBody)
    ended = await end_caller(
        service.journal,
        service.tokens,
        request.params["caller"],
        runs=body.runs,
        by=request.caller.author,
        drive=service.drive_soon,
    )
    service.feed.nudge()
    return HttpReply(200, ended)


@ROUTES.add(
    "POST",
    "/callers/{caller}/erase",
    name="eraseCaller",
    role="admin",
    body=EraseBody,
    reply=CallerErasure,
)
async def erase_named_caller(service: Service, request: HttpRequest) -> Reply:
    """Erase a caller: sessions, messages, uploads, folders, and all that acts for it."""
    body = await request.decode(EraseBody)
    caller = request.params["caller"]
    erased = await service.eraser.erase(caller, runs=body.runs, by=request.caller.author)
    service.feed.nudge()
    return HttpReply(200, erased)


@ROUTES.add(
    "GET",
    "/callers/{caller}/export",
    name="exportCaller",
    role="admin",
    content_types=(TAR_TYPE,),
)
async def export_named_caller(service: Service, request: HttpRequest) -> Reply:
    """Download all that is kept about a caller, as a tar file."""
    caller = check_caller_name(request.params["caller"])
    headers = {"Content-Disposition": 'attachment; filename="caller.tar"'}
    pieces = export_caller(service.journal, caller, service.folders, service.shown_parts)
    return StreamReply(pieces, content_type=TAR_TYPE, headers=headers, keep_alive=b"")


def _cookie(request: HttpRequest, secret: str, seconds: int) -> str:
    secure = "; Secure" if request.scheme == "https" else ""
    name = cookie_name(request)
    path = f"{request.prefix}/"
    return f"{name}={secret}; Path={path}; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}"
