"""Only the sockets of the service need aiohttp: a base install has none of it."""

import subprocess
import sys

import pytest

from windlass import Agent
from windlass.core.errors import ConfigError
from windlass.server import Service, serve
from windlass.testing import ScriptedModel

BASE_INSTALL = """
import sys

for name in ("aiohttp", "yarl", "multidict", "aiosignal", "frozenlist", "propcache"):
    sys.modules[name] = None

import asyncio
import pkgutil
from importlib import import_module

import windlass.cli
from windlass import Agent
from windlass.testing import FaultServer
from windlass.testing.chat_wire import text_answer
from windlass.tools.web.fetch import fetch_tool

for package in ("windlass.http", "windlass.models", "windlass.testing", "windlass.tools.web"):
    for found in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
        import_module(found.name)
for command in ("serve", "worker", "token", "webhook", "schedule", "doctor"):
    import_module(f"windlass.cli.{command}")


async def main():
    async with FaultServer(text_answer("hi")) as server:
        agent = Agent("openai-compatible:m", base_url=server.url)
        print((await agent.run("Hello?")).text)


asyncio.run(main())
"""


@pytest.mark.slow
def test_a_base_install_asks_models_without_aiohttp() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", BASE_INSTALL],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "hi"), done.stderr


async def test_a_service_without_its_extra_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "aiohttp"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules, "windlass.server.aiohttp_server", raising=False)
    sockets = sys.modules.get("windlass.server.lazy_sockets")
    if sockets is not None:
        monkeypatch.delitem(vars(sockets), "listen", raising=False)
    with pytest.raises(ConfigError, match=r"windlass\[serve\]"):
        await serve(Service([Agent(ScriptedModel(["hi"]), name="clerk")]))
