"""Credentials of clouds: found where the clouds' own tools find them, and checked by stand-ins."""

import asyncio
import os
import ssl
import sys
import threading
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from hashlib import sha1
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import quote, unquote, urlsplit

import msgspec
import pytest

from bedrock_wire import bedrock_answer, text_frames
from certificates import make_certificate
from cloud_services import AwsService, EntraService, GoogleService, read_form
from windlass import Agent, FailedByModel
from windlass.core.errors import ConfigError, ModelError
from windlass.core.messages import TextPart, UserMessage
from windlass.core.secrets.mask import Secret
from windlass.core.view import Prompt
from windlass.environ import may_come_from_dotenv
from windlass.models.cloud import signing
from windlass.models.cloud.aws import AwsKeys, SigningScope, sign_headers
from windlass.models.resolve import can_sign_in, resolve_model
from windlass.testing import VirtualClock
from windlass.testing.chat_wire import sse_event, text_answer
from windlass.testing.fault_server import FaultServer, ReceivedRequest
from windlass.testing.wire import WireAnswer, refuse_with, stream_answer

KEY_ID = "AKIDEXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
AT = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)
PROFILE = "inference-profile/us.anthropic.claude-sonnet-4-5-20250929-v1:0"
ARN = f"arn:aws:bedrock:us-east-1:123456789012:{PROFILE}"
MODEL = "anthropic.claude-3-5-sonnet-20240620-v1:0"
HOST = "https://example.amazonaws.com"
PROMPT = Prompt("", "", [UserMessage((TextPart("Hi"),))], (), "auto", 256)
HELLO = bedrock_answer(*text_frames("Hello"))
GEMINI = stream_answer(
    sse_event({"candidates": [{"content": {"parts": [{"text": "Hello"}]}, "finishReason": "STOP"}]})
)
CLAUDE = stream_answer(
    sse_event({"type": "content_block_start", "index": 0, "content_block": {"type": "text"}}),
    sse_event(
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "Hello"},
        }
    ),
    sse_event({"type": "message_stop"}),
)
RESPONSE = stream_answer(
    sse_event({"type": "response.output_text.delta", "delta": "Hello"}),
    sse_event({"type": "response.completed", "response": {"status": "completed"}}),
)


# The libraries of the clouds keep connections open until they are collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials of the person who runs the tests, and no cloud around them."""
    monkeypatch.setattr(signing, "_MACHINE_FOLDER", tmp_path / "no-machine")


