"""TLS: a certificate and a key are enough to listen beyond this machine."""

import ssl
from pathlib import Path

import aiohttp
import pytest

from certificates import make_certificate
from service import run_service
from windlass import Agent, ConfigError
from windlass.server import ServeOptions
from windlass.server.access import LOCAL_OWNER
from windlass.server.aiohttp_server import listen
from windlass.testing import ScriptedModel

pytestmark = [pytest.mark.slow, pytest.mark.realtime]


@pytest.mark.contract("A4")
async def test_the_service_speaks_tls_and_its_cookie_needs_it(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    options = ServeOptions(tls_cert=cert, tls_key=key)
    async with (
        run_service(Agent(ScriptedModel([]), name="helper")) as running,
        listen(running.dispatcher, tls=options.open_tls()) as address,
    ):
        assert address.startswith("https://")
        trusted = ssl.create_default_context(cafile=str(cert))
        connector = aiohttp.TCPConnector(ssl=trusted)
        async with aiohttp.ClientSession(address, connector=connector) as client:
            code = await running.service.tokens.create_login(LOCAL_OWNER)
            home = {"Origin": address}
            async with client.post("/login", json={"code": code}, headers=home) as reply:
                assert reply.status == 200
                assert "; Secure" in reply.headers["Set-Cookie"]


def test_half_of_a_key_pair_and_a_broken_file_are_refused(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    with pytest.raises(ConfigError, match="both"):
        ServeOptions(tls_cert=cert).check()
    key.write_text("not a key")
    with pytest.raises(ConfigError, match="cannot be used"):
        ServeOptions(tls_cert=cert, tls_key=key).open_tls()
