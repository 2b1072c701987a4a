"""The price list: prices, context windows and output limits of models.

It is the file `prices.json`, which `tools/prices.py` writes from a maintained price package. The
file is read when it is first needed, and only the vendor that is asked for is parsed.

Invariant: a price is known or unknown. It is never guessed, and never too low. Names match as a
whole, in upper or lower case; only a snapshot suffix, such as a date, may be missing.
"""

import re
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path

import msgspec
from msgspec.structs import replace

from windlass.core.setup import ModelInfo, Price
from windlass.core.suggestions import find_near_names, suggest_names

_PRICES_PATH = Path(__file__).with_name("prices.json")
# The same models under another API share the list.
_LISTED_VENDOR = {"openai-chat": "openai"}
# A date, as in `-2026-01-31` or `-20260131`, or a counter, as in `-001`.
_SNAPSHOT_SUFFIX = re.compile(r"-(?:(20\d\d)-?([01]\d)-?([0-3]\d)|00\d)$")

LOCAL_VENDORS = frozenset({"llamacpp", "lmstudio", "local", "ollama", "vllm"})
"""Vendors whose servers people run themselves."""
FREE_PRICE = Price(Decimal(0), Decimal(0))
# Service tiers that cost no more than the listed price.
_STANDARD_TIERS = frozenset({"auto", "default", "flex", "on_demand", "standard", "standard_only"})


class ModelListing(msgspec.Struct, frozen=True, kw_only=True):
    """What the price list says of a model. Prices are in US dollars for a million tokens."""

    name: str
    """As it is listed."""
    price: Price
    long: Price | None = None
    """The price of every token of a prompt with more than `long_above` tokens."""
    long_above: int | None = None
    window: int | None = None
    """The context window in tokens."""
    output_max: int | None = None
    """The most tokens that it can write; None unless that is less than the usual default."""
    deprecated: bool = False

    def highest_price(self, window: int | None) -> Price:
        """Return the price that covers any prompt that fits into a window of `window` tokens."""
        if self.long is None or self.long_above is None:
            return self.price
        fits_below = window is not None and window <= self.long_above
        return self.price if fits_below else self.long


class _LongPromptPrices(msgspec.Struct, frozen=True, array_like=True):
    above: int
    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None


class _PriceRow(msgspec.Struct, frozen=True, array_like=True):
    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    window: int | None = None
    output_max: int | None = None
    deprecated: bool | None = None
    long: _LongPromptPrices | None = None


class _VendorTable(msgspec.Struct, frozen=True):
    models: dict[str, _PriceRow]
    aliases: dict[str, str]


class _PriceFile(msgspec.Struct, frozen=True):
    date: str
    package: str
    vendors: dict[str, msgspec.Raw]


def find_listing(vendor: str, model: str) -> ModelListing | None:
    """Return what the price list says of a model, or None if it is not listed.

    A model is found by its name, else by its name without a snapshot suffix.
    """
    table, names = _load_vendor_table(_LISTED_VENDOR.get(vendor, vendor))
    for candidate in _candidate_names(vendor, model):
        if candidate in names:
            name = names[candidate]
            return _listing_from_row(name, table.models[name])
    return None


def has_listings(vendor: str) -> bool:
    """Whether the list has models of a vendor at all."""
    table, _ = _load_vendor_table(_LISTED_VENDOR.get(vendor, vendor))
    return bool(table.models)


def list_models(vendor: str) -> list[ModelListing]:
    """The models of a vendor that are listed with a price, as far as any are."""
    table, _ = _load_vendor_table(vendor)
    return [_listing_from_row(name, row) for name, row in table.models.items()]


def build_model_info(
    vendor: str,
    model: str,
    *,
    price: Price | None = None,
    window: int | None = None,
    tier: str | None = None,
) -> ModelInfo:
    """Return what the runtime has to know of a model. The caller's values win over listed ones.

    At least half of the window is left to the prompt.
    """
    listing = find_listing(vendor, model)
    listed_window = listing.window if listing else None
    info = ModelInfo(f"{vendor}:{model}", price, window or listed_window)
    output_caps = [info.output_max]
    if listing and listing.output_max:
        output_caps.append(listing.output_max)
    if info.window:
        output_caps.append(max(1, info.window // 2))
    info = replace(info, output_max=min(output_caps))
    if price is None:
        info = replace(info, price=_find_price(vendor, listing, window, tier))
    return info


def _find_price(
    vendor: str, listing: ModelListing | None, window: int | None, tier: str | None
) -> Price | None:
    # A server that people run themselves charges nothing. Its price is zero and not unknown, so
    # that a limit of money can be set there too.
    if vendor in LOCAL_VENDORS:
        return FREE_PRICE
    # Another service tier may cost more than the listed price.
    if listing is None or (tier is not None and tier not in _STANDARD_TIERS):
        return None
    if listing.window is None:
        return listing.highest_price(None)
    # A window that the caller made smaller does not keep prompts that small.
    return listing.highest_price(max(window or 0, listing.window))


def suggest_models(vendor: str, model: str) -> str:
    """Return a sentence with the listed names that look like an unknown one, or an empty text."""
    if find_listing(vendor, model) is not None:
        return ""
    table, _ = _load_vendor_table(_LISTED_VENDOR.get(vendor, vendor))
    return suggest_names(model, find_near_names(model, (*table.models, *table.aliases)))


def describe_price_source() -> str:
    """Return the date of the price list and the package that it was made from."""
    file = _load_price_file()
    return f"{file.date}, {file.package}"


def _candidate_names(vendor: str, model: str) -> Iterator[str]:
    name = model.casefold()
    if vendor == "google":
        name = name.removeprefix("models/")
    yield name
    if suffix := _SNAPSHOT_SUFFIX.search(name):
        stem = name[: suffix.start()]
        if suffix[1]:
            # A snapshot may be listed by itself, with its date written in the other way.
            year, month, day = suffix.groups()
            yield f"{stem}-{year}-{month}-{day}"
            yield f"{stem}-{year}{month}{day}"
        yield stem


def _listing_from_row(name: str, row: _PriceRow) -> ModelListing:
    long = row.long
    return ModelListing(
        name=name,
        price=Price(row.input, row.output, row.cache_read, row.cache_write),
        long=long and Price(long.input, long.output, long.cache_read, long.cache_write),
        long_above=long and long.above,
        window=row.window,
        output_max=row.output_max,
        deprecated=bool(row.deprecated),
    )


@cache
def _load_vendor_table(vendor: str) -> tuple[_VendorTable, dict[str, str]]:
    """Return the models of a vendor, and the listed name of each name in lower case."""
    raw = _load_price_file().vendors.get(vendor)
    if raw is None:
        return _VendorTable({}, {}), {}
    table = msgspec.json.decode(raw, type=_VendorTable)
    # The names of models win over aliases.
    names = {alias.casefold(): name for alias, name in table.aliases.items()}
    return table, names | {name.casefold(): name for name in table.models}


@cache
def _load_price_file() -> _PriceFile:
    return msgspec.json.decode(_PRICES_PATH.read_bytes(), type=_PriceFile)
