"""`windlass models`: who can be asked, and what it costs."""

import asyncio
from importlib import resources
from pathlib import Path

import click
import msgspec

from windlass.cli.renderer import GOOD, QUIET
from windlass.cli.screen import Screen
from windlass.core.errors import ConfigError
from windlass.core.suggestions import suggest_names
from windlass.environ import read_environment
from windlass.models.prices import ModelListing, describe_price_source, find_listing
from windlass.models.vendors import VendorConfig, load_vendors
from windlass.project.files import load_settings
from windlass.project.local_servers import DEFAULT_MODELS, find_servers, find_small_model


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
    if provider not in load_vendors():
        raise ConfigError(
            f"there is no provider {provider!r}.{suggest_names(provider, load_vendors())}"
        )
    _show_models(screen, provider)


def _show_providers(screen: Screen) -> None:
    environ = read_environment()
    chosen = load_settings().settings.model
    if chosen:
        screen.write_line(f"Set: {chosen}")
    here = {server.vendor: server for server in asyncio.run(find_servers())}
    for name, vendor in load_vendors().items():
        server = here.get(name)
        if server is not None:
            listed = ", ".join(server.models[:4]) or "no model loaded"
            ready, told = True, f"answers on port {server.port}: {listed}"
        else:
            ready, told = _describe_key(vendor, environ.get(vendor.key_env or "", ""))
        usual = f" (usual: {name}:{DEFAULT_MODELS[name]})" if name in DEFAULT_MODELS else ""
        mark = screen.glyphs.yes if ready else screen.glyphs.dot
        screen.write_line(
            f"{name:<18} {told}{usual}", "" if ready else QUIET, mark=mark, mark_style=GOOD
        )
    small = find_small_model(environ, Path.cwd())
    if small is not None:
        screen.write_line(f"{'local':<18} {small}", mark=screen.glyphs.yes, mark_style=GOOD)


def _describe_key(vendor: VendorConfig, value: str) -> tuple[bool, str]:
    if vendor.keyless:
        return False, "no server answers"
    return bool(value), f"{vendor.key_env} is {'set' if value else 'not set'}"


def _show_models(screen: Screen, provider: str) -> None:
    found = _priced_models(provider)
    if not found:
        screen.write_line(
            f"Nothing is known of the models of {provider}; any name is passed on.", QUIET
        )
        return
    told = f"US dollars for a million tokens, in and out; the window in tokens ({describe_price_source()})"
    screen.write_line(told, QUIET)
    wide = max(len(one.name) for one in found) + len(provider) + 1
    for one in found:
        window = f"{one.window:,}" if one.window else "?"
        price = f"{one.price.input:f} / {one.price.output:f}"
        old = "  deprecated" if one.deprecated else ""
        screen.write_line(f"{f'{provider}:{one.name}':<{wide}}  {price:<16} {window:>10}{old}")


class _PricedVendor(msgspec.Struct):
    models: dict[str, msgspec.Raw] = {}


class _PriceFile(msgspec.Struct):
    vendors: dict[str, _PricedVendor]


def _priced_models(provider: str) -> list[ModelListing]:
    """The models of a provider that are listed with a price."""
    data = resources.files("windlass.models").joinpath("prices.json").read_bytes()
    listed = msgspec.json.decode(data, type=_PriceFile).vendors.get(provider, _PricedVendor())
    return [known for name in listed.models if (known := find_listing(provider, name)) is not None]
