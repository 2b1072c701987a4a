"""A folder of its own, an empty home and no key, so that nothing of this machine shows."""

from pathlib import Path

import pytest

import windlass.project.files


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project, which is where we are."""
    home = tmp_path / "home"
    place = tmp_path / "project"
    home.mkdir()
    place.mkdir()
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(home))
    for name in ("WINDLASS_JOURNAL", "WINDLASS_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(windlass.project.files, "SYSTEM_FILE", tmp_path / "etc.toml")
    monkeypatch.chdir(place)
    return place
