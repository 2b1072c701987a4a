"""`windlass serve`: the agents of this folder, or of a program, over HTTP."""

import asyncio
import shlex
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click
from msgspec.structs import replace

import windlass.cli.engine as engine_module
from windlass.cli.agent_source import AgentSource
from windlass.cli.journal_option import key_options, log_journal_risks
from windlass.cli.options import (
    agent_options,
    drain_option,
    limit_options,
    log_option,
    show_option,
    workspace_options,
)
from windlass.core.errors import ConfigError
from windlass.journals.wording import show_journal_name
from windlass.ports import Journal
from windlass.project.journals import journal_name, require_folder
from windlass.server.access import LOCAL_OWNER
from windlass.server.background import OutsideSettings
from windlass.server.jwt_tokens import JwtOptions
from windlass.server.limits import ServiceLimits
from windlass.server.request_log import set_up_logs
from windlass.server.service import Service
from windlass.server.serving import DEFAULT_PORT, ServeOptions, relax_garbage_collector
from windlass.server.serving import serve as serve_until_stopped


class EntryOptions(NamedTuple):
    """How the person who starts the service gets in."""

    opens_page: bool
    shows_login: bool


@click.command(
    epilog="""\b
Examples:
  windlass serve                       the agents of this folder, on this machine only
  windlass serve --open                the same, and open the page in a browser
  windlass serve app:agents            agents that app.py makes
  windlass serve app:agents --journal postgresql://db/windlass --engine temporal://engine:7233
  windlass serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem"""
)
@click.argument("target", required=False, metavar="[MODULE:NAME]")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="The port to listen on; 0 takes a free one.",
)
@click.option("--open", "opens_page", is_flag=True, help="Open the page in a browser.")
@click.option(
    "--journal",
    metavar="NAME",
    help="Where the sessions are kept: a path, memory: or postgresql://…",
)
@click.option(
    "--create", "creates", is_flag=True, help="Make the folder of the journal if it is not there."
)
@click.option("--tls-cert", type=click.Path(path_type=Path), help="A certificate (PEM).")
@click.option("--tls-key", type=click.Path(path_type=Path), help="Its private key (PEM).")
@click.option(
    "--insecure",
    is_flag=True,
    help="Listen on other interfaces without TLS, behind a proxy with TLS.",
)
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="NAME", help="Another host name of the service."
)
@click.option(
    "--allow-origin",
    "origins",
    multiple=True,
    metavar="URL",
    help="Another site whose pages may call the service.",
)
@click.option(
    "--trust-proxy",
    "proxies",
    multiple=True,
    metavar="ADDRESS",
    help="A trusted proxy (X-Forwarded-Proto, -For, -Prefix): an address or a network.",
)
@click.option(
    "--public-url",
    default="",
    metavar="URL",
    help="The public URL of the service, including its path prefix.",
)
@click.option(
    "--webhook-host",
    "webhook_hosts",
    multiple=True,
    metavar="HOST",
    help="Allow a private webhook receiver: a host, an address or a network.",
)
@click.option(
    "--drive/--no-drive",
    "drives",
    default=True,
    help="Whether to drive runs here, or leave them to windlass worker.",
)
@engine_module.engine_option
@key_options
@workspace_options
@click.option("--jwt-issuer", metavar="URL", help="An identity provider whose tokens are accepted.")
@click.option("--jwt-audience", metavar="NAME", help="The audience that its tokens must have.")
@click.option("--jwt-keys", default="", metavar="URL", help="Its keys (JWKS), if not discoverable.")
@click.option(
    "--login/--no-login",
    "shows_login",
    default=True,
    help="Whether to print a login link and the first token; turn it off if others read the log.",
)
@click.option(
    "--drain-delay",
    type=click.FloatRange(0),
    default=0.0,
    metavar="SECONDS",
    help="Seconds to keep accepting requests after SIGTERM, while not ready.",
)
@drain_option
@show_option("What callers see of an agent, besides what it says; repeatable")
@log_option("How requests are logged, on standard error.")
@agent_options
@limit_options
def serve(
    target: str | None,
    opens_page: bool,
    journal: str | None,
    drives: bool,
    engine: str | None,
    **given: Any,  # noqa: ANN401 - the flags of click
) -> None:
    """Serve agents over HTTP, with a token: the agents of this folder, or of a program.

    Runs belong to the service: they continue when a client disconnects, and when the service is
    killed, the next one finishes them. The page is opened with a link that works once.
    """
    outside = OutsideSettings(public_url=given["public_url"], webhook_hosts=given["webhook_hosts"])
    options = _read_options(given, outside)
    if journal and not given["creates"]:
        require_folder(journal)
    set_up_logs(given["log_format"])
    placing = None if engine is None else engine_module.LateEngine(engine)
    entry = EntryOptions(opens_page=opens_page, shows_login=given["shows_login"])
    source = AgentSource(target, journal, given)

    async def run() -> None:
        if source.service is not None:
            _agree_on_shown(target, given["shows"])
            _agree_on_outside(source.service, outside)
            await _serve_service(source.service, options, entry)
            return
        async with source.open() as opened:
            _refuse_what_has_no_effect(target, given["model"], opened.journal, drives=drives)
            service = opened.make_service(
                outside=outside,
                drives=drives,
                engine=placing,
                limits=ServiceLimits(drain_s=given["drain"]),
                shows=given["shows"],
            )
            await _serve_service(service, options, entry)

    asyncio.run(run())


