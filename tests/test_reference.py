"""The pages of the reference: all that the code has stands on them, with words."""

import importlib
import inspect
import re
from pathlib import Path
from typing import get_args

import pytest

from reference.errors import FAULTS, service_errors
from reference.names import PUBLIC_PAGES, describe_object
from reference.pages import api_pages, plain_pages
from windlass import ports
from windlass.core.errors import FaultKind
from windlass.core.events import Event
from windlass.project.settings import SETTING_KEYS
from windlass.server.dispatch import all_routes
from windlass.server.openapi import build_document

PAGES = plain_pages()
NAMES = [(page.module, name) for page in PUBLIC_PAGES.values() for name in page.names()]
PORTS = [value for name in ports.__all__ if inspect.isclass(value := getattr(ports, name))]
OF_A_PORT = {
    name for port in PORTS for name, value in vars(port).items() if getattr(value, "__doc__", None)
}
"""What a port says about a method holds for all that implement it."""


def own_doc(value: object) -> str:
    """The docstring that was written for this object, and not made or inherited."""
    if inspect.isclass(value):
        text = value.__dict__.get("__doc__") or ""
        # A dataclass without a docstring gets its signature as one.
        return "" if text.startswith(f"{value.__name__}(") else text
    return inspect.getdoc(value) or ""


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_each_public_name_says_what_it_is(module: str, name: str) -> None:
    """U4: the reference is made from docstrings, so each name has one."""
    value = getattr(importlib.import_module(module), name)
    if inspect.isclass(value) or inspect.isroutine(value):
        assert own_doc(value)
    else:
        assert describe_object(module, name)


def methods_without_words(kind: type) -> list[str]:
    found: list[str] = []
    for name, value in vars(kind).items():
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if not inspect.isfunction(function) or name.startswith(("_", "test_")):
            continue
        if kind not in PORTS and name in OF_A_PORT:
            continue
        said = [getattr(vars(base).get(name), "__doc__", None) for base in kind.__mro__]
        if not any(said):
            found.append(f"{kind.__name__}.{name}")
    return found


@pytest.mark.parametrize("page", PUBLIC_PAGES)
def test_each_public_method_says_what_it_does(page: str) -> None:
    """U4: hovering over a method in an editor answers what it does."""
    module = importlib.import_module(PUBLIC_PAGES[page].module)
    kinds = [getattr(module, name) for name in PUBLIC_PAGES[page].names()]
    silent = [
        name for kind in kinds if inspect.isclass(kind) for name in methods_without_words(kind)
    ]
    assert silent == []


def test_each_public_name_has_one_place_in_the_reference() -> None:
    """U4: also names of a package that is new."""
    packages = [
        module
        for path in (Path(__file__).resolve().parent.parent / "src" / "windlass").glob(
            "*/__init__.py"
        )
        if hasattr(module := importlib.import_module(f"windlass.{path.parent.name}"), "__all__")
    ]
    public = [
        (module.__name__, name)
        for module in (importlib.import_module("windlass"), *packages)
        for name in module.__all__
    ]
    assert sorted(NAMES) == sorted(public)


def test_each_public_name_is_handed_to_the_site() -> None:
    pages = api_pages(with_names=True)
    text = "\n".join(pages.values())
    assert [
        f"{module}.{name}"
        for module, name in NAMES
        if f"::: {module}.{name}\n" not in text and f"{{ #{module}.{name} }}" not in text
    ] == []


def test_each_event_has_its_fields() -> None:
    page = PAGES["reference/events.md"]
    sections = dict(re.findall(r"^### (\w+)$(.*?)(?=^###? |\Z)", page, re.MULTILINE | re.DOTALL))
    assert sorted(sections) == sorted(kind.__name__ for kind in get_args(Event))
    for kind in get_args(Event):
        own = set(kind.__struct_fields__) - {"seq", "nth", "at", "worked_s", "hidden"}
        assert own == set(re.findall(r"^\| `(\w+)` ", sections[kind.__name__], re.MULTILINE))


def test_a_field_comes_with_its_words() -> None:
    assert (
        "The prompt stays in view, however long the session grows." in PAGES["reference/events.md"]
    )


def test_each_setting_has_its_default_and_its_sources() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` (\|.*)$", PAGES["reference/settings.md"], re.MULTILINE))
    assert list(rows) == list(SETTING_KEYS)
    assert rows["max_steps"].startswith("| `25` | `WINDLASS_MAX_STEPS`<br>`--max-steps` | ")


def test_each_route_has_its_place() -> None:
    paths = build_document(all_routes())["paths"]
    shown = re.findall(r"^### ([A-Z]+) (\S+) \{ #", PAGES["reference/http.md"], re.MULTILINE)
    expected = [(method.upper(), path) for path, methods in paths.items() for method in methods]
    assert sorted(shown) == sorted(expected)


def test_each_error_code_of_the_service_says_what_to_do() -> None:
    codes = service_errors()
    assert [code for code, (_, message, hint) in codes.items() if not message or not hint] == []
    particular = {code for route in all_routes() for code in route.errors}
    assert particular - set(codes) == set()


def test_each_failure_says_what_to_do() -> None:
    assert set(FAULTS) == set(get_args(FaultKind))
