"""What is known of models: prices, windows, and how much they can write (P6).

It comes from `prices.json`, which `tools/prices.py` writes, with its date, from a maintained price
package. It is read at the first need, and of it only the vendor that is asked for.

The law: a price is known or it is not; none is guessed, and none is too low (B2). Names match as a
whole, in any case; only the mark of a snapshot, such as a date, may be left off.
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
_LISTED_VENDOR = {"openai-chat": "openai"}
_SNAPSHOT_SUFFIX = re.compile(r"-(?:(20\d\d)-?([01]\d)-?([0-3]\d)|00\d)$")

LOCAL_VENDORS = frozenset({"llamacpp", "lmstudio", "local", "ollama", "vllm"})
"""Vendors whose servers people run themselves."""
FREE_PRICE = Price(Decimal(0), Decimal(0))
_STANDARD_TIERS = frozenset({"auto", "default", "flex", "on_demand", "standard", "standard_only"})


class ModelListing(msgspec.Struct, frozen=True, kw_only=True):
    """What the file says of a model."""

    name: str
    """As it is listed."""
    price: Price
    long: Price | None = None
    """The price of every token of a prompt with more than `long_above` of them."""
    long_above: int | None = None
    window: int | None = None
    output_max: int | None = None
    """Tokens that it can write, where that is little."""
    deprecated: bool = False

    def highest_price(self, window: int | None) -> Price:
        """The price that holds for any prompt that fits into the window."""
        if self.long is None or self.long_above is None:
            return self.price
        return self.price if window is not None and window <= self.long_above else self.long


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
    """What is known of a model: by its name, else by its name without the mark of a snapshot."""
    table, names = _load_vendor_table(_LISTED_VENDOR.get(vendor, vendor))
    found = next((names[name] for name in _candidate_names(vendor, model) if name in names), None)
    return None if found is None else _listing_from_row(found, table.models[found])


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
    """What the runtime must know of a model; what the caller says goes before what is listed.

    A server that people run themselves costs nothing for a token: its price is zero and not
    unknown, so that a limit of money holds there too. A service tier that may be dearer than the
    usual one has no known price. Half of a window, at the least, is left to the prompt.
    """
    known = find_listing(vendor, model)
    listed = known.window if known else None
    info = ModelInfo(f"{vendor}:{model}", price, window or listed)
    caps = [info.output_max, known and known.output_max, info.window and (info.window // 2 or 1)]
    info = replace(info, output_max=min(cap for cap in caps if cap))
    if price is not None:
        return info
    if vendor in LOCAL_VENDORS:
        return replace(info, price=FREE_PRICE)
    if known is None or (tier is not None and tier not in _STANDARD_TIERS):
        return info
    # A window that the caller made smaller does not keep a prompt below it.
    reach = max(window or 0, listed or 0) if listed else None
    return replace(info, price=known.highest_price(reach))


def suggest_models(vendor: str, model: str) -> str:
    """A sentence with the names that an unknown one may stand for, or nothing."""
    if find_listing(vendor, model) is not None:
        return ""
    table, _ = _load_vendor_table(_LISTED_VENDOR.get(vendor, vendor))
    return suggest_names(model, find_near_names(model, (*table.models, *table.aliases)))


def describe_price_source() -> str:
    """When the prices were taken, and from where."""
    file = _load_price_file()
    return f"{file.date}, {file.package}"


def _candidate_names(vendor: str, model: str) -> Iterator[str]:
    name = model.casefold()
    if vendor == "google":
        name = name.removeprefix("models/")
    yield name
    if mark := _SNAPSHOT_SUFFIX.search(name):
        stem = name[: mark.start()]
        if mark[1]:
            # A snapshot may have a price of its own, under its other way to write a date.
            year, month, day = mark.groups()
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
    """The models of a vendor, and the listed name for each name in small letters."""
    raw = _load_price_file().vendors.get(vendor)
    if raw is None:
        return _VendorTable({}, {}), {}
    table = msgspec.json.decode(raw, type=_VendorTable)
    names = {alias.casefold(): name for alias, name in table.aliases.items()}
    return table, names | {name.casefold(): name for name in table.models}


@cache
def _load_price_file() -> _PriceFile:
    return msgspec.json.decode(_PRICES_PATH.read_bytes(), type=_PriceFile)
