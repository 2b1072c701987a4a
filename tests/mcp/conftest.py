"""Marks for all tests with real MCP servers, and ports for some."""

import os
import socket
from importlib.util import find_spec
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            # The first one that needs a server waits until it is fetched.
            mark = pytest.mark
            for one in (mark.mcp, mark.realtime, mark.slow, mark.timeout(300)):
                item.add_marker(one)


@pytest.fixture(scope="session", autouse=True)
def sdk() -> None:
    if find_spec("mcp") is None:
        missing = "the extra is not installed: pip install 'windlass[mcp]'"
        if os.environ.get("CI"):
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
