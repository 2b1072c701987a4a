"""`windlass steer`, `pause`, `raise` and `cancel`: speak to a run from any shell.

They need only the journal, no matter which process drives the run. `windlass resume` ends a pause.
"""

from collections.abc import Callable, Coroutine
from decimal import Decimal
from typing import Any

import click

from windlass.agent.control import (
    ControlReceipt,
    raise_limits,
)
from windlass.agent.control import (
    cancel as cancel_run,
)
from windlass.agent.control import (
    pause as pause_run,
)
from windlass.agent.control import (
    steer as steer_run,
)
from windlass.cli.sessions import journal_option, run_on_journal
from windlass.core.events import LimitsRaised, ReleaseAsked, RunPaused, SteeringGiven
from windlass.core.limits import RaisedLimits
from windlass.environ import find_login_name
from windlass.project.journals import ManagedJournal
from windlass.project.launches import explain_program_run
from windlass.project.session_names import find_session

TAKEN_WAIT_S = 3.0
"""How long to wait for the driver of the run to take the message."""
Post = Callable[[ManagedJournal, str], Coroutine[Any, Any, ControlReceipt]]


def post_and_tell(place: str, session: str, post: Post) -> None:
    """Post a message to the run of a session, and print the result."""
    click.echo(run_on_journal(place, lambda journal: post_and_describe(journal, session, post)))


async def post_and_describe(journal: ManagedJournal, session: str, post: Post) -> str:
    """Post a message, wait a moment for the driver to take it, and return the result."""
    name = (await find_session(journal, session)).session
    receipt = await post(journal, name)
    if receipt.fact is None and not await journal.is_leased(name):
        return await _tell_that_nobody_drives(journal, name)
    try:
        fact = await receipt.taken(TAKEN_WAIT_S)
    except TimeoutError:
        # A driver may have died so shortly before that its death shows only now.
        if not await journal.is_leased(name):
            return await _tell_that_nobody_drives(journal, name)
        return f"The message waits in session {name}: its driver has not taken it yet."
    if isinstance(fact, SteeringGiven | RunPaused | LimitsRaised | ReleaseAsked):
        return f"{fact.describe()}."
    return f"The run of session {name} has ended."


async def _tell_that_nobody_drives(journal: ManagedJournal, name: str) -> str:
    how = explain_program_run(name, await journal.read(name)) or f"windlass resume {name}"
    return f"The message waits: nobody drives session {name}. It is taken when somebody does: {how}"


@click.command(
    epilog="""\b
Example:
  windlass steer a83f90 "use the test database" """
)
@click.argument("session")
@click.argument("text", nargs=-1, required=True)
@journal_option
def steer(session: str, text: tuple[str, ...], place: str) -> None:
    """Say something to a run while it works; the model sees it before its next step.

    SESSION may be part of the session's name. The process that drives the run takes the message.
    Without a driver, it waits until the run is resumed.
    """
    said = " ".join(text)
    person = find_login_name()
    post_and_tell(place, session, lambda j, name: steer_run(j, name, said, by=person))


@click.command()
@click.argument("session")
@click.option("--reason", metavar="WHY", default="", help="The reason, for the record.")
@journal_option
def pause(session: str, reason: str, place: str) -> None:
    """Stop a run before its next request, until it is resumed: windlass resume SESSION.

    Its current reply and calls still finish.
    """
    person = find_login_name()
    post_and_tell(place, session, lambda j, name: pause_run(j, name, reason, by=person))


@click.command()
@click.argument("session")
@click.option("--reason", metavar="WHY", default="cancelled", help="The reason, for the record.")
@journal_option
def cancel(session: str, reason: str, place: str) -> None:
    """End a run, no matter which process drives it. If none does, it ends at once."""
    post_and_tell(place, session, lambda j, name: cancel_run(j, name, reason, by=find_login_name()))


@click.command("raise")
@click.argument("session")
@click.option("--steps", type=click.IntRange(1), help="Model replies in all.")
@click.option("--tokens", type=click.IntRange(1), help="Tokens in all.")
@click.option("--usd", metavar="AMOUNT", type=Decimal, help="US dollars in all.")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="Working time in all.")
@journal_option
def raise_(
    session: str,
    steps: int | None,
    tokens: int | None,
    usd: Decimal | None,
    seconds: float | None,
    place: str,
) -> None:
    """Raise the limits of a run to new totals. A run that paused at its budget continues.

    If no process drives it, resume it with: windlass resume SESSION.
    """
    limits = RaisedLimits(steps=steps, tokens=tokens, usd=usd, seconds=seconds)
    post_and_tell(
        place, session, lambda j, name: raise_limits(j, name, limits, by=find_login_name())
    )
