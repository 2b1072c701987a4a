"""All pages of the reference, by their path below `docs/`."""

import importlib
import inspect

from reference.errors import build_errors
from reference.facts import build_events
from reference.http_routes import build_http
from reference.names import PUBLIC_PAGES, describe_object, show_type
from reference.options import build_settings

BELOW_GUIDES = "---\nsearch:\n  boost: 0.2\n---\n\n"
"""For pages of many names: the search shows the guides that explain them first."""
INDEX = """\
# Reference

What there is, by name. Every page is made from the code of this version.

- [Events and facts](events.md): what a run records, and what its watchers see
- [Settings](settings.md): files, variables and flags
- [Errors](errors.md): exceptions, codes of the service, exit codes, each with its fix
- [HTTP API](http.md): the routes of the service
- [Command line](../cli_reference.md): the help of every command

## Python

"""


def plain_pages() -> dict[str, str]:
    """Return the text of each page, by its path below `docs/`."""
    return {
        "reference/index.md": build_index(),
        "reference/events.md": BELOW_GUIDES + build_events(),
        "reference/settings.md": build_settings(),
        "reference/errors.md": build_errors(),
        "reference/http.md": BELOW_GUIDES + build_http(),
    }


def build_index() -> str:
    """Return the page that leads to the others."""
    pages = PUBLIC_PAGES.values()
    return INDEX + "\n".join(f"- [{page.title}]({page.file}.md): {page.about}" for page in pages)


def api_pages(*, with_names: bool) -> dict[str, str]:
    """Return a page for each group of public names, for mkdocstrings to fill in.

    `with_names=False` leaves the names out, for a build that only looks at the other pages.
    """
    overview = ["# Python\n"]
    pages: dict[str, str] = {}
    for page in PUBLIC_PAGES.values():
        names = page.names() if with_names else []
        links = [f"[`{name}`]({page.file}.md#{page.module}.{name})" for name in names]
        overview.append(
            f"## [{page.title}]({page.file}.md)\n\n{page.about}\n\n{' · '.join(links)}\n"
        )
        head = f"{BELOW_GUIDES}# {page.title}\n\n{page.about} Import from `{page.module}`.\n"
        sections = [_name_section(page.module, name) for name in names]
        pages[f"reference/{page.file}.md"] = "\n".join((head, *sections))
    return {"reference/api.md": "\n".join(overview), **pages}


def _name_section(module: str, name: str) -> str:
    value = getattr(importlib.import_module(module), name)
    if inspect.isclass(value) or inspect.isroutine(value):
        return f"::: {module}.{name}\n"
    # An alias of types or a constant: what it stands for says more than its code.
    return (
        f"## `{name}` {{ #{module}.{name} }}\n\n{describe_object(module, name)}\n\n"
        f"```text\n{show_type(value)}\n```\n"
    )
