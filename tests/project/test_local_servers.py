"""Which model is asked when none is named: keys first, then what answers on this machine."""

import asyncio
from pathlib import Path

import pytest

from windlass.core.errors import ConfigError
from windlass.models.prices import find_listing
from windlass.project import local_servers
from windlass.project.local_servers import (
    DEFAULT_MODELS,
    LocalServer,
    choose_model,
    find_servers,
    find_small_model,
)
from windlass.testing import FaultServer, serve_in_thread
from windlass.testing.wire import hang_up, refuse_with, stall

pytestmark = pytest.mark.realtime


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No server answers on this machine, and no weights are on it."""
    monkeypatch.setattr(local_servers, "KNOWN_PORTS", {})
    monkeypatch.setattr(local_servers.find_servers, "__defaults__", ({},))
    monkeypatch.setattr(local_servers, "KNOWN_MODELS", {})


def test_the_usual_model_of_each_vendor_is_one_with_a_known_price() -> None:
    """P6: a limit of money works out of the box."""
    assert [
        name for name, model in DEFAULT_MODELS.items() if find_listing(name, model) is None
    ] == []


@pytest.mark.usefixtures("alone")
def test_the_first_key_decides(tmp_path: Path) -> None:
    found = asyncio.run(choose_model({"OPENAI_API_KEY": "x", "MISTRAL_API_KEY": "y"}))
    assert found.model == f"openai:{DEFAULT_MODELS['openai']}"
    assert "OPENAI_API_KEY is set" in found.note


@pytest.mark.usefixtures("alone")
def test_without_anything_it_is_said_in_three_lines(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        asyncio.run(choose_model({}))
    lines = str(error.value).splitlines()
    assert len(lines) == 3
    assert "ANTHROPIC_API_KEY" in lines[0]
    assert "windlass demo" in lines[2]


def listing(*names: str) -> FaultServer:
    data = {"data": [{"id": name, "object": "model"} for name in names]}
    return FaultServer(always=refuse_with(200, data))


def port_of(server: FaultServer) -> int:
    return int(server.url.rsplit(":", 1)[1].partition("/")[0])


def test_servers_are_found_all_at_once_and_silence_is_not_waited_for() -> None:
    broken = FaultServer(always=refuse_with(500, {"error": "no"}))
    with (
        serve_in_thread(listing("qwen3", "phi4")) as one,
        serve_in_thread(listing()) as two,
        serve_in_thread(broken) as three,
    ):
        ports = {"ollama": port_of(one), "vllm": port_of(two), "lmstudio": port_of(three)}
        found = asyncio.run(find_servers(ports | {"llamacpp": 9}))
    assert found == [
        LocalServer("ollama", ports["ollama"], ("qwen3", "phi4")),
        LocalServer("vllm", ports["vllm"], ()),
    ]


def test_a_server_that_hangs_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_servers, "PROBE_S", 0.05)
    with serve_in_thread(FaultServer(always=hang_up(stall()))) as server:
        assert asyncio.run(find_servers({"vllm": port_of(server)})) == []


def test_a_server_is_offered_and_taken_only_if_that_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_servers, "KNOWN_MODELS", {})
    with serve_in_thread(listing("qwen3")) as server:
        monkeypatch.setattr(
            local_servers.find_servers, "__defaults__", ({"ollama": port_of(server)},)
        )
        assert asyncio.run(choose_model({}, (), lambda _: True)).model == "ollama:qwen3"
        with pytest.raises(ConfigError, match="windlass run -m ollama:qwen3"):
            asyncio.run(choose_model({}, (), lambda _: False))
        with pytest.raises(ConfigError, match="a server is running"):
            asyncio.run(choose_model({}))


def test_weights_that_were_fetched_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P10: found upwards, where `make local-weights` puts them."""
    monkeypatch.setattr(local_servers, "KNOWN_MODELS", {"smollm2": ("no_such_wheel", "tiny.gguf")})
    asked = list[str]()

    def model(name: str, *, environ: object) -> None:
        asked.append(name)
        if not name.endswith(".gguf"):
            raise ConfigError("not here")

    monkeypatch.setattr(local_servers, "build_local_model", model)
    assert find_small_model({}) is None
    weights = tmp_path / ".cache" / "local" / "tiny.gguf"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"GGUF")
    assert find_small_model({}, [weights]) == f"local:{weights}"