@contextmanager
def machine(environ: Mapping[str, str]) -> Generator[None]:
    """A process with this environment: the libraries of the clouds read no other."""
    clouds = ("AWS_", "AZURE_", "GOOGLE_", "GCE_", "IDENTITY_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(clouds)}
    with patch.dict(os.environ, {**kept, "HOME": "/nowhere", **environ}, clear=True):
        yield


async def ask(name: str, environ: Mapping[str, str], **more: Any) -> str:
    with machine(environ):
        model = resolve_model(name, environ=environ, **more)
        return "".join([getattr(piece, "text", "") async for piece in model.stream(PROMPT)])


def config_error(name: str, environ: Mapping[str, str], **more: Any) -> str:
    with machine(environ), pytest.raises(ConfigError) as caught:
        resolve_model(name, environ=environ, **more)
    assert "\n" not in str(caught.value)
    return str(caught.value)


VECTORS = {
    # The test suite that AWS publishes.
    "get-vanilla": (
        ("GET", f"{HOST}/", {}, b""),
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
    ),
    "post-vanilla": (
        ("POST", f"{HOST}/", {}, b""),
        "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
    ),
    "get-utf8": (
        ("GET", f"{HOST}/ሴ", {}, b""),
        "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85",
    ),
    "get-vanilla-query-order": (
        ("GET", f"{HOST}/?Param2=value2&Param1=value1", {}, b""),
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
    ),
    "get-header-value-trim": (
        ("GET", f"{HOST}/", {"My-Header1": " value1", "My-Header2": ' "a   b   c"'}, b""),
        "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
    ),
    "post-x-www-form-urlencoded": (
        (
            "POST",
            f"{HOST}/",
            {"Content-Type": "application/x-www-form-urlencoded"},
            b"Param1=value1",
        ),
        "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
    ),
}


@pytest.mark.parametrize(("request_", "signature"), VECTORS.values(), ids=VECTORS.keys())
def test_the_published_signatures_come_out(request_: Any, signature: str) -> None:
    keys, scope = AwsKeys(KEY_ID, Secret(SECRET)), SigningScope(AT, "us-east-1", "service")
    method, url, headers, body = request_
    signed = sign_headers(method, url, headers, body, keys, scope)
    assert signed["Authorization"].endswith(signature)


@pytest.mark.parametrize(
    ("region", "model", "token", "signature"),
    [
        (
            "us-east-1",
            MODEL,
            None,
            "f71e3db385ee813b09e7946a1611908d091de26622a86af06d1ed81be707e6c0",
        ),
        (
            "eu-central-1",
            ARN,
            "a/session+token=",
            "b3e00bbd37c0a5bd65adbd82ed2f036ef0adf3d90df624ff5367e2d0f211ee85",
        ),
    ],
)
def test_a_model_with_colons_is_signed_as_the_sdk_of_aws_signs_it(
    region: str, model: str, token: str | None, signature: str
) -> None:
    """The signatures were made by botocore 1.44."""
    keys = AwsKeys(KEY_ID, Secret(SECRET), Secret(token) if token else None)
    path = f"/model/{quote(model, safe='')}/converse-stream"
    url = f"https://bedrock-runtime.{region}.amazonaws.com{path}"
    headers = {"Content-Type": "application/json"}
    scope = SigningScope(AT, region, "bedrock")
    signed = sign_headers("POST", url, headers, b'{"messages":[]}', keys, scope)
    assert signed["Authorization"].endswith(signature)


def aws(**more: str) -> dict[str, str]:
    keys = {"AWS_ACCESS_KEY_ID": KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET}
    return {"AWS_REGION": "eu-west-1", "HOME": "/nowhere", **keys, **more}


@pytest.mark.slow
@pytest.mark.parametrize("model", [MODEL, ARN, "amazon.nova-pro-v1:0"])
async def test_bedrock_accepts_the_signature(model: str) -> None:
    """P2: the path is signed as it was sent, with whatever the name of the model holds."""
    async with FaultServer(always=AwsService(KEY_ID, SECRET, "eu-west-1", HELLO)) as server:
        url = server.url.removesuffix("/v1")
        assert await ask(f"bedrock:{model}", aws(), base_url=url) == "Hello"


@pytest.mark.slow
async def test_bedrock_refuses_another_key_region_or_token() -> None:
    """P3: and the error names no key."""
    service = AwsService(KEY_ID, SECRET, "eu-west-1", HELLO, session_token="a-session-token")
    wrong = [
        aws(),
        aws(AWS_SESSION_TOKEN="another-token"),
        aws(AWS_SESSION_TOKEN="a-session-token", AWS_SECRET_ACCESS_KEY="another-secret-key"),
        aws(AWS_SESSION_TOKEN="a-session-token", AWS_REGION="us-west-2"),
    ]
    async with FaultServer(always=service) as server:
        assert await ask("bedrock:m", aws(AWS_SESSION_TOKEN="a-session-token"), base_url=server.url)
        for environ in wrong:
            with pytest.raises(ModelError, match="Check the credentials") as raised:
                await ask("bedrock:m", environ, base_url=server.url)
            assert raised.value.fault.kind == "auth"
            assert environ["AWS_SECRET_ACCESS_KEY"] not in str(raised.value)


@pytest.mark.slow
async def test_a_key_of_bedrock_is_sent_as_a_token() -> None:
    """P3."""
    async with FaultServer(always=HELLO) as server:
        environ = aws(AWS_BEARER_TOKEN_BEDROCK="a-bedrock-key")
        await ask("bedrock:m", environ, base_url=server.url)
        assert server.requests[0].headers["authorization"] == "Bearer a-bedrock-key"


@pytest.mark.slow
async def test_a_profile_has_keys_and_a_region(tmp_path: Path) -> None:
    """P3: the files of the AWS command line."""
    (tmp_path / ".aws").mkdir()
    stored = f"[work]\naws_access_key_id = {KEY_ID}\naws_secret_access_key = {SECRET}\n"
    (tmp_path / ".aws" / "credentials").write_text(stored)
    (tmp_path / ".aws" / "config").write_text("[profile work]\nregion = ap-south-1\n")
    environ = {"HOME": str(tmp_path), "AWS_PROFILE": "work"}
    async with FaultServer(always=AwsService(KEY_ID, SECRET, "ap-south-1", HELLO)) as server:
        assert await ask("bedrock:m", environ, base_url=server.url) == "Hello"
    assert "there is no AWS profile" in config_error(
        "bedrock:m", {**environ, "AWS_PROFILE": "other", "AWS_REGION": "us-east-1"}
    )


TEMPORARY = {"AccessKeyId": KEY_ID, "SecretAccessKey": SECRET, "Token": "a-session-token"}


def machine_service(expires: str) -> Any:
    """The metadata service of a virtual machine, in the version that needs a session."""

    def answer(request: ReceivedRequest) -> WireAnswer:
        role = "/latest/meta-data/iam/security-credentials/"
        if request.path == "/latest/api/token" and request.method == "PUT":
            return refuse_with(200, "a-metadata-session")
        if request.headers.get("x-aws-ec2-metadata-token") != "a-metadata-session":
            return refuse_with(401, "")
        if request.path == role:
            return refuse_with(200, "a-role")
        if request.path == f"{role}a-role":
            return refuse_with(200, {**TEMPORARY, "Expiration": expires})
        return refuse_with(404, "")

    return answer


@pytest.mark.slow
async def test_keys_of_a_machine_are_kept_until_they_expire() -> None:
    service = AwsService(KEY_ID, SECRET, "eu-west-1", HELLO, session_token="a-session-token")
    async with (
        FaultServer(always=machine_service("2099-01-01T00:00:00Z")) as metadata,
        FaultServer(always=service) as server,
    ):
        url = metadata.url.removesuffix("/v1")
        environ = {"AWS_REGION": "eu-west-1", "AWS_EC2_METADATA_SERVICE_ENDPOINT": url}
        with machine(environ):
            model = resolve_model("bedrock:m", environ=environ, base_url=server.url)
            for _ in range(2):
                assert [piece async for piece in model.stream(PROMPT)]
        assert len(metadata.requests) == 3


@pytest.mark.slow
async def test_a_container_has_keys_behind_a_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-container-token")

    def container(request: ReceivedRequest) -> WireAnswer:
        if request.headers.get("authorization") != "a-container-token":
            return refuse_with(401, "")
        return refuse_with(200, {**TEMPORARY, "Expiration": "2099-01-01T00:00:00Z"})

    service = AwsService(KEY_ID, SECRET, "eu-west-1", HELLO, session_token="a-session-token")
    async with FaultServer(always=container) as keys, FaultServer(always=service) as server:
        environ = {
            "AWS_REGION": "eu-west-1",
            "HOME": "/nowhere",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": keys.url,
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token),
        }
        assert await ask("bedrock:m", environ, base_url=server.url) == "Hello"
    elsewhere = {**environ, "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://elsewhere.example/x"}
    with pytest.raises(ModelError, match=r"elsewhere\.example"):
        await ask("bedrock:m", elsewhere)


