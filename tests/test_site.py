"""The site: it builds, nothing in it is broken, and nothing is fetched from anywhere else."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from playwright.sync_api import sync_playwright

from page_browser import FLAGS, find_browser
from reference.names import PUBLIC_PAGES
from windlass.cli import main as windlass

# The site is built by the first test that needs it, which takes long on a busy machine.
pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).resolve().parent.parent
FETCHED = re.compile(r"""(?:src=|<link[^>]*href=|url\()["']?(?:https?:)?//""")
SHOWN = re.compile(r"^\$ (?:[^`\n]*\| )?(windlass .*)$|`(windlass [a-z][^`\n]+)`", re.MULTILINE)
BLOCKS = re.compile(r"```python[^\n]*\n(.*?)```", re.DOTALL)


def build(root: Path, site: Path, *, with_names: bool) -> subprocess.CompletedProcess[str]:
    """Build the site. Without the names of the API reference, it takes a fraction of the time."""
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(site)]
    env = {**os.environ, "WINDLASS_DOCS_API": str(with_names).lower()}
    return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` makes it."""
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder, with_names=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The docs, to be broken."""
    root = tmp_path / "copy"
    for name in ("docs", "tools"):
        shutil.copytree(ROOT / name, root / name)
    (root / "src").symlink_to(ROOT / "src")
    for name in ("mkdocs.yml", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"):
        shutil.copy(ROOT / name, root / name)
    return root


def pages(site: Path) -> Iterator[tuple[str, str]]:
    for page in sorted(site.rglob("*.html")):
        yield page.relative_to(site).as_posix(), page.read_text("utf-8")


@pytest.mark.slow
def test_each_page_is_there_and_can_be_found(site: Path) -> None:
    home = (site / "index.html").read_text("utf-8")
    docs = ROOT / "docs"
    names = {page.relative_to(docs).with_suffix("").as_posix() for page in docs.rglob("*.md")}
    names |= {"architecture", "changelog", "reference/events", "reference/testing"}
    assert {name for name in names if not (site / f"{name}.html").is_file()} == set()
    assert {name for name in names if f'href="{name}.html"' not in home} - {"index"} == set()


@pytest.mark.slow
def test_each_public_name_is_on_its_page(site: Path) -> None:
    """U4: rendered, with its anchor, from its docstring."""
    lost = [
        f"{page.module}.{name}"
        for page in PUBLIC_PAGES.values()
        for text in [(site / "reference" / f"{page.file}.html").read_text("utf-8")]
        for name in page.names()
        if f'id="{page.module}.{name}"' not in text
    ]
    assert lost == []
    agent = (site / "reference" / "agents.html").read_text("utf-8")
    assert "A model with instructions, tools, a gate, limits and a journal." in agent


@pytest.mark.slow
def test_a_page_fetches_nothing_from_elsewhere(site: Path) -> None:
    assert [name for name, text in pages(site) if FETCHED.search(text)] == []
    styles = [path for path in site.rglob("*.css") if FETCHED.search(path.read_text("utf-8"))]
    assert styles == []


@pytest.mark.slow
def test_code_is_shown_as_code(site: Path) -> None:
    """A fence with words after its language is one all the same."""
    assert [name for name, text in pages(site) if "```" in text or "no-run" in text] == []


MISSING = [
    ("tools.md", "[gone](nowhere.md)", "nowhere.md"),
    ("tools.md", "[gone](models.md#nothing-of-the-kind)", "nothing-of-the-kind"),
    ("tools.md", "[gone](../src/nowhere.py)", "src/nowhere.py"),
    ("tutorials/approvals.md", "[gone](../../src/nobody.py)", "src/nobody.py"),
    ("tools.md", "![gone](img/nowhere.svg)", "img/nowhere.svg"),
    ("lost.md", "# A page that no other one leads to", "lost.md"),
]


