"""`windlass models`: who can be asked, and what it costs."""

import asyncio
from importlib import resources
from pathlib import Path

import click
import msgspec

from windlass.cli.renderer import GOOD, QUIET
from windlass.cli.screen import Screen
from windlass.core.errors import ConfigError
from windlass.core.suggestions import did_you_mean
from windlass.environ import environment
from windlass.models.prices import Known, dated, lookup
from windlass.models.vendors import Vendor, vendors
from windlass.project.files import settings
from windlass.project.local_servers import USUAL, answering, small_model


@click.command(
    epilog="""\b
Examples:
  windlass models                  the providers, and which of them can be asked now
  windlass models anthropic        its models, with price and window"""
)
@click.argument("provider", required=False)
def models(provider: str | None) -> None:
    """List the providers; of one of them, the models that are known, with prices."""
    screen = Screen()
    if provider is None:
        _show_providers(screen)
        return
    if provider not in vendors():
        raise ConfigError(f"there is no provider {provider!r}.{did_you_mean(provider, vendors())}")
    _show_models(screen, provider)


def _show_providers(screen: Screen) -> None:
    environ = environment()
    chosen = settings().settings.model
    if chosen:
        screen.line(f"Set: {chosen}")
    here = {server.vendor: server for server in asyncio.run(answering())}
    for name, vendor in vendors().items():
        server = here.get(name)
        if server is not None:
            listed = ", ".join(server.models[:4]) or "no model loaded"
            ready, told = True, f"answers on port {server.port}: {listed}"
        else:
            ready, told = _key_told(vendor, environ.get(vendor.key_env or "", ""))
        usual = f" (usual: {name}:{USUAL[name]})" if name in USUAL else ""
        mark = screen.glyphs.yes if ready else screen.glyphs.dot
        screen.line(f"{name:<18} {told}{usual}", "" if ready else QUIET, mark=mark, marked=GOOD)
    small = small_model(environ, Path.cwd())
    if small is not None:
        screen.line(f"{'local':<18} {small}", mark=screen.glyphs.yes, marked=GOOD)


def _key_told(vendor: Vendor, value: str) -> tuple[bool, str]:
    if vendor.keyless:
        return False, "no server answers"
    return bool(value), f"{vendor.key_env} is {'set' if value else 'not set'}"


def _show_models(screen: Screen, provider: str) -> None:
    found = _known(provider)
    if not found:
        screen.line(f"Nothing is known of the models of {provider}; any name is passed on.", QUIET)
        return
    told = f"US dollars for a million tokens, in and out; the window in tokens ({dated()})"
    screen.line(told, QUIET)
    wide = max(len(one.name) for one in found) + len(provider) + 1
    for one in found:
        window = f"{one.window:,}" if one.window else "?"
        price = f"{one.price.input:f} / {one.price.output:f}"
        old = "  deprecated" if one.deprecated else ""
        screen.line(f"{f'{provider}:{one.name}':<{wide}}  {price:<16} {window:>10}{old}")


class _Listed(msgspec.Struct):
    models: dict[str, msgspec.Raw] = {}


class _Prices(msgspec.Struct):
    vendors: dict[str, _Listed]


def _known(provider: str) -> list[Known]:
    """The models of a provider that are listed with a price."""
    data = resources.files("windlass.models").joinpath("prices.json").read_bytes()
    listed = msgspec.json.decode(data, type=_Prices).vendors.get(provider, _Listed())
    return [known for name in listed.models if (known := lookup(provider, name)) is not None]
