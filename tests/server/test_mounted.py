"""The recipes of docs/service.md: mounted in Starlette, FastAPI and Django, under a real server."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest

from printed_pages import read_block
from service_process import free_port
from windlass import Agent, TextDelta
from windlass.core.events import RunEnded
from windlass.journals import SqliteJournal
from windlass.server import Service, ServiceLimits, StartRequest
from windlass.server.access import LOCAL_OWNER
from windlass.testing import ScriptedModel, say, stall

pytestmark = [pytest.mark.slow, pytest.mark.contract("A12")]
AGENTS = """
from windlass import Agent
from windlass.testing import ScriptedModel

agents = Agent(ScriptedModel(["Done."] * 20), name="helper")
"""
DJANGO_SETTINGS = """
from django.http import HttpResponse
from django.urls import path

SECRET_KEY = "only for this test"
ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = "settings"
urlpatterns = [path("own", lambda _request: HttpResponse("the host's own"))]
"""


class Recipe(NamedTuple):
    """How a framework is set up, as the page prints it."""

    beginning: str
    app: str
    own_status: int
    """The status of `/own`, which the host answers and the service does not know."""


RECIPES = {
    "fastapi": Recipe("# main.py", "main:app", 404),
    "starlette": Recipe("# star.py", "star:app", 404),
    "django": Recipe("# asgi.py", "asgi:application", 200),
}


async def leave_open_run(folder: Path) -> str:
    """Begin a run in another process' place, and return its session."""
    journal = SqliteJournal(folder / "sessions.db")
    with ScriptedModel([[say("One"), stall()]]) as model:
        agent = Agent(model, name="helper", journal=journal)
        async with Service(agent, limits=ServiceLimits(drain_s=0.01)) as before:
            handle = await before.start_run(LOCAL_OWNER, StartRequest(prompt="Hi"))
            async with aclosing(handle.events()) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        break
    journal.close()
    return handle.session


async def wait_for_end(folder: Path, session: str) -> RunEnded:
    """Return the end of a run that another process drives."""
    journal = SqliteJournal(folder / "sessions.db")
    agent = Agent(ScriptedModel([]), name="helper", journal=journal)
    seen = 0
    try:
        while True:
            async with aclosing(agent.watch(session, after=seen)) as events:
                async for event in events:
                    seen = max(seen, event.seq)
                    if isinstance(event, RunEnded):
                        return event
            await journal.wait_for_append(session, seen)
    finally:
        journal.close()


@asynccontextmanager
async def run_uvicorn(folder: Path, recipe: Recipe, code: str) -> AsyncGenerator[str]:
    """Run the app of a recipe in a process of its own. Yields its address once it is up."""
    (folder / "my_agents.py").write_text(AGENTS)
    (folder / "settings.py").write_text(DJANGO_SETTINGS)
    (folder / f"{recipe.app.partition(':')[0]}.py").write_text(code)
    port = free_port()
    command = (sys.executable, "-m", "uvicorn", recipe.app, "--port", str(port))
    with (folder / "uvicorn.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, cwd=folder, stdout=log, stderr=log)
    try:
        while "Uvicorn running" not in (folder / "uvicorn.log").read_text():
            assert process.returncode is None, (folder / "uvicorn.log").read_text()
            await asyncio.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


async def make_token(folder: Path) -> str:
    journal = SqliteJournal(folder / "sessions.db")
    service = Service(Agent(ScriptedModel([]), name="helper", journal=journal))
    token = (await service.tokens.create("ann")).secret
    journal.close()
    return token


@pytest.mark.parametrize("name", RECIPES)
def test_the_recipe_of_a_framework_resumes_runs_and_serves_under_its_path(
    tmp_path: Path, name: str
) -> None:
    """A12: open runs are taken up before any request, and links have the path of the mount."""
    asyncio.run(check_recipe(tmp_path, RECIPES[name]))


async def check_recipe(tmp_path: Path, recipe: Recipe) -> None:
    session = await leave_open_run(tmp_path)
    token = await make_token(tmp_path)
    code = read_block("service.md", recipe.beginning)
    async with run_uvicorn(tmp_path, recipe, code) as address:
        assert (await wait_for_end(tmp_path, session)).outcome == "completed"
        headers = {"Authorization": f"Bearer {token}"}
        async with aiohttp.ClientSession(address, headers=headers) as client:
            async with client.post("/ai/runs", json={"prompt": "Hi"}) as started:
                assert started.status == 202
                location = started.headers["Location"]
            assert location.startswith("/ai/runs/ann.")
            async with client.get(location) as found:
                assert found.status == 200
            async with client.get("/ai/") as page:
                assert 'src="page/app.js"' in await page.text()
            async with client.get("/ai/page/app.js") as file:
                assert file.status == 200
            async with client.get("/own") as own:
                assert own.status == recipe.own_status
    assert "begins with its first request" not in (tmp_path / "uvicorn.log").read_text()


def test_a_service_that_its_host_does_not_enter_begins_with_a_request_and_warns(
    tmp_path: Path,
) -> None:
    """A12: the fallback resumes open runs too."""
    asyncio.run(check_fallback(tmp_path))


async def check_fallback(tmp_path: Path) -> None:
    recipe = RECIPES["fastapi"]
    session = await leave_open_run(tmp_path)
    code = read_block("service.md", recipe.beginning).replace("lifespan=lifespan", "")
    async with run_uvicorn(tmp_path, recipe, code) as address:
        async with (
            aiohttp.ClientSession(address) as client,
            client.get("/ai/readyz") as ready,
        ):
            assert ready.status == 200
        assert (await wait_for_end(tmp_path, session)).outcome == "completed"
    assert "begins with its first request" in (tmp_path / "uvicorn.log").read_text()
