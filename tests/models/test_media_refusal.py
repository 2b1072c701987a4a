"""What a model cannot take is known before anything is on record (P7)."""

from pathlib import Path

import pytest

from windlass.core.errors import ModelError
from windlass.core.messages import ContentPart, FilePart, ImagePart, TextPart, UserMessage
from windlass.core.view import Prompt
from windlass.models.http.model import HttpModel
from windlass.models.local.model import LocalModel
from windlass.models.local.process import LocalWeights
from windlass.models.options import ModelOptions, ToolProtocol
from windlass.models.resolve import resolve_model
from windlass.models.vendors import load_vendors
from windlass.ports import RefusesContent
from windlass.testing import ScriptedModel

PNG = ImagePart("image/png", b"\x89PNG")
BMP = ImagePart("image/bmp", b"BM")
EMPTY = ImagePart("image/png")
PDF = FilePart("application/pdf", "report.pdf", b"%PDF")
ZIP = FilePart("application/zip", "all.zip", b"PK")
NOTE = FilePart("text/plain", "note.txt", b"Hello")
URL = "http://localhost:1/v1"


def model(vendor: str, options: ModelOptions | None = None) -> HttpModel:
    place = {"AWS_REGION": "us-east-1", "GOOGLE_CLOUD_PROJECT": "p", "HOME": "/nowhere"}
    return resolve_model(f"{vendor}:m", environ=place, base_url=URL, options=options)


@pytest.mark.parametrize(
    ("vendor", "part", "name"),
    [
        ("openai", BMP, "the image (image/bmp, 2 bytes)"),
        ("openai-chat", EMPTY, "the image (image/png)"),
        ("anthropic", BMP, "the image (image/bmp, 2 bytes)"),
        ("anthropic", ZIP, "the file 'all.zip' (application/zip, 2 bytes)"),
        ("google", ZIP, "the file 'all.zip' (application/zip, 2 bytes)"),
        ("mistral", PDF, "the file 'report.pdf' (application/pdf, 4 bytes)"),
        ("deepseek", PNG, "the image (image/png, 4 bytes)"),
    ],
)
def test_a_part_is_refused_by_its_name(vendor: str, part: ContentPart, name: str) -> None:
    assert name in (model(vendor).content_refusal([TextPart("What is this?"), NOTE, part]) or "")


@pytest.mark.parametrize("vendor", load_vendors())
@pytest.mark.parametrize("part", [PNG, BMP, EMPTY, PDF, ZIP, NOTE], ids=repr)
def test_it_says_what_the_encoder_would(vendor: str, part: ContentPart) -> None:
    """Two places that know what a wire can take would sooner or later disagree."""
    asked = model(vendor)
    prompt = Prompt("x:m", "Be brief.", [UserMessage((TextPart("Hm?"), part))], (), "auto", 100)
    try:
        asked.dialect.encode_request(prompt, "m", ModelOptions())
        raised = None
    except ModelError as error:
        raised = str(error)
    assert asked.content_refusal([TextPart("Hm?"), part]) == raised


@pytest.mark.parametrize("protocol", ["native", "text", "grammar"])
def test_the_way_tools_are_offered_changes_nothing(protocol: ToolProtocol) -> None:
    asked = model("openai-compatible", ModelOptions(tool_protocol=protocol))
    assert asked.content_refusal([TextPart("Hi"), PNG, NOTE]) is None
    assert "report.pdf" in (asked.content_refusal([PDF]) or "")


@pytest.mark.parametrize("parts", [[], [TextPart("")], [TextPart("Hello")], [NOTE]])
def test_words_are_never_refused(parts: list[ContentPart]) -> None:
    for vendor in load_vendors():
        assert model(vendor).content_refusal(parts) is None


def test_it_leaves_no_trace_in_what_is_sent_next() -> None:
    asked = model("anthropic")
    prompt = Prompt("anthropic:m", "", [UserMessage((TextPart("Hi"),))], (), "auto", 100)
    before = asked.dialect.encode_request(prompt, "m", ModelOptions())
    assert asked.content_refusal([BMP]) is not None
    assert asked.content_refusal([PNG]) is None
    assert asked.dialect.encode_request(prompt, "m", ModelOptions()) == before


def test_a_local_model_takes_words_only(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF")
    weights = LocalWeights(path=path, alias="m", window=4096, threads=1)
    info = model("llamacpp").info
    assert "local does not accept the image" in (
        LocalModel(info, weights).content_refusal([PNG]) or ""
    )


def test_not_every_model_has_to_know() -> None:
    assert isinstance(model("openai"), RefusesContent)
    assert not isinstance(ScriptedModel(["Hi."]), RefusesContent)
