"""Tokens of an identity provider: its keys, this audience, in time, and no more than they say."""

import http.server
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from typing_extensions import override

from service import DirectClient
from windlass import Agent
from windlass.server import Service
from windlass.server.dispatch import RECHECK_S, Dispatcher
from windlass.server.jwt_tokens import (
    LEEWAY_S,
    JwtOptions,
    make_jwt_authenticator,
    read_claims,
)
from windlass.server.messages import StreamReply
from windlass.server.tokens import TokenStore
from windlass.testing import ScriptedModel, pause, say

pytestmark = [pytest.mark.slow, pytest.mark.realtime]


class IdentityProvider:
    """A provider on loopback: it has a key, says where it is, and signs."""

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        provider = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps(provider.document(self.path)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(body)

            @override
            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self.server.server_port}"

    def document(self, path: str) -> dict[str, Any]:
        if path.endswith("openid-configuration"):
            return {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys"}
        public = RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return {"keys": [{**public, "kid": "k1", "use": "sig", "alg": "RS256"}]}

    def sign(self, key: Any = None, algorithm: str = "RS256", **claims: Any) -> str:
        whole = {
            "iss": self.issuer,
            "aud": "windlass",
            "sub": "ann@example.com",
            "exp": time.time() + 60,
            **claims,
        }
        whole = {name: value for name, value in whole.items() if value is not None}
        return jwt.encode(whole, key or self.key, algorithm, headers={"kid": "k1"})


@pytest.fixture(name="provider")
def start_provider() -> Iterator[IdentityProvider]:
    provider = IdentityProvider()
    thread = threading.Thread(target=provider.server.serve_forever, args=(0.05,))
    thread.start()
    yield provider
    provider.server.shutdown()
    provider.server.server_close()
    thread.join()


@pytest.mark.contract("A4")
async def test_a_token_of_the_provider_counts_and_forged_ones_do_not(
    provider: IdentityProvider,
) -> None:
    options = JwtOptions(issuer=provider.issuer, audience="windlass")
    verifier = make_jwt_authenticator(options)
    async with Service(Agent(ScriptedModel([]), name="helper")) as service:
        dispatcher = Dispatcher(service, authenticators=[verifier.authenticate])

        async def status_of(token: str) -> int:
            return (await DirectClient(dispatcher, token).get("/me")).status

        client = DirectClient(dispatcher, provider.sign())
        me = (await client.get("/me")).data
        assert (me["caller"], me["roles"]) == ("ann@example.com", ["answer", "start", "watch"])
        stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        forged = [
            provider.sign(key=stranger),
            provider.sign(aud="another"),
            provider.sign(iss="https://another.example"),
            provider.sign(exp=time.time() - 3_600),
            provider.sign(exp=None),
            provider.sign(sub=None),
            provider.sign(sub=" "),
            provider.sign(key="k" * 40, algorithm="HS256"),
            jwt.encode({"sub": "ann"}, "", algorithm="none"),
            provider.sign()[:-4] + "AAAA",
        ]
        assert [await status_of(token) for token in forged] == [401] * len(forged)


@pytest.mark.contract("A4")
async def test_a_stream_ends_when_the_token_of_the_provider_expires(
    provider: IdentityProvider,
) -> None:
    """A4: it is looked at again, as a token that the service keeps is."""
    verifier = make_jwt_authenticator(JwtOptions(issuer=provider.issuer, audience="windlass"))
    now = time.time()
    model = ScriptedModel([[say("One"), pause(0.2), say(" two.")], "Three."])
    async with Service(Agent(model, name="helper")) as service:
        service.tokens = TokenStore(service.journal, lambda: now)
        dispatcher = Dispatcher(service, authenticators=[verifier.authenticate])
        client = DirectClient(dispatcher, provider.sign(exp=now + 60))
        events = {"Accept": "text/event-stream"}
        started = {"prompt": "Count.", "session": "s"}
        assert (await client.post("/runs", started)).status == 202
        reply = await client.send("GET", "/runs/s/events?follow=true", None, events)
        assert isinstance(reply, StreamReply)
        seen = b""
        async for chunk in reply.chunks:
            seen += chunk
            if b"completed" in chunk:
                break
        assert b"two." in seen
        now += 60 + LEEWAY_S + RECHECK_S
        other = DirectClient(dispatcher, provider.sign(exp=now + 60))
        assert (await other.post("/runs", {**started, "prompt": "More."})).status == 202
        assert [chunk async for chunk in reply.chunks] == []
        await reply.close()


@pytest.mark.contract("G10")
def test_whom_the_provider_verified_is_a_person() -> None:
    caller = read_claims({"sub": "ann", "exp": 1_000.0})
    assert caller is not None
    assert (caller.name, caller.person, caller.run_context) == (
        "ann",
        "ann",
        {"windlass_person": "ann"},
    )


def test_roles_are_those_that_the_token_names() -> None:
    def roles(claim: Any) -> set[str]:
        caller = read_claims({"sub": "ann", "exp": 1_000.0, "windlass_roles": claim})
        assert caller is not None
        return set(caller.roles)

    assert roles(None) == {"watch", "start", "answer"}
    assert roles("watch admin") == {"watch", "admin"}
    assert roles(["watch", "root"]) == {"watch"}
    assert roles({"admin": True}) == set()
