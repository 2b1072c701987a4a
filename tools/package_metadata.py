"""Metadata of the package that is made when it is built: its README and its addresses.

A package index shows the README without the repository around it, so a relative link leads nowhere
there. With `source-url` in `pyproject.toml`, links and pictures get whole addresses; without it,
links are shown as their text and pictures are left out.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^]]*)\]\((?!https?:|#)(?P<path>[^)]+)\)")


def describe_package(readme: str, source_url: str) -> str:
    """Return the README as a package index can show it."""

    def rewrite_link(link: re.Match[str]) -> str:
        if not source_url:
            return "" if link["picture"] else link["text"]
        kind = "raw" if link["picture"] else "blob"
        return f"{link['picture']}[{link['text']}]({source_url}/{kind}/main/{link['path']})"

    return _LINK.sub(rewrite_link, readme)


class PackageMetadata(MetadataHookInterface):
    """What hatchling calls when it builds the package."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README, and the addresses of the project if it has one."""
        url = self.config.get("source-url", "").rstrip("/")
        text = (Path(self.root) / "README.md").read_text("utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": describe_package(text, url),
        }
        if url:
            metadata["urls"] = {
                "Source": url,
                "Documentation": f"{url}/blob/main/docs/index.md",
                "Changelog": f"{url}/blob/main/CHANGELOG.md",
                "Issues": f"{url}/issues",
            }