def test_what_is_missing_for_bedrock_is_named() -> None:
    """P3."""
    assert "AWS_REGION" in config_error("bedrock:m", {"HOME": "/nowhere"})
    bare = {"HOME": "/nowhere", "AWS_REGION": "us-east-1"}
    message = config_error("bedrock:m", bare)
    assert "AWS_BEARER_TOKEN_BEDROCK" in message
    assert "AWS_ACCESS_KEY_ID" in message
    assert "AWS_SECRET_ACCESS_KEY is missing" in config_error(
        "bedrock:m", {**bare, "AWS_ACCESS_KEY_ID": KEY_ID}
    )


@pytest.mark.parametrize("region", ["evil.example/#", "us-east-1.evil.example", "@evil", "x"])
def test_a_region_cannot_name_another_host(region: str) -> None:
    assert "is not a region" in config_error("bedrock:m", aws(AWS_REGION=region))


@pytest.mark.parametrize(
    ("region", "host"),
    [("us-gov-west-1", "amazonaws.com"), ("cn-north-1", "amazonaws.com.cn")],
)
def test_each_region_has_its_host(region: str, host: str) -> None:
    model = resolve_model("bedrock:m", environ=aws(AWS_REGION=region))
    assert model._endpoint.target.url == f"https://bedrock-runtime.{region}.{host}"


@asynccontextmanager
async def serve_tls(server: FaultServer, folder: Path) -> AsyncGenerator[dict[str, str]]:
    """Put TLS in front of a server: the library of Azure sends secrets no other way."""
    cert, key = make_certificate(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    inner = urlsplit(server.url)
    connections: set[asyncio.Task[Any]] = set()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to = await asyncio.open_connection(inner.hostname, inner.port)
        await asyncio.gather(copy(reader, to[1]), copy(to[0], writer))

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(asyncio.create_task(forward(reader, writer)))

    async with await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context) as front:
        port = front.sockets[0].getsockname()[1]
        authority = f"https://127.0.0.1:{port}"
        yield {"AZURE_AUTHORITY_HOST": authority, "REQUESTS_CA_BUNDLE": str(cert)}
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


def entra(endpoint: str, **more: str) -> dict[str, str]:
    return {
        "AZURE_OPENAI_ENDPOINT": endpoint,
        "AZURE_TENANT_ID": "tenant",
        "AZURE_CLIENT_ID": "client",
        "AZURE_CLIENT_SECRET": "a-client-secret",
        **more,
    }


