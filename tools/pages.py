"""Hooks for MkDocs that adapt the pages to the site. `mkdocs.yml` names this file.

The law: a page reads the same in the repository and on the site. A link to a file outside `docs/`
leads to the page made from that file, or is shown as the file's name. The file must exist.
"""
# ruff: noqa: INP001 - a script, not a package

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import log

ROOT = Path(__file__).resolve().parent.parent
EXTRA_PAGES = {"ARCHITECTURE.md": "architecture.md", "CHANGELOG.md": "changelog.md"}
"""Files of the repository that are pages of the site as well."""

_FENCE = re.compile(r"^(?P<fence> *```\w+)[ \t]+no-run\b[^\n]*$", re.MULTILINE)
_OUTSIDE = re.compile(r"\[(?P<text>[^]]*)\]\(\.\./(?P<path>[^)#]+)(?P<anchor>#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from files outside `docs/`."""
    for name, page in EXTRA_PAGES.items():
        text = (ROOT / name).read_text("utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links that leave `docs/`, and drop the options behind a code block's language.

    Markdown on the site would show those options as text.
    """
    del config, files

    def rewrite_link(link: re.Match[str]) -> str:
        path = link["path"].rstrip("/")
        if path in EXTRA_PAGES:
            return f"[{link['text']}]({EXTRA_PAGES[path]}{link['anchor'] or ''})"
        if not (ROOT / path).exists():
            log.warning("%s links to %s, which does not exist", page.file.src_uri, path)
        if path in link["text"]:
            return f"`{path}`"
        return f"{link['text']} (`{path}`)"

    return _OUTSIDE.sub(rewrite_link, _FENCE.sub(r"\g<fence>", markdown))
