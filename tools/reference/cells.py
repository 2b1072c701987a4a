"""Text in the cells of tables, as Markdown."""

import re


def inline_code(text: str) -> str:
    # A pipe would end the cell of a table.
    return f"<code>{escape_html(text)}</code>" if text else ""


def table_cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;")


def escape_html(text: str) -> str:
    for raw, written in (
        ("&", "&amp;"),
        ("<", "&lt;"),
        (">", "&gt;"),
        ("|", "&#124;"),
        ("[", "&#91;"),
    ):
        text = text.replace(raw, written)
    return text
