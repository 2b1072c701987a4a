"""The check of pinned packages: their licences, and the advisories about them."""

import json
from collections.abc import Iterator, Mapping
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from typing_extensions import override

import dependency_audit as audit

TODAY = date(2026, 11, 17)


def test_what_is_pinned_is_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    """Against the snapshot that is committed: no network is needed. The docs show its output."""
    assert audit.main(["check"]) == 0
    page = Path(__file__).parents[1] / "docs" / "security.md"
    assert f"$ make audit\n{capsys.readouterr().out}```" in page.read_text()


@pytest.fixture
def locks(tmp_path: Path) -> Path:
    (tmp_path / "run.txt").write_text("crane-core==1.2.0 \\\n    --hash=sha256:00\n")
    (tmp_path / "local.txt").write_text("")
    (tmp_path / "dev.txt").write_text(
        "Crane_Core==1.2.0\nhook[fast]==2.0\nwinch==1 ; sys_platform == 'win32'\n"
    )
    return tmp_path


def snapshot(**changes: Any) -> dict[str, Any]:
    return {
        "licences_date": "2026-11-01",
        "advisories_date": "2026-11-01",
        "licences": {"crane-core": {"1.2.0": "MIT"}, "hook": {"2.0": "LGPL-3.0-or-later"}},
        "advisories": {},
        **changes,
    }


CASES: Mapping[str, tuple[dict[str, Any], str]] = {
    "unknown_package": ({"licences": {"hook": {"2.0": "MIT"}}}, "crane-core 1.2.0 is not in"),
    "licence": (
        {"licences": {"crane-core": {"1.2.0": "GPL-3.0-only"}, "hook": {"2.0": "MIT"}}},
        "GPL-3.0-only",
    ),
    "only_for_tools": (
        {"licences": {"crane-core": {"1.2.0": "LGPL-3.0-only"}, "hook": {"2.0": "MIT"}}},
        "LGPL-3.0-only",
    ),
    "advisory": (
        {"advisories": {"crane-core": [{"id": "CVE-1", "fixed_in": ["1.10.0"]}]}},
        "CVE-1; it is fixed in 1.10.0",
    ),
    "never_fixed": (
        {"advisories": {"hook": [{"id": "CVE-2", "fixed_in": []}]}},
        "not fixed in any version",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_must_be_mended_is_named(case: str, locks: Path) -> None:
    changes, words = CASES[case]
    (problem,), notes = audit.find_problems(audit.read_pins(locks), snapshot(**changes), TODAY)
    assert words in problem
    assert notes == []


def test_what_is_fixed_is_fine_and_what_is_old_is_noted(locks: Path) -> None:
    pins = audit.read_pins(locks)
    assert pins == {
        "crane-core": {"1.2.0": {"run.txt", "dev.txt"}},
        "hook": {"2.0": {"dev.txt"}},
    }
    fixed = {"crane-core": [{"id": "CVE-1", "fixed_in": ["1.2.0"]}]}
    assert audit.find_problems(pins, snapshot(advisories=fixed), TODAY) == ([], [])
    _, (note,) = audit.find_problems(pins, snapshot(advisories_date="2026-01-01"), TODAY)
    assert "320 days old" in note


@pytest.mark.parametrize(
    ("licence", "allowed"),
    [
        ("MIT", True),
        ("MIT OR GPL-3.0-only", True),
        ("Apache-2.0 AND BSD-3-Clause", True),
        ("MIT AND GPL-3.0-only", False),
        ("unknown", False),
    ],
)
def test_an_expression_is_allowed_if_one_choice_is(licence: str, *, allowed: bool) -> None:
    assert audit.is_allowed(licence, audit.PERMISSIVE) == allowed


ANSWERS: Mapping[str, Any] = {
    "/pypi/crane-core/1.2.0/json": {
        "info": {"license": "", "classifiers": ["License :: OSI Approved :: MIT License"]},
        "vulnerabilities": [
            {"id": "PYSEC-1", "aliases": ["CVE-1"], "fixed_in": ["1.3"]},
            {"id": "PYSEC-2", "aliases": [], "fixed_in": ["1.2.0"]},
            {"id": "PYSEC-3", "aliases": [], "fixed_in": [], "withdrawn": "2026-01-01"},
        ],
    },
}


class Index(BaseHTTPRequestHandler):
    """An index with PyPI's JSON interface."""

    def do_GET(self) -> None:
        answer = ANSWERS.get(self.path)
        self.send_response(404 if answer is None else 200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    @override
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def source() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.slow
def test_an_update_takes_licences_and_advisories_of_an_index(
    source: str, locks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the snapshot knows under another name is not listed twice, and nothing is lost."""
    path = tmp_path / "audit.json"
    known = {"crane-core": [{"id": "CVE-1", "fixed_in": ["1.3"]}]}
    path.write_text(json.dumps(snapshot(advisories=known)))
    command = ["update", "--source", source, "--snapshot", str(path), "--locks", str(locks)]
    assert audit.main(command) == 1
    written = json.loads(path.read_text())
    assert written["licences"] == {
        "crane-core": {"1.2.0": "MIT"},
        "hook": {"2.0": "LGPL-3.0-or-later"},
    }
    assert [one["id"] for one in written["advisories"]["crane-core"]] == ["CVE-1", "PYSEC-2"]
    assert written["advisories_date"] > "2026-11-01"
    assert capsys.readouterr().out == "crane-core 1.2.0 has CVE-1; it is fixed in 1.3\n"
