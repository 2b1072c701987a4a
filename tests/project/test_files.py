"""Files and environment in, plain values out."""

from pathlib import Path

import pytest

import windlass.project.files
from windlass import ConfigError
from windlass.environ import parse_assignments, read_environment
from windlass.project.files import load_settings, read_mcp_servers
from windlass.project.journals import default_journal_name
from windlass.project.trust import open_project


def test_a_dotenv_file_adds_to_the_environment_and_changes_nothing_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P3: what is set already goes first."""
    monkeypatch.setenv("MY_A", "set")
    (tmp_path / ".env").write_text("MY_A=file\nexport MY_B='b # c' # d\nnonsense\n")
    environ = read_environment(tmp_path)
    assert (environ["MY_A"], environ["MY_B"]) == ("set", "b # c")


def test_without_a_dotenv_file_there_is_only_the_environment(tmp_path: Path) -> None:
    assert "MY_B" not in read_environment(tmp_path)


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
    assert dict(parse_assignments(line)) == {"A": value}


def test_mcp_servers_come_from_the_usual_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T15."""
    assert read_mcp_servers(tmp_path) == ()
    monkeypatch.setenv("TOKEN", "t0k3n")
    (tmp_path / ".mcp.json").write_text(
        '{"mcpServers": {"a": {"command": "a-server", "args": ["-v"]},'
        ' "b": {"type": "http", "url": "https://b.example/mcp",'
        ' "headers": {"Authorization": "Bearer ${TOKEN}"}}}}'
    )
    assert [server.name for server in read_mcp_servers(tmp_path)] == ["a", "b"]


def test_a_file_that_is_no_json_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_text("{")
    with pytest.raises(ConfigError, match=r"\.mcp\.json"):
        read_mcp_servers(tmp_path)


@pytest.mark.parametrize(
    ("environ", "path"),
    [
        ({"WINDLASS_JOURNAL": "/d/my.db", "XDG_DATA_HOME": "/data"}, "/d/my.db"),
        ({"XDG_DATA_HOME": "/data"}, "/data/windlass/sessions.db"),
        ({"XDG_DATA_HOME": "data"}, "~/.local/share/windlass/sessions.db"),
        ({"WINDLASS_JOURNAL": "~/my.db"}, "~/my.db"),
        ({}, "~/.local/share/windlass/sessions.db"),
    ],
)
def test_sessions_are_kept_where_the_environment_says(environ: dict[str, str], path: str) -> None:
    assert Path(default_journal_name(environ)) == Path(path).expanduser()


def test_the_files_of_project_system_and_user_are_read_in_this_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(windlass.project.files, "SYSTEM_FILE", tmp_path / "etc.toml")
    deep = tmp_path / "project" / "src" / "deep"
    deep.mkdir(parents=True)

    def model_here(flags: dict[str, object] | None = None) -> str:
        project = open_project(deep).as_trusted()
        return load_settings(flags, folder=deep, project=project).settings.model

    for file, model in (
        (tmp_path / "project" / "windlass.toml", "a:1"),
        (tmp_path / "etc.toml", "a:2"),
        (tmp_path / "config" / "windlass" / "config.toml", "a:3"),
    ):
        assert model_here() != model
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'model = "{model}"')
        assert model_here() == model
    monkeypatch.setenv("WINDLASS_MODEL", "a:4")
    assert model_here() == "a:4"
    assert model_here({"model": "a:5"}) == "a:5"


def test_a_settings_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "windlass.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"windlass\.toml cannot be read: it is not UTF-8"):
        load_settings(folder=tmp_path)


def test_a_named_file_of_mcp_servers_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        read_mcp_servers(tmp_path, path=tmp_path / "none.json")