@pytest.mark.slow
@pytest.mark.parametrize(("provider", "answer"), [("azure", RESPONSE), ("azure-chat", None)])
async def test_azure_takes_a_token_of_an_application(
    provider: str, answer: WireAnswer | None, tmp_path: Path
) -> None:
    """P2, P3: one token for many requests, until it expires."""
    service = EntraService("/tenant/oauth2/v2.0/token", answer or text_answer("Hello"))
    async with FaultServer(always=service) as server, serve_tls(server, tmp_path) as tls:
        environ = entra(server.url.removesuffix("/v1"), **tls)
        with machine(environ):
            model = resolve_model(f"{provider}:gpt", environ=environ)
            for _ in range(3):
                assert [piece async for piece in model.stream(PROMPT)]
        assert len(service.grants) == 1
        path = "responses" if provider == "azure" else "chat/completions"
        assert server.requests[-1].path == f"/openai/v1/{path}"


@pytest.mark.slow
async def test_an_old_token_is_replaced(tmp_path: Path) -> None:
    """P3: before it expires, and so before the service refuses it."""
    service = EntraService("/tenant/oauth2/v2.0/token", RESPONSE, expires_in=30)
    async with FaultServer(always=service) as server, serve_tls(server, tmp_path) as tls:
        environ = entra(server.url.removesuffix("/v1"), **tls)
        with machine(environ):
            model = resolve_model("azure:gpt", environ=environ)
            for _ in range(3):
                assert [piece async for piece in model.stream(PROMPT)]
        assert len(service.grants) == 3


@pytest.mark.slow
async def test_azure_with_a_version_by_date_has_another_path(tmp_path: Path) -> None:
    """P2: the deployment is in the path, and the version in the query."""
    service = EntraService(
        "/tenant/oauth2/v2.0/token", text_answer("Hello"), query={"api-version": "2024-10-21"}
    )
    async with FaultServer(always=service) as server, serve_tls(server, tmp_path) as tls:
        tls["OPENAI_API_VERSION"] = "2024-10-21"
        environ = entra(server.url.removesuffix("/v1"), **tls)
        assert await ask("azure-chat:my gpt".replace(" ", "-"), environ) == "Hello"
        path, _, query = server.requests[-1].path.partition("?")
    assert path == "/openai/deployments/my-gpt/chat/completions"
    assert query == "api-version=2024-10-21"
    assert "is not a version" in config_error("azure:m", environ | {"OPENAI_API_VERSION": "x&y"})


@pytest.mark.slow
async def test_azure_takes_a_key_in_its_own_header() -> None:
    """P3."""
    async with FaultServer(always=text_answer("Hello")) as server:
        for address in ("", "/openai", "/openai/v1/", "/openai/deployments/other"):
            url = server.url.removesuffix("/v1") + address
            await ask("azure-chat:gpt", {}, key="an-azure-key", base_url=url)
            assert server.requests[-1].path == "/openai/v1/chat/completions"
        assert server.requests[0].headers["api-key"] == "an-azure-key"
        assert "authorization" not in server.requests[0].headers


@pytest.mark.slow
async def test_azure_takes_a_managed_identity_and_a_federated_token(tmp_path: Path) -> None:
    service = EntraService("/tenant/oauth2/v2.0/token", text_answer("Hello"))
    async with FaultServer(always=service) as server, serve_tls(server, tmp_path) as tls:
        root = server.url.removesuffix("/v1")
        (tmp_path / "token").write_text("a-client-secret")
        environ = entra(root, **tls, AZURE_FEDERATED_TOKEN_FILE=str(tmp_path / "token"))
        del environ["AZURE_CLIENT_SECRET"]
        assert await ask("azure-chat:gpt", environ) == "Hello"
        assert read_form(service.grants[0])["client_assertion_type"].endswith("jwt-bearer")

    def identity(request: ReceivedRequest) -> WireAnswer:
        if request.path.startswith("/identity"):
            asked = "resource=https://cognitiveservices.azure.com" in unquote(request.path)
            known = request.headers.get("x-identity-header") == "a-header"
            token = {"access_token": "an-identity-token", "expires_on": str(FAR)}
            return refuse_with(200, token) if asked and known else refuse_with(400, "")
        valid = request.headers.get("authorization") == "Bearer an-identity-token"
        return text_answer("Hello") if valid else refuse_with(401, "")

    async with FaultServer(always=identity) as server:
        root = server.url.removesuffix("/v1")
        environ = {
            "AZURE_OPENAI_ENDPOINT": root,
            "IDENTITY_ENDPOINT": f"{root}/identity",
            "IDENTITY_HEADER": "a-header",
        }
        assert await ask("azure-chat:gpt", environ) == "Hello"


def test_what_is_missing_for_azure_is_named() -> None:
    """P3."""
    assert "https://NAME.openai.azure.com" in config_error("azure:m", {})
    message = config_error("azure:m", {"AZURE_OPENAI_ENDPOINT": "https://x.openai.azure.com"})
    assert "AZURE_OPENAI_API_KEY" in message
    assert "AZURE_TENANT_ID" in message


