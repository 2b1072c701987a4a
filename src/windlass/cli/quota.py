"""`windlass quota`: what each caller of the service may use."""

from decimal import Decimal

import click

from windlass.cli.journal_option import journal_option, run_on_journal
from windlass.cli.resource_commands import ResourceCommands
from windlass.core.errors import ConfigError
from windlass.server.quotas.admission import EVERYONE, Quota, QuotaStore

COLUMNS = ("QUOTA", "CALLER", "AGENT", "AT ONCE", "PER MINUTE", "USD PER DAY")


@click.group()
def quota() -> None:
    """Set, list and delete quotas: how much each caller may use of each agent.

    They are kept in the journal, and hold for all services that run on it.
    """


@quota.command(
    "set",
    epilog="""\b
Example:
  windlass quota set everyone --runs-at-once 5 --starts-per-min 30 --usd-per-day 20
  windlass quota set interns --caller kim --agent researcher --usd-per-day 2
""",
)
@click.argument("name")
@journal_option
@click.option("--caller", default=EVERYONE, help="By default, each caller separately.")
@click.option("--agent", default=EVERYONE, help="By default, all agents together.")
@click.option("--runs-at-once", type=click.IntRange(1), help="Runs at the same time.")
@click.option("--starts-per-min", type=click.IntRange(1), help="Runs started per 60 seconds.")
@click.option("--usd-per-day", type=Decimal, help="US dollars per day (UTC).")
def set_(
    name: str,
    place: str,
    caller: str,
    agent: str,
    runs_at_once: int | None,
    starts_per_min: int | None,
    usd_per_day: Decimal | None,
) -> None:
    """Limit what callers may use, in place of the quota of that name if there is one.

    What is left out has no limit.
    """
    try:
        new = Quota(
            name=name,
            caller=caller,
            agent=agent,
            runs_at_once=runs_at_once,
            starts_per_min=starts_per_min,
            usd_per_day=usd_per_day,
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None
    run_on_journal(place, lambda journal: QuotaStore(journal).put(new), creates=True)
    click.echo(f"The quota {name} is set.")


def _make_row(known: Quota) -> list[str]:
    limits = (known.runs_at_once, known.starts_per_min, known.usd_per_day)
    shown = ["-" if limit is None else str(limit) for limit in limits]
    return [known.name, known.caller, known.agent, *shown]


QUOTAS = ResourceCommands("quota", QuotaStore, COLUMNS, _make_row)
quota.add_command(QUOTAS.make_list("List the quotas."))
quota.add_command(QUOTAS.make_delete("Delete a quota."))
