"""`windlass trust`, and the question that a project's settings raise before they take effect."""

import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from windlass.cli.screen import BAD, GOOD, QUIET, TROUBLE, Screen
from windlass.cli.terminal import has_keyboard, read_stdin_line
from windlass.core.errors import ConfigError, FolderNotTrusted, NothingToDo
from windlass.core.text_clip import reveal_line
from windlass.project.effects import describe_effects
from windlass.project.snapshot import ProjectSnapshot
from windlass.project.trust import (
    ProjectFolder,
    TrustEntry,
    TrustStore,
    describe_changes,
    list_files,
    open_project,
)

LOUD_WORDS = ("refused: ", "gives ", "allows ", "connects ", "sends ", "runs ")
"""How lines begin that a person should read. They are shown last, beside the question, so that
thousands of harmless lines cannot push them off the screen."""
SUMMARY_LINES_MIN = 12
"""From this number of lines on, the question gives the count of each kind."""
QUESTION = "t trust it, and remember   w work without its settings   q quit: "

trust_option = click.option(
    "--trust/--no-trust",
    "trust",
    default=None,
    help="Use the project's settings in this run without asking; or run without them.",
)


@click.command(
    epilog="""\b
Examples:
  windlass trust                   show what this project would do, and ask
  windlass trust --yes             the same without a question, for scripts
  windlass trust --list
  windlass trust --remove ~/old"""
)
@click.argument("folder", required=False)
@click.option("--list", "listed", is_flag=True, help="List trusted folders.")
@click.option("--remove", is_flag=True, help="No longer trust the folder.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def trust(folder: str | None, listed: bool, remove: bool, yes: bool) -> None:
    """Trust the settings of a project: this folder, or FOLDER.

    A project's settings (windlass.toml, .env, .mcp.json, policies, AGENTS.md, skills) have no
    effect before you trust them. What was trusted is remembered with a digest of these files, and
    asked about again when one of them changes.
    """
    store = TrustStore()
    place = Path(folder or ".").expanduser().resolve()
    if listed:
        _show_list(store)
    elif remove:
        if not store.forget(place):
            raise NothingToDo(f"{place} is not trusted. To list the folders: windlass trust --list")
        click.echo(f"{place} is no longer trusted")
    else:
        _trust_folder(store, place, yes=yes)


def _show_list(store: TrustStore) -> None:
    screen = Screen()
    entries = store.read_entries()
    for path, entry in sorted(entries.items()):
        is_same = Path(path).is_dir() and open_project(Path(path), store=store).is_trusted
        note = "" if is_same else "; it has changed since, and has no effect"
        screen.write_line(
            f"{path}  (since {_format_time(entry)}{note})",
            mark=screen.glyphs.yes if is_same else screen.glyphs.no,
            mark_style=GOOD if is_same else BAD,
        )
    if not entries:
        screen.write_line("No folder is trusted.", QUIET)


def _trust_folder(store: TrustStore, place: Path, *, yes: bool) -> None:
    if not place.is_dir():
        raise ConfigError(f"{place} is not a folder")
    project = open_project(place, store=store)
    snapshot = project.snapshot
    if snapshot.is_empty:
        raise NothingToDo(f"{place} has no settings: there is nothing to trust")
    screen = Screen()
    show_project(screen, snapshot, store.find_entry(place))
    project.refuse_problems()
    if not yes:
        if not has_keyboard():
            raise FolderNotTrusted("there is no terminal to ask at: add --yes to trust this folder")
        click.confirm("Trust it?", abort=True, err=True)
    store.remember(snapshot)
    screen.write_line(f"{place} is trusted", GOOD, mark=screen.glyphs.yes)


def open_trusted(folder: Path | None = None, trust: bool | None = None) -> ProjectFolder:
    """The project around a folder, after a person was asked whether to trust it if need be.

    `trust`: the flag `--trust` or `--no-trust`. Raises FolderNotTrusted if the project is not
    trusted and there is no person to ask, or if the person declines.
    """
    project = open_project(folder)
    if trust is False:
        return project.without_trust()
    project.refuse_problems()
    if project.is_trusted:
        return project
    if trust:
        return project.as_trusted()
    if not has_keyboard():
        return project.require_trust()
    return _ask_trust(project)


def _ask_trust(project: ProjectFolder) -> ProjectFolder:
    store = TrustStore()
    snapshot = project.snapshot
    screen = Screen(sys.stderr if sys.stderr.isatty() else sys.stdout)
    show_project(screen, snapshot, store.find_entry(snapshot.folder))
    while True:
        screen.write_verbatim(QUESTION, TROUBLE)
        answer = read_stdin_line()
        screen.forget_line()
        match (answer or "").lower():
            case "t" | "trust":
                store.remember(snapshot)
                return project.as_trusted(was_shown=True)
            case "w":
                return project.without_trust()
            case "" | "q" | "quit":
                raise FolderNotTrusted(f"the project {snapshot.root} was not trusted")
            case _:
                pass


def show_project(screen: Screen, snapshot: ProjectSnapshot, entry: TrustEntry | None) -> None:
    """Show which project it is, what it would do, and what changed since it was trusted."""
    root = reveal_line(str(snapshot.root))
    folder = reveal_line(str(snapshot.folder))
    where = "" if root == folder else f" (for the folder {folder})"
    state = "has changed since you trusted it" if entry else "is not trusted yet"
    screen.write_line(f"The project {root}{where} {state}.", TROUBLE)
    if entry is not None:
        show_lines(screen, describe_changes(snapshot, entry), BAD)
    files = ", ".join(list_files(snapshot, snapshot.digests))
    screen.write_line(f"Its files: {files or 'none that can be read'}", QUIET)
    screen.write_line("It:")
    known = entry.effects if entry else ()
    effects = sorted(describe_effects(snapshot), key=_find_loudness)
    for line in effects:
        is_new = entry is not None and line not in known
        style = TROUBLE if line.startswith(LOUD_WORDS) or is_new else ""
        screen.write_line(f"{line}{'  (new)' if is_new else ''}", style, indent=2)
    show_lines(screen, [f"no longer {line}" for line in known if line not in effects], QUIET)
    if len(effects) >= SUMMARY_LINES_MIN:
        screen.write_line(_summarize(effects), TROUBLE)


def _find_loudness(line: str) -> int:
    """The place of a line's first word among the loud ones; -1 for a quiet line."""
    return next((at for at, word in enumerate(LOUD_WORDS) if line.startswith(word)), -1)


def _summarize(effects: Sequence[str]) -> str:
    """How many lines there are of each loud kind."""
    counts = [
        f"{word.strip(': ')} {count}"
        for word in reversed(LOUD_WORDS)
        if (count := sum(line.startswith(word) for line in effects))
    ]
    return f"In all {len(effects)} lines, of which: {', '.join(counts) or 'none runs or sends'}."


def show_lines(screen: Screen, lines: Iterable[str], style: str) -> None:
    for line in lines:
        screen.write_line(line, style, indent=2)


def describe_trust(project: ProjectFolder) -> tuple[bool, str]:
    """Whether all is well with a folder's trust, and a line about it."""
    snapshot = project.snapshot
    if snapshot.is_empty:
        return True, "this folder has no settings: there is nothing to trust"
    files = ", ".join(list_files(snapshot, snapshot.digests))
    if not project.is_trusted:
        return False, (
            f"{snapshot.root} is not trusted, and {files or 'its files'} can only make things "
            "stricter. To trust it: windlass trust"
        )
    entry = TrustStore().find_entry(snapshot.folder)
    since = f" since {_format_time(entry)}" if entry else " with a folder above it"
    return True, f"{snapshot.root} is trusted{since}: {files}"


def _format_time(entry: TrustEntry) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.at))
