"""Ends the Postgres server that services of these tests may have started."""

import os
import sys
from collections.abc import Iterator
from importlib import import_module

import pytest

from service import REPLICAS

if os.environ.get(REPLICAS):
    import_module("postgres").start_server()


@pytest.fixture(scope="session", autouse=True)
def stop_server_at_the_end() -> Iterator[None]:
    yield
    servers = sys.modules.get("postgres")
    if servers is not None and servers.start_server.cache_info().currsize:
        servers.stop_server()
