"""Write `src/windlass/models/prices.json` from the price package `genai-prices` (P6).

    python tools/prices.py [REQUIREMENT]     such as: genai-prices==0.2.1

The package is installed into a temporary environment, which is deleted afterwards: it takes a third
of a second to import, and is needed only when a release is made, never at run time.

The law: money is never underestimated (B2). If a price depends on the hour or on a future date, the
highest one is written; if it depends on the length of the prompt, both are. A model without prices
for input and output is left out, and so is one that is listed as free at a vendor that is not.
"""

# A script that starts processes and reads objects of a package that type checkers cannot see.
# ruff: noqa: ANN401, S603

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
    "Written by tools/prices.py; do not edit. US dollars for a million tokens of text: [input, "
    "output, cache_read, cache_write, window, output_max, deprecated, long]. null means unknown, "
    "or for cache prices the same as input. If a price depends on the hour or on a future date, "
    "it is the highest one. `long` is [above, input, output, cache_read, cache_write]: the prices "
    "of all tokens of a prompt with more than `above` tokens; if there are several such steps, "
    "the highest prices from the lowest step on. Not included: more expensive service tiers, "
    "audio and video, searches, fees per request. OpenRouter may route to a host that charges "
    "more than it lists."
)

# Our name of each vendor, and the package's name.
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
# Models that the package lists for a vendor although the vendor's API does not serve them.
FOREIGN = {"google": ("*claude-*",), "openai": ("gpt-oss-*", "ft:*"), "openrouter": ("*:batch",)}
# OpenRouter's name of each vendor: its listing may have a window that the vendor's own lacks.
ROUTED = {
    "anthropic": "anthropic",
    "deepseek": "deepseek",
    "google": "google",
    "mistral": "mistralai",
    "openai": "openai",
    "xai": "x-ai",
}
# The package has no output limits. These models cannot write our default of 8,192 tokens.
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
    arguments = parser.parse_args()
    if arguments.installed:
        write_prices()
        return
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, arguments.requirement], check=True)
        subprocess.run([python, __file__, "--installed"], check=True)


def write_prices() -> None:
    """Write the price list. Runs inside the environment in which the package is installed."""
    providers = {provider.id: provider for provider in import_module("genai_prices.data").providers}
    known_vendors = tomllib.loads((MODELS / "vendors.toml").read_text("utf-8"))
    today = datetime.now(UTC).date()
    routed = {model.id: model.context_window for model in providers["openrouter"].models}
    vendors = {
        vendor: dict(model_rows(vendor, providers[PROVIDERS[vendor]], routed, today))
        for vendor in sorted(PROVIDERS.keys() & known_vendors.keys())
    }
    head = {"about": ABOUT, "date": f"{today}", "package": f"{PACKAGE} {metadata.version(PACKAGE)}"}
    TARGET.write_text(format_file(head, vendors), "utf-8")
    count = sum(len(models) for models in vendors.values())
    sys.stdout.write(f"{TARGET.name}: {count} models, {TARGET.stat().st_size:,} bytes\n")


def format_file(head: dict[str, str], vendors: dict[str, dict[str, list[Any]]]) -> str:
    """Return JSON with one line per model, so that a diff shows changes model by model."""
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
    """Yield each model's name, with its entry and its other names."""
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
        row = [*short, window, output_max(names), True if model.deprecated else None, long]
        while row[-1] is None:
            row.pop()
        yield names[0], [row, *names[1:]]


def output_max(names: list[str]) -> int | None:
    """Return the known output limit of a model, or None."""
    base_names = [name.lower().rsplit("/")[-1] for name in names]
    limits = [
        limit
        for pattern, limit in OUTPUT_MAX.items()
        if any(fnmatchcase(name, pattern) for name in base_names)
    ]
    return min(limits, default=None)


def model_names(provider: Any, model: Any) -> list[str]:
    """Return the names of a model, best first: those that the package resolves to this model."""
    found: dict[str, str] = {}
    for name in (model.id, *match_words(model.match)):
        if name[-1:].isalnum() and provider.find_model(name) is model:
            found.setdefault(name.casefold(), name)
    return list(found.values())


def match_words(clause: Any) -> Iterator[str]:
    """Yield the literal texts in a clause by which the package matches names."""
    for kind, value in vars(clause).items():
        if kind in {"or_", "and_"}:
            for inner in value:
                yield from match_words(inner)
        elif kind != "regex":
            yield value


def price_entry(vendor: str, model: Any, today: date) -> tuple[list[Any], list[Any] | None] | None:
    """Return the prices as they are written, and those of a long prompt; None if unknown."""
    if vendor == "openrouter" and model.id.endswith(":free"):
        return ["0", "0", None, None], None
    offers = list(active_prices(model.prices, today))
    short = highest_prices(offers, base_price)
    long = highest_prices(offers, top_price)
    if short is None or long is None or not (short[0] and short[1]):
        return None
    if long == short:
        return format_row(short), None
    values = [value for offer in offers for value in vars(offer).values()]
    starts = [tier.start for value in values for tier in price_tiers(value)]
    return format_row(short), [min(starts), *format_row(long)]


def active_prices(prices: Any, today: date) -> Iterator[Any]:
    """Yield the prices that may apply from today on: the last one whose condition is met does."""
    if not isinstance(prices, list):
        yield prices
        return
    for conditional in reversed(prices):
        yield conditional.prices
        since = getattr(conditional.constraint, "start_date", None)
        if conditional.constraint is None or (since is not None and since <= today):
            return


def highest_prices(offers: list[Any], read_price: Callable[[Any], Decimal]) -> Row | None:
    """Return the highest price of each kind among the offers; None if one of them lacks prices."""
    rows = [row for offer in offers if (row := offer_prices(vars(offer), read_price))]
    # With a price of only some of the offers, the others could cost more than what is written.
    if not rows or len(rows) < len(offers):
        return None
    first, *others = zip(*rows, strict=True)
    return (max(first), *map(max, others))


def offer_prices(prices: dict[str, Any], read_price: Callable[[Any], Decimal]) -> Row | None:
    """Return the prices of one offer. Cache prices that are not listed are those of the input."""
    known = {key: read_price(value) for key, value in prices.items() if value is not None}
    if "input_mtok" not in known or "output_mtok" not in known:
        return None
    input_price = max(known[key] for key in INPUT if key in known)
    output_price = max(known[key] for key in OUTPUT if key in known)
    # Some vendors list the price of storing as the price of writing to the cache. Writing never
    # costs less than input.
    write_price = max(input_price, known.get("cache_write_mtok", input_price))
    return input_price, output_price, known.get("cache_read_mtok", input_price), write_price


def price_tiers(value: Any) -> list[Any]:
    return getattr(value, "tiers", [])


def base_price(value: Any) -> Decimal:
    return getattr(value, "base", value)


def top_price(value: Any) -> Decimal:
    return max([base_price(value), *(tier.price for tier in price_tiers(value))])


def format_row(row: Row) -> list[str | None]:
    input_price, output_price, *cache_prices = row
    formatted = [None if price == input_price else format_price(price) for price in cache_prices]
    return [format_price(input_price), format_price(output_price), *formatted]


def format_price(price: Decimal) -> str:
    return f"{price.normalize():f}"


if __name__ == "__main__":
    main()