@pytest.fixture(scope="module")
def account_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import rsa  # noqa: PLC0415

    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def account_file(folder: Path, key: Any, token_url: str, **more: str) -> dict[str, str]:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    fields = {
        "type": "service_account",
        "project_id": "my-project",
        "client_email": GoogleService.email,
        "private_key": pem,
        "private_key_id": "k1",
        "token_uri": token_url,
        **more,
    }
    path = folder / "account.json"
    path.write_bytes(msgspec.json.encode(fields))
    return {"GOOGLE_APPLICATION_CREDENTIALS": str(path), "HOME": str(folder)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "answer", "path"),
    [
        (
            "gemini-2.5-pro",
            GEMINI,
            "google/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
        ),
        ("claude-sonnet-4-5", CLAUDE, "anthropic/models/claude-sonnet-4-5:streamRawPredict"),
    ],
)
async def test_vertex_takes_a_service_account(
    model: str, answer: WireAnswer, path: str, tmp_path: Path, account_key: Any
) -> None:
    """P2, P3: the signed statement is verified: its key, audience, time and scope."""
    service = GoogleService("/token", answer)
    service.public_key = account_key.public_key()
    async with FaultServer(always=service) as server:
        root = server.url.removesuffix("/v1")
        service.audience = "https://oauth2.googleapis.com/token"
        environ = account_file(tmp_path, account_key, f"{root}/token")
        with machine(environ):
            asked = resolve_model(f"vertex:{model}", environ=environ, base_url=root)
            for _ in range(2):
                assert [piece async for piece in asked.stream(PROMPT)]
        assert len(service.grants) == 1
        place = "/v1/projects/my-project/locations/global/publishers/"
        assert server.requests[-1].path == place + path
        body = server.requests[-1].json
    if model.startswith("claude"):
        assert body["anthropic_version"] == "vertex-2023-10-16"
        assert "model" not in body
        assert "cache_control" not in body


@pytest.mark.slow
async def test_vertex_refuses_the_key_of_another_account(tmp_path: Path, account_key: Any) -> None:
    """P3: and the private key is in no error."""
    from cryptography.hazmat.primitives.asymmetric import rsa  # noqa: PLC0415

    service = GoogleService("/token", GEMINI)
    service.public_key = rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key()
    async with FaultServer(always=service) as server:
        root = server.url.removesuffix("/v1")
        service.audience = "https://oauth2.googleapis.com/token"
        environ = account_file(tmp_path, account_key, f"{root}/token")
        with pytest.raises(ModelError, match="Signature verification failed") as raised:
            await ask("vertex:gemini-2.5-pro", environ, base_url=root)
    assert raised.value.fault.kind == "auth"
    assert "PRIVATE KEY" not in str(raised.value)


