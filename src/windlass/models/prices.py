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
from windlass.core.suggestions import did_you_mean, near

_FILE = Path(__file__).with_name("prices.json")
_LISTED_AS = {"openai-chat": "openai"}
_SNAPSHOT = re.compile(r"-(?:(20\d\d)-?([01]\d)-?([0-3]\d)|00\d)$")

LOCAL = frozenset({"llamacpp", "lmstudio", "local", "ollama", "vllm"})
"""Vendors whose servers people run themselves."""
FREE = Price(Decimal(0), Decimal(0))
_USUAL_TIERS = frozenset({"auto", "default", "flex", "on_demand", "standard", "standard_only"})


class Known(msgspec.Struct, frozen=True, kw_only=True):
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

    def dearest(self, window: int | None) -> Price:
        """The price that holds for any prompt that fits into the window."""
        if self.long is None or self.long_above is None:
            return self.price
        return self.price if window is not None and window <= self.long_above else self.long


class _Long(msgspec.Struct, frozen=True, array_like=True):
    above: int
    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None


class _Row(msgspec.Struct, frozen=True, array_like=True):
    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    window: int | None = None
    output_max: int | None = None
    deprecated: bool | None = None
    long: _Long | None = None


class _Table(msgspec.Struct, frozen=True):
    models: dict[str, _Row]
    aliases: dict[str, str]


class _File(msgspec.Struct, frozen=True):
    date: str
    package: str
    vendors: dict[str, msgspec.Raw]


def lookup(vendor: str, model: str) -> Known | None:
    """What is known of a model: by its name, else by its name without the mark of a snapshot."""
    table, names = _listed(_LISTED_AS.get(vendor, vendor))
    found = next((names[name] for name in _spellings(vendor, model) if name in names), None)
    return None if found is None else _known(found, table.models[found])


def info_for(
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
    known = lookup(vendor, model)
    listed = known.window if known else None
    info = ModelInfo(f"{vendor}:{model}", price, window or listed)
    caps = [info.output_max, known and known.output_max, info.window and (info.window // 2 or 1)]
    info = replace(info, output_max=min(cap for cap in caps if cap))
    if price is not None:
        return info
    if vendor in LOCAL:
        return replace(info, price=FREE)
    if known is None or (tier is not None and tier not in _USUAL_TIERS):
        return info
    # A window that the caller made smaller does not keep a prompt below it.
    reach = max(window or 0, listed or 0) if listed else None
    return replace(info, price=known.dearest(reach))


def meant(vendor: str, model: str) -> str:
    """A sentence with the names that an unknown one may stand for, or nothing."""
    if lookup(vendor, model) is not None:
        return ""
    table, _ = _listed(_LISTED_AS.get(vendor, vendor))
    return did_you_mean(model, near(model, (*table.models, *table.aliases)))


def dated() -> str:
    """When the prices were taken, and from where."""
    file = _file()
    return f"{file.date}, {file.package}"


def _spellings(vendor: str, model: str) -> Iterator[str]:
    name = model.casefold()
    if vendor == "google":
        name = name.removeprefix("models/")
    yield name
    if mark := _SNAPSHOT.search(name):
        stem = name[: mark.start()]
        if mark[1]:
            # A snapshot may have a price of its own, under its other way to write a date.
            year, month, day = mark.groups()
            yield f"{stem}-{year}-{month}-{day}"
            yield f"{stem}-{year}{month}{day}"
        yield stem


def _known(name: str, row: _Row) -> Known:
    long = row.long
    return Known(
        name=name,
        price=Price(row.input, row.output, row.cache_read, row.cache_write),
        long=long and Price(long.input, long.output, long.cache_read, long.cache_write),
        long_above=long and long.above,
        window=row.window,
        output_max=row.output_max,
        deprecated=bool(row.deprecated),
    )


@cache
def _listed(vendor: str) -> tuple[_Table, dict[str, str]]:
    """The models of a vendor, and the listed name for each name in small letters."""
    raw = _file().vendors.get(vendor)
    if raw is None:
        return _Table({}, {}), {}
    table = msgspec.json.decode(raw, type=_Table)
    names = {alias.casefold(): name for alias, name in table.aliases.items()}
    return table, names | {name.casefold(): name for name in table.models}


@cache
def _file() -> _File:
    return msgspec.json.decode(_FILE.read_bytes(), type=_File)
