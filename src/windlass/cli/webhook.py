"""`windlass webhook`: messages to other programs, and to the phone of a person who is asked."""

import time

import click

from windlass.cli.journal_option import journal_option, run_on_journal
from windlass.cli.resource_commands import ResourceCommands
from windlass.core.errors import ConfigError
from windlass.project.journals import ManagedJournal
from windlass.server.owned_records import full_name
from windlass.server.webhooks.store import ALL_EVENTS, HookEvent, NewWebhook, Webhook, WebhookStore

COLUMNS = ("WEBHOOK", "EVENTS", "FORMAT", "FAILED", "URL", "NOTE")


@click.group()
def webhook() -> None:
    """Create, list and delete webhooks.

    A webhook is kept in the journal. One of the services that run on the journal (`windlass serve`)
    sends its messages, and another one takes over if that one dies.
    """


@webhook.command(
    epilog="""\b
Examples:
  windlass webhook create phone https://ntfy.sh/my-topic --ntfy --event question
  windlass webhook create tickets https://example.com/hook --header "Authorization: Bearer abc"
"""
)
@click.argument("name")
@click.argument("url")
@journal_option
@click.option(
    "--event",
    "events",
    multiple=True,
    type=click.Choice(ALL_EVENTS),
    help="An event to send; may be repeated. By default all.",
)
@click.option("--agent", metavar="NAME", default="", help="Only sessions of this agent.")
@click.option("--ntfy", is_flag=True, help="A line of text for a push service, instead of JSON.")
@click.option("--content", is_flag=True, help="Include arguments and reasons.")
@click.option("--header", "headers", multiple=True, metavar="NAME:VALUE", help="A further header.")
def create(
    name: str,
    url: str,
    place: str,
    events: tuple[HookEvent, ...],
    agent: str,
    ntfy: bool,
    content: bool,
    headers: tuple[str, ...],
) -> None:
    """Send messages about questions, ends and failures to URL.

    They are signed with a secret that is shown once. The address is checked when a message is sent:
    for one that is not public, start the service with --webhook-host.
    """
    new = NewWebhook(
        name=name,
        url=url,
        sees_all=True,
        events=events or ALL_EVENTS,
        agent=agent,
        format="ntfy" if ntfy else "standard",
        content=content,
        headers=dict(map(_read_header, headers)),
    )
    made = run_on_journal(
        place, lambda journal: _open_store(journal).create_webhook(new), creates=True
    )
    click.echo(f"The webhook {made.name} is kept.")
    click.echo(f"Secret, shown only now: {made.secret}")
    click.echo("Messages are sent while a service runs on this journal: windlass serve", err=True)


def _open_store(journal: ManagedJournal) -> WebhookStore:
    return WebhookStore(journal, time.time)


def _read_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise ConfigError(f"--header {text!r}: write it as NAME:VALUE")
    return name.strip(), value.strip()


def _make_row(hook: Webhook) -> list[str]:
    note = f"off: {hook.last_error}" if hook.is_disabled else hook.last_error
    events = ",".join(hook.events)
    return [full_name(hook), events, hook.format, str(hook.failed), hook.url, note[:120]]


WEBHOOKS = ResourceCommands("webhook", _open_store, COLUMNS, _make_row)
webhook.add_command(WEBHOOKS.make_list("List the webhooks, and why their messages were not taken."))
webhook.add_command(WEBHOOKS.make_delete("Delete a webhook. Links that it has sent stop working."))