def _agree_on_shown(target: str | None, shows: object) -> None:
    if shows:
        raise ConfigError(f"{target} is a service: give it shows=… instead of --show")


def _agree_on_outside(service: Service, given: OutsideSettings) -> None:
    """Let the flags of this start go before what a program says about its service."""
    own = service.outside
    service.outside = OutsideSettings(
        public_url=given.public_url or own.public_url,
        webhook_hosts=given.webhook_hosts or own.webhook_hosts,
    )


def _refuse_what_has_no_effect(
    target: str | None, model: str | None, journal: Journal, *, drives: bool
) -> None:
    """Raise ConfigError for flags that could not do what they say."""
    if target is not None and model:
        raise ConfigError(
            f"--model chooses the model of this folder's agents, and {target} brings its own: "
            "leave it out, or change the program"
        )
    if not drives and not journal.is_kept:
        raise ConfigError(
            "--no-drive leaves runs to workers, which cannot see a journal in memory: pass "
            "--journal, a file or postgresql://…"
        )


def _read_options(given: Mapping[str, Any], outside: OutsideSettings) -> ServeOptions:
    """Return how to serve, as the flags say. Raises ConfigError if they do not fit together."""
    options = ServeOptions(
        host=given["host"],
        port=given["port"],
        tls_cert=given["tls_cert"],
        tls_key=given["tls_key"],
        insecure=given["insecure"],
        hosts=given["hosts"],
        public_url=outside.public_url,
        origins=given["origins"],
        proxies=given["proxies"],
        jwt=_read_jwt_options(given),
        drain_delay_s=given["drain_delay"],
    )
    options.check()
    return options


def _read_jwt_options(given: Mapping[str, Any]) -> JwtOptions | None:
    issuer = given["jwt_issuer"]
    audience = given["jwt_audience"]
    if not issuer and not audience:
        return None
    if not issuer or not audience:
        raise ConfigError("an identity provider needs both --jwt-issuer and --jwt-audience")
    return JwtOptions(issuer=issuer, audience=audience, keys_url=given["jwt_keys"])


async def _serve_service(service: Service, options: ServeOptions, entry: EntryOptions) -> None:
    """Serve until a signal, and say how to get in."""
    options = replace(options, public_url=service.outside.public_url)
    await log_journal_risks(service.journal)

    async def on_ready(address: str) -> None:
        # Made only now: one that is made for a port that is taken would never be shown.
        page = ""
        secret = ""
        if entry.shows_login or entry.opens_page:
            page = f"/#login={await service.tokens.create_login(LOCAL_OWNER)}"
        if entry.shows_login and not await service.tokens.list_tokens():
            made = await service.tokens.create("", ["admin"], note="made by windlass serve")
            secret = made.secret
        click.echo(f"Serving {', '.join(service.agents)} at {address}")
        if entry.shows_login:
            click.echo(f"Page, once and within 10 minutes: {options.page_url(address)}{page}")
        if secret:
            click.echo(f"Token, shown only now: {secret}")
        else:
            click.echo(f"For programs: {_say_how_to_get_a_token(service.journal)}")
        if entry.opens_page:
            webbrowser.open(options.page_url(address) + page)

    relax_garbage_collector()
    await serve_until_stopped(service, options, on_ready=on_ready)


def _say_how_to_get_a_token(journal: Journal) -> str:
    """Return the command that makes a token for a service on this journal, or what to do."""
    if not journal.is_kept:
        return (
            "no token can be made from outside for a journal in memory. "
            "Start without --no-login, or with --journal FILE"
        )
    command = "windlass token create NAME"
    if journal.name == show_journal_name(journal_name()):
        return command
    return f"{command} --journal {shlex.quote(journal.name)}"
