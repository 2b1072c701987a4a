"""Files and environment in, plain values out."""

from pathlib import Path

import pytest

from windlass import ConfigError
from windlass.config import assignments, environment, mcp_servers


def test_a_dotenv_file_adds_to_the_environment_and_changes_nothing_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P3: what is set already goes first."""
    monkeypatch.setenv("WINDLASS_A", "set")
    (tmp_path / ".env").write_text("WINDLASS_A=file\nexport WINDLASS_B='b # c' # d\nnonsense\n")
    environ = environment(tmp_path)
    assert (environ["WINDLASS_A"], environ["WINDLASS_B"]) == ("set", "b # c")


def test_without_a_dotenv_file_there_is_only_the_environment(tmp_path: Path) -> None:
    assert "WINDLASS_B" not in environment(tmp_path)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=b", "b"),
        ("A = b # c", "b"),
        ('A="b#c"', "b#c"),
        ("A=", ""),
        ("A='b", "b"),
        ("A=b#c", "b#c"),
    ],
)
def test_values_are_read_as_people_write_them(line: str, value: str) -> None:
    assert dict(assignments(line)) == {"A": value}


def test_mcp_servers_come_from_the_usual_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T15."""
    assert mcp_servers(tmp_path) == ()
    monkeypatch.setenv("TOKEN", "t0k3n")
    (tmp_path / ".mcp.json").write_text(
        '{"mcpServers": {"a": {"command": "a-server", "args": ["-v"]},'
        ' "b": {"type": "http", "url": "https://b.example/mcp",'
        ' "headers": {"Authorization": "Bearer ${TOKEN}"}}}}'
    )
    assert [server.name for server in mcp_servers(tmp_path)] == ["a", "b"]


def test_a_file_that_is_no_json_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text("{")
    with pytest.raises(ConfigError, match=r"\.mcp\.json"):
        mcp_servers(tmp_path)
