"""Tokens: who may call, with which roles, and until when.

Invariant: only hashes of secrets are stored. A secret is shown once, when it is made. A login code
works once and for a short time. It signs one browser in, which then has two secrets: a cookie, and
a page key that the browser binds to the origin of the page. Neither is valid without the other,
because a browser sends a cookie to every port of a host.
"""

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Literal

import msgspec
from typing_extensions import override

from windlass.core.errors import ConfigError, NothingToDo, RecordConflict
from windlass.ports import Journal
from windlass.server.access import Caller, Role, TeamGrant, check_caller_name, check_roles
from windlass.server.errors import ApiError
from windlass.server.limits import RateLimiter, too_many_requests
from windlass.server.owned_records import OwnedRecords

LOGIN_KIND = "login"
BROWSER_END_KIND = "browser-end"
"""Records that name the sign-ins of browsers in the order in which they may have ended, so that
forgetting those reads no other tokens."""
LOGIN_S = 600.0
"""How long a login link works."""
INVITATION_S = 3 * 86_400.0
"""How long an invitation works."""
BROWSER_IDLE_S = 7 * 86_400.0
"""How long a browser stays signed in after its last request."""
BROWSER_MAX_S = 30 * 86_400.0
"""How long a browser stays signed in at most, however often it is used."""
BROWSER_RENEW_S = 3_600.0
"""How often the use of a sign-in is recorded at most, because it costs a write."""
CACHE_S = 3.0
"""How long a token is not looked up again: a revoked one keeps working at most this long."""
SIGN_INS_PER_S, SIGN_INS_AT_ONCE = 1 / 60, 20
"""How often a token signs browsers in: each one is kept for days."""
DEFAULT_ROLES: tuple[Role, ...] = ("watch", "start", "answer")
CONTEXT_BYTES_MAX = 16_384
_TOKEN = re.compile(r"wl_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_COOKIE = re.compile(r"wb_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
"""Has its own prefix, so that a cookie is never taken for a token."""
_PAGE_KEY = re.compile(r"wp_[0-9a-f]{64}")
TokenKind = Literal["token", "browser"]


class TokenRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it is kept. Times are seconds since the epoch."""

    id: str
    caller: str
    roles: tuple[Role, ...]
    created: float
    expires: float | None = None
    note: str = ""
    """What it is for, in the words of the person who made it."""
    context: dict[str, Any] = {}
    """What the gate may rely on for the runs of this token."""
    hash: str = ""
    kind: TokenKind = "token"
    """`browser`: a browser that signed in. It needs its cookie and its page key."""
    page_hash: str = ""
    """Of the page key of a browser."""
    person: str = ""
    """Whose identity was verified; empty for a program."""
    grants: tuple[TeamGrant, ...] = ()
    ends: float | None = None
    """When a browser is signed out at the latest; None: `BROWSER_MAX_S` after it signed in."""
    by_token: str = ""
    """The token that a browser signed in with. It is signed in for as long as that is valid."""

    @property
    def owner(self) -> str:
        """Tokens belong to the service, whose name is empty: only admins list them."""
        return ""

    @property
    def name(self) -> str:
        """Its record is found by its id, which the secret contains."""
        return self.id

    def to_caller(self) -> Caller:
        own = self.id, self.context, None, self.person, self.grants, self.by_token
        return Caller(self.caller, frozenset(self.roles), *own)

    def has_expired(self, now: float) -> bool:
        return self.expires is not None and now >= self.expires


class LoginRecord(msgspec.Struct, frozen=True):
    """A login code as it is kept, under its hash."""

    caller: str
    roles: tuple[Role, ...]
    expires: float
    context: dict[str, Any] = {}
    person: str = ""
    grants: tuple[TeamGrant, ...] = ()
    ends: float | None = None
    """When the browser is signed out at the latest, whatever it does."""


class NewToken(msgspec.Struct, frozen=True):
    """A token that was just made: the only time that its secret is known."""

    secret: str
    record: TokenRecord


class SignedInBrowser(msgspec.Struct, frozen=True):
    """A browser that has just signed in: the only time that its secrets are known."""

    cookie: str
    page_key: str
    record: TokenRecord


class TokenStore(OwnedRecords[TokenRecord]):
    """The tokens of one journal, shared by all services and command lines that use it."""

    def __init__(self, journal: Journal, now: Callable[[], float] = time.time) -> None:
        super().__init__(journal, "token", TokenRecord)
        self._now = now
        self._cache: dict[str, tuple[float, TokenRecord]] = {}
        self._sign_ins = RateLimiter(SIGN_INS_PER_S, SIGN_INS_AT_ONCE)

    async def create(
        self,
        caller: str,
        roles: Collection[str] = DEFAULT_ROLES,
        *,
        expires_in_s: float | None = None,
        context: Mapping[str, Any] | None = None,
        note: str = "",
        person: str = "",
        grants: tuple[TeamGrant, ...] = (),
    ) -> NewToken:
        """Make a token. Only an admin may have an empty name, which is the local owner's.

        `person` is who uses it, if that is one person; `grants` are for runs that others started.
        Raises ConfigError for a name, a role or a context that cannot be used.
        """
        checked = check_roles(roles)
        if not checked:
            raise ConfigError("a token needs at least one role: watch, start, answer or admin")
        if caller or "admin" not in checked:
            check_caller_name(caller)
        if expires_in_s is not None and expires_in_s <= 0:
            raise ConfigError("expires_in_s must be above zero")
        now = self._now()
        token_id = secrets.token_hex(6)
        secret = f"wl_{token_id}_{secrets.token_urlsafe(32)}"
        record = TokenRecord(
            id=token_id,
            caller=caller,
            roles=tuple(sorted(checked)),
            created=now,
            expires=now + expires_in_s if expires_in_s is not None else None,
            note=note[:200],
            context=_check_context(context),
            hash=_hash_secret(secret),
            person=check_caller_name(person) if person else "",
            grants=grants,
        )
        await self.add(record)
        return NewToken(secret, record)

    async def authenticate(self, secret: str) -> Caller | None:
        """Return the caller of a token; None if it is wrong, revoked or out of date."""
        found = _TOKEN.fullmatch(secret)
        if found is None:
            return None
        record = await self._find_valid(found[1])
        if record is None or not hmac.compare_digest(record.hash, _hash_secret(secret)):
            return None
        return record.to_caller()

    async def authenticate_browser(self, cookie: str, page_key: str) -> Caller | None:
        """Return the caller of a signed-in browser, and keep it signed in.

        None if the cookie or the page key is wrong, or the sign-in has ended.
        """
        found = _COOKIE.fullmatch(cookie)
        if found is None or not _PAGE_KEY.fullmatch(page_key):
            return None
        record = await self._find_valid(found[1])
        if record is None:
            return None
        has_cookie = hmac.compare_digest(record.hash, _hash_secret(cookie))
        has_key = hmac.compare_digest(record.page_hash, _hash_secret(page_key))
        if not (has_cookie and has_key):
            return None
        await self._renew(record)
        return record.to_caller()

    def now(self) -> float:
        """Return the time by which tokens end, in seconds since the epoch."""
        return self._now()

    async def is_valid(self, caller: Caller) -> bool:
        """Return whether the token of a caller is neither revoked nor out of date.

        One that is not kept here, such as one of an identity provider, says itself until when.
        """
        if not caller.token:
            return caller.expires is None or self._now() < caller.expires
        return await self._find_valid(caller.token) is not None

    async def list_tokens(self) -> list[TokenRecord]:
        """Return all tokens without their hashes, the latest first."""
        plain = [
            msgspec.structs.replace(record, hash="", page_hash="") async for record in self.walk()
        ]
        return sorted(plain, key=lambda record: -record.created)

    @override
    async def remove(self, document: TokenRecord) -> None:
        """Revoke a token. Raises NothingToDo if it was revoked in the meantime."""
        self._cache.pop(document.id, None)
        await super().remove(document)

    async def revoke_all(self, caller: str) -> int:
        """Revoke all tokens of a caller or person, with browsers. Returns how many there were."""
        known = self.walk()
        found = [record async for record in known if caller in (record.caller, record.person)]
        for record in found:
            with suppress(NothingToDo):
                await self.remove(record)
        return len(found)

    async def delete_logins(self, caller: str) -> int:
        """Forget all login links of a caller that were not used. Returns how many there were."""
        found: list[str] = []
        after = ""
        while page := await self.records.list_records(LOGIN_KIND, after):
            logins = [(one.name, msgspec.json.decode(one.data, type=LoginRecord)) for one in page]
            found += [name for name, login in logins if caller in (login.caller, login.person)]
            after = page[-1].name
        return sum([await self.records.delete_record(LOGIN_KIND, name) for name in found])

    async def create_login(self, caller: Caller, valid_s: float = LOGIN_S) -> str:
        """Return a code that logs one browser in as this caller, once."""
        code = secrets.token_urlsafe(32)
        record = _make_login(caller, self._now() + valid_s)
        await self.records.put_record(
            LOGIN_KIND, _hash_secret(code), msgspec.json.encode(record), 0
        )
        return code

    async def exchange_login(self, code: str) -> SignedInBrowser:
        """Use a login code up, and sign a browser in. Raises ApiError 401."""
        name = _hash_secret(code)
        found = await self.records.get_record(LOGIN_KIND, name)
        # Only the request that deletes the record may use the code.
        if found is None or not await self.records.delete_record(LOGIN_KIND, name):
            raise _bad_login()
        login = msgspec.json.decode(found.data, type=LoginRecord)
        if self._now() >= login.expires:
            raise _bad_login()
        return await self._sign_in(login)

    async def sign_in_with_token(self, secret: str) -> SignedInBrowser:
        """Sign a browser in as the user of a token, while it is valid. Raises ApiError 401, 429."""
        caller = await self.authenticate(secret)
        record = None if caller is None else await self._find_valid(caller.token)
        if record is None:
            raise _bad_login()
        caller = msgspec.structs.replace(record.to_caller(), expires=record.expires)
        if wait_s := self._sign_ins.take(record.id):
            raise too_many_requests(wait_s)
        return await self._sign_in(_make_login(caller, self._now()), record.id)

    async def _sign_in(self, login: LoginRecord, by_token: str = "") -> SignedInBrowser:
        now = self._now()
        await self._forget_ended_browsers()
        token_id = secrets.token_hex(6)
        cookie = f"wb_{token_id}_{secrets.token_urlsafe(32)}"
        page_key = f"wp_{secrets.token_hex(32)}"
        record = TokenRecord(
            id=token_id,
            caller=login.caller,
            roles=login.roles,
            created=now,
            expires=_earlier(now + BROWSER_IDLE_S, login.ends),
            note=f"signed in with the token {by_token}" if by_token else "",
            context=login.context,
            hash=_hash_secret(cookie),
            kind="browser",
            page_hash=_hash_secret(page_key),
            person=login.person,
            grants=login.grants,
            ends=login.ends,
            by_token=by_token,
        )
        # Noted first: a note of a token that was never kept is harmless.
        await self._note_browser_end(token_id, now + BROWSER_IDLE_S)
        await self.add(record)
        return SignedInBrowser(cookie, page_key, record)

    async def _renew(self, record: TokenRecord) -> None:
        """Let a sign-in that is used end later, unless it was revoked in the meantime."""
        now = self._now()
        latest = _earlier(record.created + BROWSER_MAX_S, record.ends)
        expires = min(now + BROWSER_IDLE_S, latest)
        if record.expires is None or expires - record.expires < BROWSER_RENEW_S:
            return
        renewed = await self.change(
            record.id, lambda known: msgspec.structs.replace(known, expires=expires)
        )
        if renewed is not None:
            self._cache[record.id] = (now + CACHE_S, renewed)

    async def _note_browser_end(self, token_id: str, expires: float) -> None:
        name = f"{int(expires):012d}.{token_id}"
        with suppress(RecordConflict):
            # Conflicts if another replica has noted it.
            await self.records.put_record(BROWSER_END_KIND, name, b"{}", 0)

    async def _forget_ended_browsers(self) -> None:
        """Remove the sign-ins that have ended. One that was used since is noted again."""
        now = self._now()
        while page := await self.records.list_records(BROWSER_END_KIND):
            for note in page:
                expires, _, token_id = note.name.partition(".")
                if int(expires) >= now:
                    return
                with suppress(NothingToDo, ConfigError):
                    record = await self.get(token_id)
                    if record.has_expired(now):
                        await self.remove(record)
                    else:
                        await self._note_browser_end(token_id, (record.expires or now) + 1)
                await self.records.delete_record(BROWSER_END_KIND, note.name)

    async def _find_valid(self, token_id: str) -> TokenRecord | None:
        """Return a token that is neither revoked nor out of date, nor made with one that is."""
        record = await self._find_token(token_id)
        if record is None or record.has_expired(self._now()):
            return None
        if record.by_token and await self._find_valid(record.by_token) is None:
            return None
        return record

    async def _find_token(self, token_id: str) -> TokenRecord | None:
        now = self._now()
        cached = self._cache.get(token_id)
        if cached is not None and now < cached[0]:
            return cached[1]
        self._cache.pop(token_id, None)
        try:
            record = await self.get(token_id)
        except (NothingToDo, ConfigError):
            # One that cannot be read lets no caller in.
            return None
        self._cache[token_id] = (now + CACHE_S, record)
        return record


def _make_login(caller: Caller, expires: float) -> LoginRecord:
    roles, context = tuple(sorted(caller.roles)), dict(caller.context)
    return LoginRecord(
        caller.name, roles, expires, context, caller.person, caller.grants, caller.expires
    )


def _earlier(time_s: float, limit: float | None) -> float:
    return time_s if limit is None else min(time_s, limit)


def _hash_secret(secret: str) -> str:
    # A secret has 256 random bits, so that a slow hash would only slow the service down.
    return hashlib.sha256(secret.encode()).hexdigest()


def _check_context(context: Mapping[str, Any] | None) -> dict[str, Any]:
    try:
        data = msgspec.json.encode(dict(context or {}))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the context of a token must be plain data: {error}") from None
    if len(data) > CONTEXT_BYTES_MAX:
        raise ConfigError(f"the context of a token is longer than {CONTEXT_BYTES_MAX} bytes")
    return msgspec.json.decode(data, type=dict[str, Any])


def _bad_login() -> ApiError:
    return ApiError(
        401,
        "login_refused",
        "This login link was used already, is out of date or is wrong.",
        "Make a new one: windlass token login",
    )
