"""`windlass worker`: drive runs of a journal that have no driver, next to other workers."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

import windlass.cli.engine as fleet
from windlass.agent.agent import Agent
from windlass.agent.folder_watch import WAIT_S
from windlass.agent.sweeping import AcceptsStart
from windlass.agent.working import SessionWorker, WorkLimits
from windlass.cli.agent_source import AgentSource, OpenedAgents
from windlass.cli.journal_option import key_options, log_journal_risks
from windlass.cli.options import (
    agent_options,
    drain_option,
    limit_options,
    log_option,
    workspace_store_option,
)
from windlass.core.errors import ConfigError
from windlass.core.events import RunStarted
from windlass.server.background import BackgroundWork, begin_retention
from windlass.server.request_log import set_up_logs
from windlass.server.run_controls import is_served_run
from windlass.server.serving import StopSignals, relax_garbage_collector

RELEASE_S = 10.0
"""For releasing the runs of a worker that is stopped, after what was under way in them."""


@dataclass(frozen=True, slots=True)
class WorkPlan:
    """How a worker works, as its flags say."""

    limits: WorkLimits
    engine: str | None
    drift: "fleet.DriftPolicy"
    accepts: AcceptsStart | None

    def make_worker(
        self, agents: Mapping[str, Agent[Any]]
    ) -> "SessionWorker | fleet.TemporalWorker":
        """Return a worker for an engine, or for the journal alone. Raises ConfigError."""
        if self.engine is None:
            return SessionWorker(agents.values(), self.limits, self.accepts)
        rules = fleet.TakingRules(accepts=self.accepts, drift=self.drift)
        return fleet.TemporalWorker(self.engine, agents.values(), self.limits, rules)


@click.command(
    epilog="""\b
Examples:
  windlass worker --journal postgresql://db/windlass       the agents of this folder
  windlass worker app:agents --journal postgresql://db/windlass --runs 200
  windlass worker app:agents --journal postgresql://db/windlass --engine temporal://engine:7233"""
)
@click.argument("target", required=False, metavar="[MODULE:NAME]")
@click.option(
    "--journal", metavar="NAME", help="Where the sessions are kept: a path or postgresql://…"
)
@fleet.engine_option
@key_options
@workspace_store_option
@click.option(
    "--workspace-wait",
    type=click.FloatRange(0, min_open=True),
    default=WAIT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long a run waits for a worker that has its folder, before it is paused.",
)
@click.option(
    "--drift",
    type=click.Choice(("refuse", "same-digest-only", "consent")),
    default="same-digest-only",
    show_default=True,
    help="With an engine, what to do with runs whose configuration no worker has: pause them, "
    "leave them until such a worker comes, or continue them with this worker's configuration.",
)
@click.option(
    "--runs",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="Runs to drive at a time.",
)
@click.option("--runs-per-agent", type=click.IntRange(1), metavar="N", help="Limit per agent.")
@click.option("--runs-per-caller", type=click.IntRange(1), metavar="N", help="Limit per caller.")
@click.option(
    "--runs-per-provider",
    type=click.IntRange(1),
    metavar="N",
    help="Limit per provider.",
)
@click.option(
    "--sweep",
    type=click.FloatRange(0, min_open=True),
    default=0.5,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between checks for work.",
)
@drain_option
@log_option("How the work is logged, on standard error.")
@agent_options
@limit_options
def worker(target: str | None, journal: str | None, **given: Any) -> None:  # noqa: ANN401 - the flags of click
    """Drive runs that others started and that have no driver: one of any number of workers.

    Workers need only the journal. When one is killed, another takes its runs over at its next look.
    SIGTERM gives replies and calls that are under way some time to finish, and releases all runs.
    """
    limits = WorkLimits(
        runs=given["runs"],
        runs_per_agent=given["runs_per_agent"],
        runs_per_caller=given["runs_per_caller"],
        runs_per_provider=given["runs_per_provider"],
        sweep_s=given["sweep"],
        workspace_wait_s=given["workspace_wait"],
        drain_s=given["drain"],
    )
    set_up_logs(given["log_format"])
    source = AgentSource(target, journal, given)
    if source.service is not None:
        raise ConfigError(f"{target} is a service: name its agents, or run windlass serve {target}")
    # A run that a person began in a terminal on the same journal is theirs to resume.
    accepts = None if source.is_program else _was_left_to_workers
    plan = WorkPlan(limits, given["engine"], given["drift"], accepts)

    async def run() -> None:
        async with source.open() as opened:
            await _work(opened, plan)

    asyncio.run(run())


def _was_left_to_workers(start: RunStarted) -> bool:
    return bool(start.mail) or is_served_run(start)


async def _work(opened: OpenedAgents, plan: WorkPlan) -> None:
    """Work until SIGTERM or SIGINT; then release all runs. A second signal does not wait."""
    agents, journal = opened.agents, opened.journal
    if not journal.is_kept:
        raise ConfigError("a worker shares its journal with others: give --journal, a file or URL")
    await log_journal_risks(journal)
    working = plan.make_worker(agents)
    relax_garbage_collector()
    stop = StopSignals()
    background = BackgroundWork()
    with stop:
        task = asyncio.create_task(working.run())
        begin_retention(background, journal, opened.retention)
        click.echo(f"Working for {', '.join(agents)}, up to {plan.limits.runs} runs at a time.")
        await stop.wait()
        click.echo(f"Releasing {len(working.driving)} runs.", err=True)
        task.cancel()
        await background.stop()
        await stop.wait_again_or_for(task, plan.limits.drain_s + RELEASE_S)
        working.release_at_once()
        await asyncio.wait({task}, timeout=RELEASE_S)