@pytest.mark.slow
async def test_vertex_takes_a_persons_sign_in_a_machine_and_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P3: the file of gcloud, the metadata service, and express mode."""
    folder = tmp_path / ".config" / "gcloud"
    folder.mkdir(parents=True)
    service = EntraService("/token", GEMINI)
    service.check_grant = lambda request: (
        "" if read_form(request).get("refresh_token") == "a-refresh-token" else "no"
    )
    async with FaultServer(always=service) as server:
        root = server.url.removesuffix("/v1")
        fields = {
            "type": "authorized_user",
            "client_id": "c",
            "client_secret": "a-secret-of-gcloud",
            "refresh_token": "a-refresh-token",
            "quota_project_id": "mine",
        }
        # The library has one address for sign-ins of people, whatever the file says.
        monkeypatch.setattr(
            "google.oauth2.credentials._GOOGLE_OAUTH2_TOKEN_ENDPOINT", f"{root}/token"
        )
        (folder / "application_default_credentials.json").write_bytes(msgspec.json.encode(fields))
        environ = {"HOME": str(tmp_path), "GOOGLE_CLOUD_LOCATION": "europe-west4"}
        assert await ask("vertex:gemini-2.5-pro", environ, base_url=root) == "Hello"
        assert "/projects/mine/locations/europe-west4/" in server.requests[-1].path

    def metadata(request: ReceivedRequest) -> WireAnswer:
        if request.path.startswith("/computeMetadata/"):
            known = request.headers.get("metadata-flavor") == "Google"
            token = {"access_token": "a-machine-token", "expires_in": 3599}
            account = {"email": GoogleService.email, "scopes": [], "aliases": ["default"]}
            answer = token if "/token" in request.path else account
            return refuse_with(200, answer) if known else refuse_with(403, "")
        valid = request.headers.get("authorization") == "Bearer a-machine-token"
        return GEMINI if valid else refuse_with(401, "")

    async with FaultServer(always=metadata) as server:
        root = server.url.removesuffix("/v1")
        environ = {
            "HOME": "/nowhere",
            "GCE_METADATA_HOST": root.removeprefix("http://"),
            "GOOGLE_CLOUD_PROJECT": "p",
        }
        assert await ask("vertex:gemini-2.5-pro", environ, base_url=root) == "Hello"
    async with FaultServer(always=GEMINI) as server:
        root = server.url.removesuffix("/v1")
        assert await ask("vertex:gemini-2.5-pro", {}, base_url=root, key="a-key") == "Hello"
        assert server.requests[0].path.startswith("/v1/publishers/google/models/")
        assert server.requests[0].headers["x-goog-api-key"] == "a-key"


def test_what_is_wrong_for_vertex_is_named(tmp_path: Path) -> None:
    """P3."""
    bare = {"HOME": str(tmp_path), "GOOGLE_CLOUD_PROJECT": "p"}
    assert "GOOGLE_APPLICATION_CREDENTIALS" in config_error("vertex:m", bare)
    assert "GOOGLE_CLOUD_PROJECT" in config_error("vertex:m", {"HOME": str(tmp_path)})
    missing = {**bare, "GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "no.json")}
    assert "there is no file" in config_error("vertex:m", missing)
    (tmp_path / "other.json").write_text('{"type": "impersonated_service_account"}')
    other = {**bare, "GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "other.json")}
    assert "other.json cannot be used" in config_error("vertex:m", other)
    evil = {**bare, "GOOGLE_CLOUD_LOCATION": "evil.example/x?"}
    assert "is not a name" in config_error("vertex:m", evil)


@pytest.mark.parametrize(
    ("location", "host"),
    [
        ("", "aiplatform.googleapis.com"),
        ("eu", "aiplatform.eu.rep.googleapis.com"),
        ("us-east5", "us-east5-aiplatform.googleapis.com"),
    ],
)
def test_each_location_has_its_host(location: str, host: str, tmp_path: Path) -> None:
    environ = {
        "HOME": str(tmp_path),
        "GCE_METADATA_HOST": "m",
        "GOOGLE_CLOUD_PROJECT": "p",
        "GOOGLE_CLOUD_LOCATION": location,
    }
    url = resolve_model("vertex:m", environ=environ)._endpoint.target.url
    assert url.startswith(f"https://{host}/v1/projects/p/locations/")


TOKEN_FAULTS = {
    "failed": (refuse_with(503, "<html>"), "server", True),
    "garbage": (refuse_with(200, "not json"), "auth", False),
    "refused": (refuse_with(401, {"error": "invalid_client"}), "auth", False),
    "redirected": (refuse_with(302, "", {"Location": "http://127.0.0.1:1/"}), "auth", False),
}


@pytest.mark.realtime
async def test_a_library_that_does_not_answer_is_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S2: as a fault of the network, which the loop tries again."""
    ended = threading.Event()
    monkeypatch.setattr(signing, "SIGN_IN_S", 0.05)
    with pytest.raises(ModelError, match="did not answer") as raised:
        await signing.call_library("a cloud", lambda: ended.wait(30))
    ended.set()
    assert raised.value.fault.kind == "network"


