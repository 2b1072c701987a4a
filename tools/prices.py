"""Write `src/windlass/models/prices.json` from the price package `genai-prices` (P6).

    python tools/prices.py [REQUIREMENT]     such as: genai-prices==0.2.1

The package is installed into an environment of its own, which is thrown away: it costs a third of a
second to import, and is needed when a release is made, never at run time.

The law: money is never underestimated (B2). Where a price depends on the hour or on a day to come,
the dearest one is written; where it depends on the length of the prompt, both are. A model without
prices for input and output is left out, and so is one that is said to be free where it is not.
"""

# A script, which starts processes, over objects of a package that is not there when it is checked.
# ruff: noqa: ANN401, INP001, S603

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from fnmatch import fnmatchcase
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

MODELS = Path(__file__).resolve().parent.parent / "src" / "windlass" / "models"
TARGET = MODELS / "prices.json"
PACKAGE = "genai-prices"
ABOUT = (
    "Written by tools/prices.py; not to be edited. US dollars for a million tokens of text: "
    "[input, output, cache_read, cache_write, window, output_max, deprecated, long]. null: not "
    "known, or as input. Of prices that depend on the hour or on a day to come, the dearest. "
    "`long` is [above, input, output, cache_read, cache_write]: the prices of all tokens of a "
    "prompt that is longer than that, of several such steps the dearest at the lowest. Not in "
    "here: dearer service tiers, audio and video, searches, fees for a request. OpenRouter may "
    "route to a host that asks for more than it lists."
)

# Our name of a vendor, and the package's.
PROVIDERS = {
    "anthropic": "anthropic",
    "deepseek": "deepseek",
    "google": "google",
    "groq": "groq",
    "mistral": "mistral",
    "openai": "openai",
    "openrouter": "openrouter",
    "together": "together",
    "xai": "x-ai",
}
# What the package lists for a vendor, and its API does not serve.
FOREIGN = {"google": ("*claude-*",), "openai": ("gpt-oss-*", "ft:*"), "openrouter": ("*:batch",)}
# What OpenRouter calls a vendor: a window that is not known of the one may be of the other.
ROUTED = {
    "anthropic": "anthropic",
    "deepseek": "deepseek",
    "google": "google",
    "mistral": "mistralai",
    "openai": "openai",
    "xai": "x-ai",
}
# The package does not know how much a model can write. These cannot write our default of 8,192.
OUTPUT_MAX = {
    "claude-2*": 4_096,
    "claude-3-haiku*": 4_096,
    "claude-3-opus*": 4_096,
    "claude-3-sonnet*": 4_096,
    "computer-use*": 1_024,
    "gpt-3.5*": 4_096,
    "gpt-4-turbo*": 4_096,
    "gpt-4-vision*": 4_096,
    "gpt-4o-2024-05-13": 4_096,
}
INPUT = ("input_mtok", "input_image_mtok")
OUTPUT = ("output_mtok", "output_reasoning_mtok", "output_image_mtok")

Row = tuple[Decimal, Decimal, Decimal, Decimal]
"""Input, output, cache read, cache write."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, usage="prices.py [REQUIREMENT]")
    parser.add_argument("requirement", nargs="?", default=PACKAGE)
    parser.add_argument("--installed", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.installed:
        write_prices()
        return
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, given.requirement], check=True)
        subprocess.run([python, __file__, "--installed"], check=True)


def write_prices() -> None:
    providers = {one.id: one for one in import_module("genai_prices.data").providers}
    known = tomllib.loads((MODELS / "vendors.toml").read_text("utf-8"))
    today = datetime.now(UTC).date()
    routed = {model.id: model.context_window for model in providers["openrouter"].models}
    vendors = {
        vendor: dict(model_rows(vendor, providers[PROVIDERS[vendor]], routed, today))
        for vendor in sorted(PROVIDERS.keys() & known.keys())
    }
    head = {"about": ABOUT, "date": f"{today}", "package": f"{PACKAGE} {metadata.version(PACKAGE)}"}
    TARGET.write_text(format_file(head, vendors), "utf-8")
    count = sum(len(models) for models in vendors.values())
    sys.stdout.write(f"{TARGET.name}: {count} models, {TARGET.stat().st_size:,} bytes\n")


def format_file(head: dict[str, str], vendors: dict[str, dict[str, list[Any]]]) -> str:
    """JSON with a line for each model, so that a change shows as one."""
    lines = [f"{json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    groups: list[str] = []
    for vendor, models in vendors.items():
        aliases = {alias: name for name, (_, *others) in models.items() for alias in others}
        entries = {name: entry for name, (entry, *_) in models.items()}
        parts = [f'"models": {format_table(entries)}', f'"aliases": {format_table(aliases)}']
        groups.append(f"{json.dumps(vendor)}: {{\n{(',' + chr(10)).join(parts)}\n}}")
    body = ",\n".join(groups)
    return "{\n" + "\n".join(lines) + '\n"vendors": {\n' + body + "\n}\n}\n"


def format_table(entries: dict[str, Any]) -> str:
    compact = (",", ":")
    lines = [
        f"{json.dumps(name)}:{json.dumps(entries[name], separators=compact)}"
        for name in sorted(entries)
    ]
    return "{\n" + ",\n".join(lines) + "\n}" if lines else "{}"


def model_rows(
    vendor: str, provider: Any, routed: dict[str, int | None], today: date
) -> Iterator[tuple[str, list[Any]]]:
    """Each model's name, with its entry and its other names."""
    for model in provider.models:
        names = [
            name
            for name in model_names(provider, model)
            if not any(fnmatchcase(name, foreign) for foreign in FOREIGN.get(vendor, ()))
            and ("/" in name or vendor != "openrouter")
        ]
        if not names or not (prices := price_entry(vendor, model, today)):
            continue
        short, long = prices
        window = model.context_window
        if window is None and vendor in ROUTED:
            window = next(filter(None, (routed.get(f"{ROUTED[vendor]}/{n}") for n in names)), None)
        plain = (name.lower().rsplit("/")[-1] for name in names)
        most = min(
            (OUTPUT_MAX[p] for n in plain for p in OUTPUT_MAX if fnmatchcase(n, p)), default=None
        )
        row = [*short, window, most, True if model.deprecated else None, long]
        while row[-1] is None:
            row.pop()
        yield names[0], [row, *names[1:]]


