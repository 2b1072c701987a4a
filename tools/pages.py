"""Hooks for MkDocs that adapt the pages to the site. `mkdocs.yml` names this file.

The law: a page reads the same in the repository and on the site. A link to a file outside `docs/`
leads to the page made from that file, or is shown as the file's name. The file must exist.
The pages of the reference are made from the code when the site is built (`tools/reference/`).
"""

import ast
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import log

from reference.names import PUBLIC_PAGES, PublicPage
from reference.pages import api_pages, plain_pages

ROOT = Path(__file__).resolve().parent.parent
EXTRA_PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security_policy.md",
}
"""Files of the repository that are pages of the site as well."""
EXAMPLES = """\
# Examples

Short programs of the kind that people build. Each runs as it is, without a key: a script answers
in the place of the model. With `--model openai:gpt-5`, or any other name, a real one does.

```console
$ python examples/first_agent.py
$ python examples/first_agent.py --model ollama:qwen3
```
"""
SHIM = "assets/iframe-worker.js"

_FENCE = re.compile(r"^(?P<fence> *```\w+)[ \t]+no-run\b[^\n]*$", re.MULTILINE)
_LINK = re.compile(r"\[(?P<text>[^]]*)\]\((?P<path>(?:\.\./)+[^)#]+)(?P<anchor>#[^)]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Give the offline search our own shim, and the public modules their places in the menu.

    Without the shim, the plugin would name one from another host.
    """
    config.extra["polyfills"] = [SHIM]
    for section in config.nav or ():
        for entry in section.get("Reference", ()):
            if isinstance(entry, dict) and "Python" in entry:
                entry["Python"] = ["reference/api.md", *map(_nav_entry, PUBLIC_PAGES.values())]
    return config


def _nav_entry(page: PublicPage) -> dict[str, str]:
    return {page.title: f"reference/{page.file}.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from files outside `docs/`, and from the code."""
    pages = {page: (ROOT / name).read_text("utf-8") for name, page in EXTRA_PAGES.items()}
    pages |= plain_pages()
    pages["examples.md"] = _show_examples()
    pages |= api_pages(with_names=config.plugins["mkdocstrings"].config.enabled)
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))
    return files


def _show_examples() -> str:
    """Return a page with every example, under the question that it answers."""
    parts = [EXAMPLES]
    for path in sorted((ROOT / "examples").glob("*.py")):
        code = path.read_text("utf-8")
        tree = ast.parse(code)
        question = (ast.get_docstring(tree) or "").partition("\n")[0]
        title = path.stem.replace("_", " ").capitalize()
        parts.append(
            f'## {title}\n\n{question}\n\n```python title="examples/{path.name}"\n{code}```\n'
        )
    return "\n".join(parts)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links that leave `docs/`, and drop the options behind a code block's language.

    Markdown on the site would show those options as text.
    """
    del config, files
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))
    # The extra pages stand at the top of the repository, and at the top of the site.
    if page.file.src_uri in EXTRA_PAGES.values():
        markdown = re.sub(r"\]\((?:docs/)?", "](", markdown)
        for name, target in EXTRA_PAGES.items():
            markdown = markdown.replace(f"]({name}", f"]({target}")
        folder = ""

    def rewrite_link(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link["path"]))
        if path.startswith("docs/"):
            return link[0]
        if path in EXTRA_PAGES:
            target = posixpath.relpath(EXTRA_PAGES[path], posixpath.dirname(page.file.src_uri))
            return f"[{link['text']}]({target}{link['anchor'] or ''})"
        if not (ROOT / path).exists():
            log.warning("%s links to %s, which does not exist", page.file.src_uri, path)
        if path in link["text"]:
            return f"`{path}`"
        return f"{link['text']} (`{path}`)"

    return _LINK.sub(rewrite_link, _FENCE.sub(r"\g<fence>", markdown))
