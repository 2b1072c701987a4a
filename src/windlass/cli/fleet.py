"""`windlass fleet`: which processes drive runs of a journal, what is paused, and who waits."""

from collections.abc import Sequence

import click
import msgspec

from windlass.agent.control import release
from windlass.cli.control import post_and_tell
from windlass.cli.journal_option import journal_option, run_on_journal
from windlass.cli.session_table import show_columns
from windlass.core.phrases import format_count, format_duration
from windlass.core.text_clip import printable_chars
from windlass.environ import find_login_name
from windlass.server.fleet_status import FleetReply, read_fleet_status

WORKER_COLUMNS = ("WORKER", "HOST", "PROCESS", "VERSION", "STATE", "AGE", "HEARTBEAT", "RUNS")
PAUSED_COLUMNS = ("PAUSED", "AGENT", "CALLER", "FOR", "WHY")
FAILOVER_COLUMNS = ("FAILOVER", "RESTORED", "PAUSED", "WHY")
QUEUE_COLUMNS = ("CALLER", "WAITING", "LONGEST")


@click.group(
    invoke_without_command=True,
    epilog="""\b
Examples:
  windlass fleet --journal postgresql://db/windlass
  windlass fleet --json | jq '.workers[] | select(.state != "alive")'
  windlass fleet move a83f90 --reason "the machine is replaced"
""",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object, as GET /fleet returns it.")
@journal_option
@click.pass_context
def fleet(context: click.Context, as_json: bool, place: str) -> None:
    """Show the workers of a journal, its paused runs, and who waits.

    A worker that is late has not renewed its lease: others may take its runs.
    """
    if context.invoked_subcommand is not None:
        return
    status = run_on_journal(place, read_fleet_status)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(status)).decode())
    else:
        _show_status(status)


@fleet.command()
@click.argument("session")
@click.option("--reason", metavar="WHY", default="", help="The reason, for the record.")
@journal_option
def move(session: str, reason: str, place: str) -> None:
    """Move a run off the worker that drives it: another worker resumes it.

    Replies and calls that are under way get 20 s. The worker leaves the run to others for 10 s.
    """
    person = find_login_name()
    post_and_tell(place, session, lambda j, name: release(j, name, reason, by=person))


def _show_status(status: FleetReply) -> None:
    if status.note:
        click.echo(status.note)
        click.echo(f"{format_count(len(status.driven), 'run')} driven.")
        for session in status.driven:
            click.echo(f"  {printable_chars(session)}")
    else:
        workers = [
            (
                worker.name,
                worker.host,
                str(worker.process),
                worker.version,
                worker.state if worker.is_direct else f"{worker.state}, pooled",
                format_duration(worker.age_s),
                f"{format_duration(worker.heartbeat_s)} ago",
                str(worker.runs),
            )
            for worker in status.workers
        ]
        _show_table(WORKER_COLUMNS, workers, "No workers in the last hour.")
    _show_failovers(status)
    paused = [
        (run.session, run.agent, run.caller, format_duration(status.at - run.since), run.reason)
        for run in status.paused
    ]
    _show_table(PAUSED_COLUMNS, paused, "No paused runs.")
    queues = [
        (queue.caller or "(none)", str(queue.prompts), format_duration(queue.longest_wait_s))
        for queue in status.queues
    ]
    _show_table(QUEUE_COLUMNS, queues, "No prompts wait.")


def _show_failovers(status: FleetReply) -> None:
    """Show when the database may have lost records, and what became of the runs."""
    failovers = [
        (
            f"{format_duration(status.at - one.at)} ago",
            str(one.restored) if one.is_settled else f"{one.restored} so far",
            str(one.paused) if one.is_settled else f"{one.paused} so far",
            one.reason,
        )
        for one in status.failovers
    ]
    if failovers:
        _show_table(FAILOVER_COLUMNS, failovers, "")
    if status.replication:
        click.echo(f"\n{status.replication}")


def _show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], none: str) -> None:
    click.echo()
    if rows:
        show_columns([columns, *([printable_chars(cell) for cell in row] for row in rows)])
    else:
        click.echo(none)
