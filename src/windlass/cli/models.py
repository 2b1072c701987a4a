"""`windlass models`: the providers, their models, and what these cost."""

import asyncio

import click

from windlass.cli.doctor import describe_server
from windlass.cli.screen import GOOD, QUIET, Screen
from windlass.core.errors import ConfigError
from windlass.core.suggestions import suggest_names
from windlass.models.prices import describe_price_source, list_models
from windlass.models.resolve import can_sign_in
from windlass.models.vendors import VendorConfig, load_vendors
from windlass.project.files import load_settings
from windlass.project.local_servers import DEFAULT_MODELS, find_servers, find_small_model
from windlass.project.trust import open_project


@click.command(
    epilog="""\b
Examples:
  windlass models                  the providers, and which of them can be used now
  windlass models anthropic        its models, with price and context window"""
)
@click.argument("provider", required=False)
def models(provider: str | None) -> None:
    """List the providers; or the known models of one provider, with prices."""
    screen = Screen()
    if provider is None:
        _show_providers(screen)
        return
    if provider not in load_vendors():
        hint = suggest_names(provider, load_vendors())
        raise ConfigError(f"there is no provider {provider!r}.{hint}")
    _show_models(screen, provider)


def _show_providers(screen: Screen) -> None:
    project = open_project()
    environ = project.environ
    chosen = load_settings(project=project).settings.model
    if chosen:
        screen.write_line(f"Set: {chosen}")
    servers = {server.vendor: server for server in asyncio.run(find_servers())}
    for name, vendor in load_vendors().items():
        server = servers.get(name)
        if server is not None:
            is_ready = True
            text = describe_server(server)
        else:
            is_ready, text = _describe_key(vendor, environ.get(vendor.key_env or "", ""))
            if not is_ready and can_sign_in(name, environ):
                is_ready = True
                text = "there are credentials of the cloud"
        if name in DEFAULT_MODELS:
            text += f" (default: {name}:{DEFAULT_MODELS[name]})"
        _show_provider(screen, name, text, is_ready=is_ready)
    small_model = find_small_model(environ, project.weights)
    if small_model is not None:
        _show_provider(screen, "local", small_model, is_ready=True)


def _show_provider(screen: Screen, name: str, text: str, *, is_ready: bool) -> None:
    line = f"{name:<18} {text}"
    if is_ready:
        screen.write_line(line, mark=screen.glyphs.yes, mark_style=GOOD)
    else:
        screen.write_line(line, QUIET, mark=screen.glyphs.dot, mark_style=GOOD)


def _describe_key(vendor: VendorConfig, value: str) -> tuple[bool, str]:
    """Whether a provider can be used, and why."""
    if vendor.keyless:
        return False, "no server answers"
    return bool(value), f"{vendor.key_env} is {'set' if value else 'not set'}"


def _show_models(screen: Screen, provider: str) -> None:
    found = list_models(provider)
    if not found:
        line = f"No models of {provider} are listed; any model name is passed on to it."
        screen.write_line(line, QUIET)
        return
    source = describe_price_source()
    line = f"US dollars per million tokens, input / output; context window in tokens ({source})"
    screen.write_line(line, QUIET)
    width = max(len(model.name) for model in found) + len(provider) + 1
    for model in found:
        window = "?"
        if model.window:
            window = f"{model.window:,}"
        price = f"{model.price.input:f} / {model.price.output:f}"
        note = "  deprecated" if model.deprecated else ""
        name = f"{provider}:{model.name}"
        screen.write_line(f"{name:<{width}}  {price:<16} {window:>10}{note}")
