"""Which model is asked when none is named: keys first, then what answers on this machine."""

import asyncio
from pathlib import Path

import pytest

from windlass.core.errors import ConfigError
from windlass.models.prices import lookup
from windlass.project import local_servers as nearby
from windlass.project.local_servers import USUAL, Nearby, answering, choose, small_model
from windlass.testing import FaultServer, in_thread
from windlass.testing.wire import hang_up, refuse_with, stall

pytestmark = pytest.mark.realtime


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No server answers on this machine, and no weights are on it."""
    monkeypatch.setattr(nearby, "PORTS", {})
    monkeypatch.setattr(nearby.answering, "__defaults__", ({},))
    monkeypatch.setattr(nearby, "KNOWN", {})


def test_the_usual_model_of_each_vendor_is_one_with_a_known_price() -> None:
    """P6: a limit of money works out of the box."""
    assert [name for name, model in USUAL.items() if lookup(name, model) is None] == []


@pytest.mark.usefixtures("alone")
def test_the_first_key_decides(tmp_path: Path) -> None:
    found = choose({"OPENAI_API_KEY": "x", "MISTRAL_API_KEY": "y"}, tmp_path)
    assert found.model == f"openai:{USUAL['openai']}"
    assert "OPENAI_API_KEY is set" in found.note


@pytest.mark.usefixtures("alone")
def test_without_anything_it_is_said_in_three_lines(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        choose({}, tmp_path)
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
        in_thread(listing("qwen3", "phi4")) as one,
        in_thread(listing()) as two,
        in_thread(broken) as three,
    ):
        ports = {"ollama": port_of(one), "vllm": port_of(two), "lmstudio": port_of(three)}
        found = asyncio.run(answering(ports | {"llamacpp": 9}))
    assert found == [
        Nearby("ollama", ports["ollama"], ("qwen3", "phi4")),
        Nearby("vllm", ports["vllm"], ()),
    ]


def test_a_server_that_hangs_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearby, "PROBE_S", 0.05)
    with in_thread(FaultServer(always=hang_up(stall()))) as server:
        assert asyncio.run(answering({"vllm": port_of(server)})) == []


def test_a_server_is_offered_and_taken_only_if_that_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearby, "KNOWN", {})
    with in_thread(listing("qwen3")) as server:
        monkeypatch.setattr(nearby.answering, "__defaults__", ({"ollama": port_of(server)},))
        assert choose({}, tmp_path, lambda _: True).model == "ollama:qwen3"
        with pytest.raises(ConfigError, match="windlass run -m ollama:qwen3"):
            choose({}, tmp_path, lambda _: False)
        with pytest.raises(ConfigError, match="a server answers"):
            choose({}, tmp_path)


def test_weights_that_were_fetched_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P10: found upwards, where `make local-weights` puts them."""
    monkeypatch.setattr(nearby, "KNOWN", {"smollm2": ("no_such_wheel", "tiny.gguf")})
    asked = list[str]()

    def model(name: str, *, environ: object) -> None:
        asked.append(name)
        if not name.endswith(".gguf"):
            raise ConfigError("not here")

    monkeypatch.setattr(nearby, "local_model", model)
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    assert small_model({}, deep) is None
    weights = tmp_path / ".cache" / "local" / "tiny.gguf"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"GGUF")
    assert small_model({}, deep) == f"local:{weights}"
