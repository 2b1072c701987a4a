"""The page about models says what the data says."""

import re
from pathlib import Path

from windlass.core.setup import DEFAULT_RETRIES
from windlass.models.local.model import WINDOW_MAX
from windlass.models.options import FEW_TOOLS, LONG_PROMPT_CHARS, MANY_TOOLS, SHORT_PROMPT_CHARS
from windlass.models.vendors import VendorConfig, load_vendors
from windlass.ports import Timeouts

PAGE = Path(__file__).resolve().parents[2] / "docs" / "models.md"
TABLE = re.compile(r"<!-- vendors: .*? -->\n(.*?)<!-- vendors end -->", re.DOTALL)


def page() -> str:
    return PAGE.read_text("utf-8")


def table() -> str:
    """The providers, as the page shows them."""
    head = "| provider | key | base URL | may be set by |\n|---|---|---|---|\n"
    return head + "".join(row(name, vendor) for name, vendor in load_vendors().items())


def row(name: str, vendor: VendorConfig) -> str:
    key = f"`{vendor.key_env}`" + (", if it asks for one" if vendor.keyless else "")
    if vendor.cloud:
        key += ", or [sign in](clouds.md)"
    places = {"aws": "by region", "google": "by project", "azure": "your resource's"}
    url = f"`{vendor.url}`" if vendor.url else places.get(vendor.cloud, "yours: `base_url=`")
    variable = f"`{vendor.url_env}`" if vendor.url_env else "—"
    return f"| `{name}` | {key} | {url} | {variable} |\n"


def test_the_table_of_providers_is_made_from_the_data() -> None:
    shown = TABLE.search(page())
    assert shown is not None
    assert shown[1] == table(), f"put this in its place:\n{table()}"


def test_the_numbers_on_the_page_are_the_defaults() -> None:
    """S3, S4, S14."""
    text = " ".join(page().split())
    times, retries = Timeouts(), DEFAULT_RETRIES
    assert (
        f"Timeouts(connect_s={times.connect_s:g}, first_byte_s={times.first_byte_s:g}, "
        f"idle_s={times.idle_s:g}, step_s={times.step_s})"
    ) in text
    assert f"up to {retries.attempts_max} requests, or {retries.establish_max} if none" in text
    assert f"later than {retries.budget_s:g} s after" in text
    assert f"1, 2, 4, … {retries.wait_max_s:g} s" in text
    assert f"more than {retries.retry_after_max_s:g} s" in text
    assert f"up to {SHORT_PROMPT_CHARS} characters and {FEW_TOOLS} tools" in text
    assert f"above {LONG_PROMPT_CHARS:,} characters or {MANY_TOOLS} tools" in text
    assert f"{WINDOW_MAX:,} at the most" in text
