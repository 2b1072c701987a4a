"""Pictures and files for a prompt."""

from pathlib import Path

import pytest

from windlass import Agent, ConfigError, FilePart, ImagePart, TextPart, attach
from windlass.testing import ScriptedModel, VirtualClock
from windlass.testing.chat_wire import text_answer
from windlass.testing.fault_server import FaultServer

PNG = b"\x89PNG\r\n\x1a\n..."


def test_the_content_says_what_it_is_whatever_it_is_called(tmp_path: Path) -> None:
    """P7: from a path."""
    path = tmp_path / "photo.jpg"
    path.write_bytes(PNG)
    assert attach(path) == attach(str(path)) == ImagePart("image/png", PNG)


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
    ],
)
def test_bytes_are_known_by_their_beginning(data: bytes, media_type: str) -> None:
    """P7: from bytes."""
    assert attach(data) == ImagePart(media_type, data)


def test_a_document_is_a_file_with_a_name() -> None:
    assert attach(b"%PDF-1.7", name="bill.pdf") == FilePart(
        "application/pdf", "bill.pdf", b"%PDF-1.7"
    )


def test_an_address_is_not_fetched() -> None:
    """P7: from a URL."""
    assert attach("https://example.com/a.png") == ImagePart(
        "image/png", None, "https://example.com/a.png"
    )


def test_what_cannot_be_read_or_named_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        attach(tmp_path / "nothing.png")
    with pytest.raises(ConfigError, match="media_type="):
        attach(b"who knows")
    assert attach(b"who knows", media_type="text/plain").media_type == "text/plain"


async def test_what_a_model_cannot_take_is_refused_before_it_is_recorded(
    clock: VirtualClock,
) -> None:
    """P7: by name, and the session goes on without it."""
    async with FaultServer(text_answer("Hello")) as server:
        agent = Agent("deepseek:deepseek-chat", base_url=server.url, key="k" * 20, clock=clock)
        with pytest.raises(ConfigError, match="image/png"):
            await agent.run([TextPart("What is this?"), attach(PNG)], session="s")
        assert (await agent.run("Then hello.", session="s")).text == "Hello"


def test_what_is_said_about_a_name_needs_a_name() -> None:
    with pytest.raises(ConfigError, match="base_url="):
        Agent(ScriptedModel([]), base_url="http://127.0.0.1:1")
