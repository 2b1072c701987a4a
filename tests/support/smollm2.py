"""Talks to the small model with real weights that the local tests ask."""

import os
from contextlib import aclosing
from pathlib import Path
from typing import Any

from windlass.core.events import ReplyPiece
from windlass.core.messages import Message, TextPart, UserMessage
from windlass.core.reply_assembly import ReplyAssembly
from windlass.core.setup import ModelInfo
from windlass.core.view import Prompt
from windlass.models.http.model import HttpModel
from windlass.models.local.model import LocalModel, build_local_model
from windlass.models.options import ModelOptions
from windlass.models.resolve import resolve_model
from windlass.ports import Model

SYSTEM = "You are a helpful assistant."
CAPITAL = "What is the capital of France?"
PARIS = "Paris"
"""In its reply; the rest may differ between machines."""
EXACT = ModelOptions(temperature=0)


def make_smollm2(*, output_max: int = 64, options: ModelOptions = EXACT) -> LocalModel:
    info = ModelInfo("local:smollm2", output_max=output_max)
    return build_local_model("smollm2", environ=os.environ, options=options, info=info)


async def make_through(provider: str, *, key: str | None = None) -> HttpModel:
    """The same server, spoken to in the dialect of a provider."""
    endpoint = await make_smollm2().wait_for_endpoint()
    assert endpoint.key is not None
    given = key or endpoint.key.reveal()
    name = f"{provider}:{endpoint.target.model}"
    # It says that it keeps connections open, and closes them.
    options = ModelOptions(temperature=0, extra_headers={"Connection": "close"})
    return resolve_model(name, base_url=endpoint.target.url, key=given, environ={}, options=options)


def make_prompt(
    *said: str | Message, system: str = SYSTEM, output_max: int = 64, **more: Any
) -> Prompt:
    messages = [UserMessage((TextPart(one),)) if isinstance(one, str) else one for one in said]
    tools = more.pop("tools", ())
    choice = more.pop("tool_choice", "auto")
    return Prompt("", system, messages, tools, choice, output_max, **more)


async def ask_model(model: Model, asked_for: Prompt) -> tuple[ReplyAssembly, list[ReplyPiece]]:
    """One request: the reply as it was put together, and its pieces."""
    assembly = ReplyAssembly()
    pieces = list[ReplyPiece]()
    async with aclosing(model.stream(asked_for)) as stream:
        async for piece in stream:
            pieces.append(piece)
            assembly.add_piece(piece)
    return assembly, pieces


def server_pids(parent: int | None = None) -> list[int]:
    """The server processes that a process has started and that are alive."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, rest = stat.read_text("utf-8").rpartition(")")
            command = stat.with_name("cmdline").read_bytes()
        except OSError:
            continue
        state, of = rest.split()[:2]
        mine = int(of) == (parent or os.getpid())
        if mine and state != "Z" and b"local/server.py" in command:
            found.append(int(stat.parent.name))
    return found


def is_alive(pid: int) -> bool:
    """Whether a process runs. One that is dead but not yet fetched does not."""
    try:
        _, _, rest = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")
    except OSError:
        return False
    return rest.split()[0] not in ("Z", "X")
