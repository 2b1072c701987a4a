"""Which model to use when none is named: keys, servers on this machine, or local weights.

Invariant: only this machine is probed, and the choice comes with a note that says why.
"""

import asyncio
import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from windlass.core.errors import ConfigError
from windlass.models.local.model import KNOWN_MODELS, build_local_model
from windlass.models.vendors import load_vendors

DEFAULT_MODELS: Mapping[str, str] = {
    "anthropic": "claude-sonnet-5",
    "openai": "gpt-5",
    "google": "gemini-3.5-flash",
    "openrouter": "anthropic/claude-sonnet-5",
    "mistral": "mistral-large",
    "deepseek": "deepseek-chat",
    "xai": "grok-4.5",
    "groq": "openai/gpt-oss-120b",
}
"""The model to use if only a vendor's key is set; the first vendor with a key wins."""
KNOWN_PORTS: Mapping[str, int] = {"ollama": 11434, "llamacpp": 8080, "lmstudio": 1234, "vllm": 8000}
"""The default ports of servers that speak chat completions."""
PROBE_S = 0.4
BODY_BYTES_MAX = 1_000_000
_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)

SMALL_MODEL_NOTE = "a very small model, good only to see that everything works"


class _ServedModel(msgspec.Struct):
    id: str


class _ServedModels(msgspec.Struct):
    data: list[_ServedModel] | None = None


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A model server on this machine."""

    vendor: str
    port: int
    models: tuple[str, ...]

    @property
    def model(self) -> str:
        """Its first model, as `vendor:model`; empty if it has none loaded."""
        return f"{self.vendor}:{self.models[0]}" if self.models else ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model that will be used, and why."""

    model: str
    note: str = ""


async def choose_model(
    environ: Mapping[str, str],
    weights: Sequence[Path] = (),
    accept: Callable[[LocalServer], bool] | None = None,
    command: str = "run",
) -> ModelChoice:
    """Choose a model that can be used right away; raises ConfigError, with advice, if none can.

    `weights`: files of a project that is trusted. `accept` decides whether a server on this machine
    may be used; without it, none is. `command` is what the advice names.
    """
    for vendor, model in DEFAULT_MODELS.items():
        key_env = load_vendors()[vendor].key_env
        if key_env and environ.get(key_env):
            return ModelChoice(f"{vendor}:{model}", f"{key_env} is set")
    servers = [server for server in await find_servers() if server.models]
    for server in servers:
        if accept is not None and accept(server):
            return ModelChoice(server.model, f"a server on port {server.port} has it")
    small_model = find_small_model(environ, weights)
    if small_model is not None:
        return ModelChoice(small_model, SMALL_MODEL_NOTE)
    raise ConfigError(explain_no_model(servers, command))


def explain_no_model(servers: Sequence[LocalServer] = (), command: str = "run") -> str:
    """The ways to get a model for a command, in three lines."""
    more = " …" if command == "run" else ""
    first, second, third = [load_vendors()[name].key_env for name in DEFAULT_MODELS][:3]
    if servers:
        commands = ", ".join(f"windlass {command} -m {server.model}{more}" for server in servers)
        local = f"On this machine: {commands} (a server is running)."
    else:
        local = (
            "On this machine: start a server (ollama serve), then "
            f"windlass {command} -m ollama:MODEL{more}"
        )
    return (
        f"no model is configured: set {first}, {second} or {third} (also in .env), or name a model "
        f"with -m.\n{local}\nWithout a model: windlass demo."
    )


def explain_no_base_url(model: str, servers: Sequence[LocalServer] = ()) -> str:
    """What to do if it is not configured where a model is served."""
    example = servers[0].url if servers else "http://localhost:8000/v1"
    text = (
        f"{model} needs the address of its server: add --base-url {example}, or set "
        "WINDLASS_BASE_URL, or base_url in windlass.toml."
    )
    if servers:
        found = ", ".join(f"{server.url} ({server.vendor})" for server in servers)
        text += f"\nRunning on this machine: {found}."
    return text


async def find_servers(ports: Mapping[str, int] = KNOWN_PORTS) -> list[LocalServer]:
    """The servers that answer on this machine. All ports are probed at once."""
    found = await asyncio.gather(*(_probe_port(*item) for item in ports.items()))
    return [server for server in found if server is not None]


async def _probe_port(vendor: str, port: int) -> LocalServer | None:
    with contextlib.suppress(OSError, TimeoutError, ValueError, msgspec.MsgspecError):
        async with asyncio.timeout(PROBE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                # HTTP/1.0, because its answers are never chunked.
                writer.write(b"GET /v1/models HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
                head = await reader.readuntil(b"\r\n\r\n")
                body = await _read_body(reader, head)
            finally:
                writer.close()
        # The space at the end is for servers that give no reason behind the status.
        if b" 200 " not in head.partition(b"\r\n")[0] + b" ":
            return None
        listed = msgspec.json.decode(body, type=_ServedModels).data or []
        return LocalServer(vendor, port, tuple(model.id for model in listed))
    return None


async def _read_body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    """The body of an answer, as long as its head says; at most BODY_BYTES_MAX of it."""
    size = BODY_BYTES_MAX
    if length := _CONTENT_LENGTH.search(head):
        size = min(size, int(length[1]))
    body = b""
    while len(body) < size and not reader.at_eof():
        body += await reader.read(size - len(body))
    return body


def find_small_model(environ: Mapping[str, str], weights: Sequence[Path] = ()) -> str | None:
    """`local:NAME` of a small model whose weights are on this machine; None if there is none.

    `weights`: further files to try.
    """
    for name in (*KNOWN_MODELS, *map(str, weights)):
        # Building it checks that the weights and the extra are there; it loads nothing yet.
        with contextlib.suppress(ConfigError):
            build_local_model(name, environ=environ)
            return f"local:{name}"
    return None
