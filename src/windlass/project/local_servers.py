"""Which model to ask when none was named: what the keys, this machine and its weights offer.

The law: nothing is asked of anybody but this machine, and what was chosen is said.
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
"""The model that is asked at each vendor if only its key is set; the first that has one counts."""
KNOWN_PORTS: Mapping[str, int] = {"ollama": 11434, "llamacpp": 8080, "lmstudio": 1234, "vllm": 8000}
"""Where servers of chat completions listen, if nobody told them otherwise."""
PROBE_S = 0.4
BODY_BYTES_MAX = 1_000_000
WEIGHTS_CACHE = Path(".cache") / "local"
"""Where `make local-weights` puts what it fetches, in its project."""
_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)

SMALL_MODEL_NOTE = "a very small model: it shows that things work, and little more"


class _ServedModel(msgspec.Struct):
    id: str


class _ServedModels(msgspec.Struct):
    data: list[_ServedModel] | None = None


@dataclass(frozen=True, slots=True)
class LocalServer:
    """A server on this machine."""

    vendor: str
    port: int
    models: tuple[str, ...]

    @property
    def model(self) -> str:
        return f"{self.vendor}:{self.models[0]}" if self.models else ""


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model that will be asked, and what to tell about it."""

    model: str
    note: str = ""


def choose_model(
    environ: Mapping[str, str], folder: Path, accept: Callable[[LocalServer], bool] | None = None
) -> ModelChoice:
    """A model that can be asked right away; raises ConfigError with what to do if there is none.

    `accept` asks whoever is there about a server that answers; without one, none is taken.
    """
    for vendor, model in DEFAULT_MODELS.items():
        about = load_vendors()[vendor]
        if about.key_env and environ.get(about.key_env):
            return ModelChoice(f"{vendor}:{model}", f"{about.key_env} is set")
    servers = [server for server in asyncio.run(find_servers()) if server.models]
    for server in servers:
        if accept is not None and accept(server):
            return ModelChoice(server.model, f"it answers on port {server.port}")
    weights = find_small_model(environ, folder)
    if weights is not None:
        return ModelChoice(weights, SMALL_MODEL_NOTE)
    raise ConfigError(explain_no_model(servers))


def explain_no_model(servers: Sequence[LocalServer] = ()) -> str:
    """What to do, in three lines."""
    keys = [load_vendors()[name].key_env or "" for name in DEFAULT_MODELS][:3]
    here = (
        "On this machine: "
        + ", ".join(f"windlass run -m {server.model} …" for server in servers)
        + " (a server answers)."
        if servers
        else "On this machine: start a server (ollama serve), then windlass run -m ollama:MODEL …"
    )
    return (
        f"no model to ask: set {', '.join(keys[:-1])} or {keys[-1]} (also in .env), or name one "
        f"with -m.\n{here}\nWithout any model: windlass demo."
    )


async def find_servers(ports: Mapping[str, int] = KNOWN_PORTS) -> list[LocalServer]:
    """The servers that answer on this machine, all asked at once."""
    found = await asyncio.gather(*(_probe_port(*item) for item in ports.items()))
    return [server for server in found if server is not None]


async def _probe_port(vendor: str, port: int) -> LocalServer | None:
    with contextlib.suppress(OSError, TimeoutError, ValueError, msgspec.MsgspecError):
        async with asyncio.timeout(PROBE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                # HTTP/1.0: the answer comes in one piece.
                writer.write(b"GET /v1/models HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
                head = await reader.readuntil(b"\r\n\r\n")
                said = _CONTENT_LENGTH.search(head)
                body = await _read_body(reader, int(said[1]) if said else BODY_BYTES_MAX)
            finally:
                writer.close()
        return _parse_server(vendor, port, head, body)
    return None


async def _read_body(reader: asyncio.StreamReader, size: int) -> bytes:
    """So many bytes, or as many as there are."""
    body = b""
    while len(body) < min(size, BODY_BYTES_MAX) and not reader.at_eof():
        body += await reader.read(size - len(body))
    return body


def _parse_server(vendor: str, port: int, head: bytes, body: bytes) -> LocalServer | None:
    if b" 200 " not in head.partition(b"\r\n")[0] + b" ":
        return None
    listed = msgspec.json.decode(body, type=_ServedModels).data or []
    return LocalServer(vendor, port, tuple(one.id for one in listed))


def find_small_model(environ: Mapping[str, str], folder: Path) -> str | None:
    """The small model whose weights are on this machine, if it can be run here."""
    files = [name for _, name in KNOWN_MODELS.values()]
    cached = (place / WEIGHTS_CACHE / name for place in (folder, *folder.parents) for name in files)
    for name in (*KNOWN_MODELS, *(str(path) for path in cached if path.is_file())):
        with contextlib.suppress(ConfigError):
            build_local_model(name, environ=environ)
            return f"local:{name}"
    return None