def model_names(provider: Any, model: Any) -> list[str]:
    """What a model is called, best first: whole names that the package takes for this model."""
    found: dict[str, str] = {}
    for name in (model.id, *match_words(model.match)):
        if name[-1:].isalnum() and provider.find_model(name) is model:
            found.setdefault(name.casefold(), name)
    return list(found.values())


def match_words(clause: Any) -> Iterator[str]:
    for kind, value in vars(clause).items():
        if kind in {"or_", "and_"}:
            for one in value:
                yield from match_words(one)
        elif kind != "regex":
            yield value


def price_entry(vendor: str, model: Any, today: date) -> tuple[list[Any], list[Any] | None] | None:
    """The prices as they are written, and those of a long prompt; None if they are not known."""
    if vendor == "openrouter" and model.id.endswith(":free"):
        return ["0", "0", None, None], None
    offers = list(active_prices(model.prices, today))
    short, long = highest_prices(offers, base_price), highest_prices(offers, top_price)
    if short is None or long is None or not (short[0] and short[1]):
        return None
    starts = [
        tier.start for one in offers for value in vars(one).values() for tier in price_tiers(value)
    ]
    return format_row(short), [min(starts), *format_row(long)] if long != short else None


def active_prices(prices: Any, today: date) -> Iterator[Any]:
    """The prices that may hold from today on: the last one whose condition is met is in force."""
    if not isinstance(prices, list):
        yield prices
        return
    for one in reversed(prices):
        yield one.prices
        since = getattr(one.constraint, "start_date", None)
        if one.constraint is None or (since is not None and since <= today):
            return


def highest_prices(offers: list[Any], of: Callable[[Any], Decimal]) -> Row | None:
    found = [row for one in offers if (row := offer_prices(vars(one), of))]
    # A price that only some of the offers have would hide what the others ask.
    if not found or len(found) < len(offers):
        return None
    first, *others = zip(*found, strict=True)
    return (max(first), *map(max, others))


def offer_prices(prices: dict[str, Any], of: Callable[[Any], Decimal]) -> Row | None:
    """One offer; what is read from a cache or written to it costs as input, if nothing is said."""
    known = {key: of(value) for key, value in prices.items() if value is not None}
    if "input_mtok" not in known or "output_mtok" not in known:
        return None
    enters = max(known[key] for key in INPUT if key in known)
    leaves = max(known[key] for key in OUTPUT if key in known)
    # To write to a cache costs no less than input: some list what it costs to store in its stead.
    write = max(enters, known.get("cache_write_mtok", enters))
    return enters, leaves, known.get("cache_read_mtok", enters), write


def price_tiers(value: Any) -> list[Any]:
    return getattr(value, "tiers", [])


def base_price(value: Any) -> Decimal:
    return getattr(value, "base", value)


def top_price(value: Any) -> Decimal:
    return max([base_price(value), *(tier.price for tier in price_tiers(value))])


def format_row(row: Row) -> list[str | None]:
    enters, leaves, read, write = row
    same = [None if price == enters else format_price(price) for price in (read, write)]
    return [format_price(enters), format_price(leaves), *same]


def format_price(price: Decimal) -> str:
    return f"{price.normalize():f}"


if __name__ == "__main__":
    main()
