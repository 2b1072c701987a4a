"""Stand-ins for the services of clouds that check what the real ones check.

Each is a function for `FaultServer(always=…)`: it looks at a request as it came over the wire, and
answers it, or refuses it as the service would, with the reason.

    checked = AwsService("AKID", "secret", "us-east-1", bedrock_answer(*text_frames("Hello")))
    async with FaultServer(always=checked) as server: ...
"""

import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, parse_qsl, quote, urlsplit

from typing_extensions import override

from windlass.testing.fault_server import ReceivedRequest
from windlass.testing.wire import WireAnswer, refuse_with

CLOCK_SKEW_S = 300.0
"""How far the time of a signature may be from ours."""


@dataclass
class AwsService:
    """A service of AWS: it computes the signature of each request anew, from what was received."""

    key_id: str
    secret: str
    region: str
    answer: WireAnswer
    session_token: str | None = None
    service: str = "bedrock"

    def __call__(self, request: ReceivedRequest) -> WireAnswer:
        problem = self.find_problem(request)
        if problem:
            name = {"x-amzn-ErrorType": "InvalidSignatureException"}
            return refuse_with(403, {"message": problem}, name)
        return self.answer

    def find_problem(self, request: ReceivedRequest) -> str:
        """Return why the signature does not count; empty if it does."""
        algorithm, _, fields = request.headers.get("authorization", "").partition(" ")
        pairs = (pair.strip().partition("=") for pair in fields.split(","))
        given = {name: value for name, _, value in pairs}
        if algorithm != "AWS4-HMAC-SHA256" or "Signature" not in given:
            return "The request is not signed."
        timestamp = request.headers.get("x-amz-date", "")
        scope = f"{timestamp[:8]}/{self.region}/{self.service}/aws4_request"
        if given.get("Credential") != f"{self.key_id}/{scope}":
            return f"Credential should be scoped to {scope}."
        if abs(_read_timestamp(timestamp) - time.time()) > CLOCK_SKEW_S:
            return "Signature expired."
        if request.headers.get("x-amz-security-token") != self.session_token:
            return "The security token included in the request is invalid."
        names = given.get("SignedHeaders", "").split(";")
        if "host" not in names or "x-amz-date" not in names:
            return "The host and the date must be signed."
        expected = self._sign(request, names, timestamp, scope)
        if not hmac.compare_digest(expected, given["Signature"]):
            return "The request signature we calculated does not match."
        return ""

    def _sign(self, request: ReceivedRequest, names: list[str], timestamp: str, scope: str) -> str:
        path, _, query = request.path.partition("?")
        pairs = sorted((quote(k, safe="~"), quote(v, safe="~")) for k, v in parse_qsl(query))
        headers = "".join(f"{name}:{request.headers.get(name, '')}\n" for name in names)
        canonical = (
            f"{request.method}\n{quote(path, safe='/~')}\n"
            f"{'&'.join(f'{k}={v}' for k, v in pairs)}\n{headers}\n{';'.join(names)}\n"
            f"{sha256(request.body).hexdigest()}"
        )
        key = b"AWS4" + self.secret.encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        digest = sha256(canonical.encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{timestamp}\n{scope}\n{digest}"
        return hmac.digest(key, text.encode(), "sha256").hex()


@dataclass
class TokenService:
    """A model behind access tokens, and the service that gives them out, as one server.

    A token counts once it was given out, and until it expires. `check_grant` returns why a request
    for a token is refused; empty if it is not.
    """

    token_path: str
    answer: WireAnswer
    expires_in: float = 3600.0
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the query of each request to the model must hold."""
    tokens: dict[str, float] = field(default_factory=dict[str, float])
    """The tokens given out, and when each expires."""
    grants: list[ReceivedRequest] = field(default_factory=list[ReceivedRequest])

    def check_grant(self, request: ReceivedRequest) -> str:
        return ""

    def __call__(self, request: ReceivedRequest) -> WireAnswer:
        if urlsplit(request.path).path == self.token_path:
            return self._grant(request)
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind != "Bearer" or self.tokens.get(token, 0.0) < time.time():
            error = {"code": 401, "message": "The token is invalid.", "status": "UNAUTHENTICATED"}
            return refuse_with(401, {"error": error})
        sent = {name: values[0] for name, values in parse_qs(urlsplit(request.path).query).items()}
        if any(sent.get(name) != value for name, value in self.query.items()):
            return refuse_with(404, {"error": {"code": "404", "message": "Resource not found"}})
        return self.answer

    def _grant(self, request: ReceivedRequest) -> WireAnswer:
        if problem := self.check_grant(request):
            body = {"error": "invalid_client", "error_description": problem}
            return refuse_with(401, body)
        self.grants.append(request)
        token = f"token-number-{len(self.grants)}"
        self.tokens[token] = time.time() + max(self.expires_in, 60.0)
        body = {"access_token": token, "token_type": "Bearer", "expires_in": self.expires_in}
        return refuse_with(200, body)


class EntraService(TokenService):
    """The sign-in service of Azure: a client must prove who it is, for the right resource."""

    client_id = "client"
    client_secret = "a-client-secret"
    scope = "https://cognitiveservices.azure.com/.default"

    @override
    def __call__(self, request: ReceivedRequest) -> WireAnswer:
        if request.path.endswith("/v2.0/.well-known/openid-configuration"):
            tenant = f"https://{request.headers['host']}/tenant"
            document = {
                "issuer": f"{tenant}/v2.0",
                "authorization_endpoint": f"{tenant}/oauth2/v2.0/authorize",
                "token_endpoint": f"{tenant}/oauth2/v2.0/token",
            }
            return refuse_with(200, document)
        return super().__call__(request)

    @override
    def check_grant(self, request: ReceivedRequest) -> str:
        form = read_form(request)
        if form.get("grant_type") != "client_credentials":
            return "AADSTS70003: unsupported grant type"
        if self.scope not in form.get("scope", "").split():
            return "AADSTS70011: the scope is not valid"
        proof = form.get("client_secret") or form.get("client_assertion")
        if form.get("client_id") != self.client_id or proof != self.client_secret:
            return "AADSTS7000215: Invalid client secret provided"
        return ""


class GoogleService(TokenService):
    """The sign-in service of Google: it verifies the statement that a service account signs."""

    public_key: Any = None
    """The key that belongs to the account; PEM text or a key of `cryptography`."""
    email = "robot@project.iam.gserviceaccount.com"
    audience = ""
    """The address of the token service itself."""

    @override
    def check_grant(self, request: ReceivedRequest) -> str:
        import jwt  # noqa: PLC0415 - only where a service account is tried

        form = read_form(request)
        if form.get("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer":
            return "unsupported grant type"
        try:
            claims = jwt.decode(
                form.get("assertion", ""),
                self.public_key,
                algorithms=["RS256"],
                audience=self.audience,
                options={"require": ["exp", "iat", "iss", "aud"]},
            )
        except jwt.PyJWTError as error:
            return f"invalid_grant: {error}"
        if claims["iss"] != self.email or claims["exp"] - claims["iat"] > 3600:
            return "invalid_grant: not a statement of this account"
        return "" if claims.get("scope") else "invalid_scope"


def read_form(request: ReceivedRequest) -> dict[str, str]:
    """Return the fields of a form as it was posted."""
    return dict(parse_qsl(request.body.decode()))


def _read_timestamp(text: str) -> float:
    try:
        return datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0