@pytest.mark.slow
def test_what_is_missing_fails_the_build(copy: Path) -> None:
    """A page, a place in it, a file of the repository, a picture, and a page to find."""
    for page, text, _ in MISSING:
        with (copy / "docs" / page).open("a", encoding="utf-8") as file:
            file.write(f"\n{text}\n")
    broken = build(copy, copy / "site", with_names=False)
    assert broken.returncode != 0
    assert [name for _, _, name in MISSING if name not in broken.stderr] == []


@pytest.mark.slow
def test_the_site_works_from_the_disk_on_a_desk_and_on_a_phone(site: Path) -> None:
    """Search, dark mode and copy buttons in a real browser, with nothing fetched from elsewhere."""
    fetched: list[str] = []
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=find_browser(), args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme="dark")
        page.on("request", lambda request: fetched.append(request.url))
        page.goto((site / "tools.html").as_uri())
        assert page.locator("body").get_attribute("data-md-color-scheme") == "slate"
        assert page.locator("button[data-md-type=copy]").count() > 0
        page.locator("input.md-search__input").click()
        page.keyboard.type("reconcile")
        page.locator(".md-search-result__link", has_text="reconcile").first.wait_for()
        page.set_viewport_size({"width": 390, "height": 844})
        for name in ("index", "peers", "reference/events", "reference/http"):
            page.goto((site / f"{name}.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") == 390, name
        browser.close()
    assert [url for url in fetched if not url.startswith(("file:", "data:"))] == []


@pytest.mark.slow
def test_the_command_line_reference_is_current() -> None:
    command = [sys.executable, ROOT / "tools" / "cli_reference.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def shown() -> Iterator[tuple[str, str]]:
    """The commands that the pages show, with their page."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        if page.name != "cli_reference.md":
            for line, inline in SHOWN.findall(page.read_text("utf-8")):
                yield page.name, line or inline


def understood(command: click.Command, words: list[str], parent: click.Context | None) -> None:
    """Raise UsageError if a command, or a flag of one, is none."""
    # With its own settings: click keeps the help flags that a command was first asked for.
    context = click.Context(
        command, info_name=command.name, parent=parent, **command.context_settings
    )
    _, rest, _ = command.make_parser(context).parse_args(list(words))
    if isinstance(command, click.Group) and rest:
        _, found, left = command.resolve_command(context, list(rest))
        assert found is not None
        understood(found, left, context)


@pytest.mark.parametrize(("page", "line"), sorted(set(shown())))
def test_a_command_that_is_shown_is_one(page: str, line: str) -> None:
    words = shlex.split(line.replace("…", ""), comments=True)[1:]
    if not words:  # `windlass` alone is a chat.
        return
    name, *rest = words
    # `windlass mcp add|list` is two commands.
    ways = [[name, way, *rest[1:]] for way in rest[0].split("|")] if rest else [[name]]
    for way in ways:
        understood(windlass, way, None)


@pytest.mark.parametrize("line", ["sesions list", "sessions --json", "run --max-usd", "mcp lists"])
def test_a_command_that_is_none_is_noticed(line: str) -> None:
    with pytest.raises(click.UsageError):
        understood(windlass, line.split(), None)


@pytest.mark.parametrize(("said", "listed"), [("y\n", "tea"), ("n\n", "")])
@pytest.mark.slow
def test_the_first_agent_asks_before_it_changes_anything(
    tmp_path: Path, said: str, listed: str
) -> None:
    """G5, G6: the last program of the page, put together as the page says."""
    first, _, asking = BLOCKS.findall((ROOT / "docs" / "first.md").read_text("utf-8"))
    program = tmp_path / "clerk.py"
    program.write_text(f"{first.partition('model = ')[0]}\n{asking}", "utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", program],
        cwd=tmp_path,
        input=said,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        # The program keeps its journal in the home folder.
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (
        0,
        ["add {'item': 'tea'}: may it? [y/n] Done."],
    ), done.stderr
    kept = tmp_path / "list.txt"
    assert (kept.read_text("utf-8").strip() if kept.exists() else "") == listed