@pytest.mark.slow
@pytest.mark.contract("S2")
@pytest.mark.parametrize(
    ("answer", "kind", "mends"), TOKEN_FAULTS.values(), ids=TOKEN_FAULTS.keys()
)
async def test_a_fault_of_the_sign_in_is_survived_or_named(
    answer: WireAnswer,
    kind: str,
    mends: bool,  # noqa: FBT001
    clock: VirtualClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S2, S3: nothing hangs; the loop asks again where that helps."""
    service = EntraService("/tenant/oauth2/v2.0/token", RESPONSE)
    async with (
        FaultServer(always=service) as server,
        FaultServer(answer, always=service) as login,
        serve_tls(login, tmp_path) as tls,
    ):
        for name, value in entra(server.url.removesuffix("/v1"), **tls).items():
            monkeypatch.setenv(name, value)
        agent = Agent("azure:gpt", clock=clock)
        if mends:
            assert (await agent.run("Hello?")).text == "Hello"
            return
        with pytest.raises(FailedByModel) as raised:
            await agent.run("Hello?")
    assert raised.value.fault.kind == kind
    assert str(raised.value).startswith("azure: the sign-in service of Azure")
    assert "a-client-secret" not in str(raised.value)


def test_whether_a_machine_can_sign_in_is_known_without_a_request() -> None:
    """P3: for `windlass doctor` and `windlass models`."""
    assert can_sign_in("bedrock", aws())
    assert can_sign_in("azure", entra("https://x.openai.azure.com"))
    assert not can_sign_in("bedrock", {"HOME": "/nowhere"})
    assert not can_sign_in("openai", {"OPENAI_API_KEY": "a-long-key"})


def test_secrets_of_a_cloud_are_masked() -> None:
    """P3."""
    model = resolve_model("bedrock:m", environ=aws(AWS_SESSION_TOKEN="a-session-token"))
    values = {secret.reveal() for secret in model.secrets.values()}
    assert values == {SECRET, "a-session-token"}


@pytest.mark.parametrize(
    "name",
    [
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_EC2_METADATA_SERVICE_ENDPOINT",
        "AZURE_AUTHORITY_HOST",
        "AZURE_OPENAI_ENDPOINT",
        "IDENTITY_ENDPOINT",
        "GCE_METADATA_HOST",
        "GOOGLE_VERTEX_BASE_URL",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "AZURE_FEDERATED_TOKEN_FILE",
    ],
)
def test_a_cloned_repository_cannot_say_where_credentials_go(name: str) -> None:
    assert not may_come_from_dotenv(name)
    assert may_come_from_dotenv("AWS_SECRET_ACCESS_KEY")


# ── roles, workloads and sign-ins ────────────────────────────────────────────

FAR = 4_070_908_800
"""In seconds since the epoch: in the year 2099."""


async def ask_with_roles(environ: Mapping[str, str], answer: Any, variable: str) -> list[Any]:
    """Ask Bedrock with keys of another service. Returns the requests that this one got."""
    service = AwsService(KEY_ID, SECRET, "eu-west-1", HELLO, session_token="a-session-token")
    async with FaultServer(always=answer) as keys, FaultServer(always=service) as server:
        found = {**environ, "AWS_REGION": "eu-west-1", variable: keys.url.removesuffix("/v1")}
        assert await ask("bedrock:m", found, base_url=server.url) == "Hello"
        return list(keys.requests)


@pytest.mark.slow
async def test_the_account_of_a_cluster_takes_a_role(tmp_path: Path) -> None:
    """P3: IRSA. The token comes from a file, and is exchanged for keys."""
    (tmp_path / "token").write_text("a-cluster-token")

    def sts(request: ReceivedRequest) -> WireAnswer:
        form = read_form(request)
        right = {
            "Action": "AssumeRoleWithWebIdentity",
            "Version": "2011-06-15",
            "RoleArn": "arn:aws:iam::123456789012:role/reader",
            "WebIdentityToken": "a-cluster-token",
            "RoleSessionName": "windlass",
        }
        if form != right:
            return refuse_with(400, "<ErrorResponse><Error><Code>Denied</Code></Error>")
        keys = (
            f"<AccessKeyId>{KEY_ID}</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey>"
            "<SessionToken>a-session-token</SessionToken>"
            "<Expiration>2099-01-01T00:00:00Z</Expiration>"
        )
        result = f"<Credentials>{keys}</Credentials>"
        name = "AssumeRoleWithWebIdentity"
        body = f"<{name}Response><{name}Result>{result}</{name}Result></{name}Response>"
        return refuse_with(200, body)

    environ = {
        "HOME": "/nowhere",
        "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
        "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/reader",
        "AWS_ROLE_SESSION_NAME": "windlass",
    }
    assert len(await ask_with_roles(environ, sts, "AWS_ENDPOINT_URL_STS")) == 1


def write_config(home: Path, text: str) -> dict[str, str]:
    (home / ".aws" / "sso" / "cache").mkdir(parents=True)
    (home / ".aws" / "config").write_text(text)
    return {"HOME": str(home), "AWS_PROFILE": "work"}


@pytest.mark.slow
async def test_a_profile_that_signs_in_through_a_browser_uses_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P3: the token that `aws sso login` left; without one, it says what to do."""
    import botocore.tokens  # noqa: PLC0415 - it works out its folder when it is imported

    folder = tmp_path / ".aws" / "sso" / "cache"
    monkeypatch.setattr(botocore.tokens.SSOTokenProvider, "_SSO_TOKEN_CACHE_DIR", str(folder))
    environ = write_config(
        tmp_path,
        "[profile work]\nsso_session = office\nsso_account_id = 123456789012\n"
        "sso_role_name = reader\n[sso-session office]\nsso_start_url = https://office.example\n"
        "sso_region = eu-central-1\n",
    )

    def portal(request: ReceivedRequest) -> WireAnswer:
        path = "/federation/credentials?role_name=reader&account_id=123456789012"
        token = request.headers.get("x-amz-sso_bearer_token")
        if request.path != path or token != "a-browser-token":
            return refuse_with(401, {"message": "Session token not found or invalid"})
        keys = {"accessKeyId": KEY_ID, "secretAccessKey": SECRET, "expiration": FAR * 1000}
        return refuse_with(200, {"roleCredentials": {**keys, "sessionToken": "a-session-token"}})

    with pytest.raises(ModelError, match="aws sso login"):
        await ask_with_roles(environ, portal, "AWS_ENDPOINT_URL_SSO")
    name = sha1(b"office", usedforsecurity=False).hexdigest()
    cache = folder / f"{name}.json"
    cache.write_text('{"accessToken": "a-browser-token", "expiresAt": "2099-01-01T00:00:00Z"}')
    assert len(await ask_with_roles(environ, portal, "AWS_ENDPOINT_URL_SSO")) == 1


@pytest.mark.realtime
@pytest.mark.slow
async def test_a_profile_can_have_a_command_that_prints_keys(tmp_path: Path) -> None:
    """P3: what the command prints when it fails is in no error."""
    script = tmp_path / "keys.py"
    keys = {"Version": 1, "AccessKeyId": KEY_ID, "SecretAccessKey": SECRET}
    keys |= {"SessionToken": "a-session-token", "Expiration": "2099-01-01T00:00:00Z"}
    printing = f"print({json_text(keys)!r})"
    script.write_text(f"import sys\nassert sys.argv[1:] == ['a b', ';']\n{printing}")
    line = f'credential_process = {sys.executable} {script} "a b" ;'
    environ = write_config(tmp_path, f"[profile work]\n{line}\n")
    await ask_with_roles(environ, refuse_with(500, ""), "UNUSED")
    script.write_text("raise SystemExit('the key is abc')")
    with pytest.raises(
        ModelError, match="the credential_process of the AWS profile failed"
    ) as raised:
        await ask_with_roles(environ, refuse_with(500, ""), "UNUSED")
    assert "abc" not in str(raised.value)
    assert not may_come_from_dotenv("AWS_CONFIG_FILE")


def json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()


@pytest.mark.slow
@pytest.mark.parametrize("impersonates", [False, True])
async def test_vertex_takes_a_workload_of_another_cloud(
    tmp_path: Path, *, impersonates: bool
) -> None:
    """P3: federation. The token of the workload is exchanged, and then that of an account."""
    (tmp_path / "token").write_text(json_text({"id_token": "a-workload-token"}))
    kind = "urn:ietf:params:oauth:token-type:jwt"
    account = f"/v1/projects/-/serviceAccounts/{GoogleService.email}:generateAccessToken"

    def google(request: ReceivedRequest) -> WireAnswer:
        if request.path == account:
            right = request.headers.get("authorization") == "Bearer an-exchanged-token"
            answer = {"accessToken": "a-token", "expireTime": "2099-01-01T00:00:00Z"}
            return refuse_with(200, answer) if right else refuse_with(403, "")
        if request.path == "/exchange":
            form = read_form(request)
            right = (form["subject_token"], form["subject_token_type"]) == (
                "a-workload-token",
                kind,
            )
            right = right and form["audience"] == "//iam.googleapis.com/pool"
            token = "an-exchanged-token" if impersonates else "a-token"
            answer = {"access_token": token, "expires_in": 3600}
            return refuse_with(200, answer) if right else refuse_with(400, {"error": "invalid"})
        right = request.headers.get("authorization") == "Bearer a-token"
        return GEMINI if right else refuse_with(401, "")

    async with FaultServer(always=google) as server:
        url = server.url.removesuffix("/v1")
        fields: dict[str, Any] = {
            "type": "external_account",
            "audience": "//iam.googleapis.com/pool",
            "subject_token_type": kind,
            "token_url": f"{url}/exchange",
            "credential_source": {
                "file": str(tmp_path / "token"),
                "format": {"type": "json", "subject_token_field_name": "id_token"},
            },
        }
        if impersonates:
            fields["service_account_impersonation_url"] = url + account
        file = tmp_path / "workload.json"
        file.write_text(json_text(fields))
        environ = {"GOOGLE_APPLICATION_CREDENTIALS": str(file), "GOOGLE_CLOUD_PROJECT": "p"}
        assert await ask("vertex:gemini-2.5-pro", environ, base_url=server.url) == "Hello"


@pytest.mark.slow
async def test_requests_that_begin_together_fetch_one_token() -> None:
    service = AwsService(KEY_ID, SECRET, "eu-west-1", HELLO, session_token="a-session-token")
    async with (
        FaultServer(always=machine_service("2099-01-01T00:00:00Z")) as metadata,
        FaultServer(always=service) as server,
    ):
        url = metadata.url.removesuffix("/v1")
        environ = {"AWS_REGION": "eu-west-1", "AWS_EC2_METADATA_SERVICE_ENDPOINT": url}
        with machine(environ):
            model = resolve_model("bedrock:m", environ=environ, base_url=server.url)

            async def ask_once() -> int:
                return len([piece async for piece in model.stream(PROMPT)])

            assert all(await asyncio.gather(*(ask_once() for _ in range(5))))
        assert len(metadata.requests) == 3


async def test_one_who_gives_up_stops_nobody_else() -> None:
    begun = 0

    async def fetch() -> int:
        nonlocal begun
        begun += 1
        await asyncio.sleep(1)
        return begun

    shared = signing.SharedFetch(fetch)
    first, second = (asyncio.create_task(shared.wait()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 1
    assert await shared.wait() == 2
