"""A shell command, split into the parts that rules decide about. `rules.py` decides.

Invariant: each command that would run is a part, and so is each redirection to or from a file
(`> build/log`, `< notes`) and each assignment (`FOO=1`). All parts must be allowed, and any part
can be denied. If a command runs another one, the other one counts, too:
- `nice`, `nohup`, `timeout` and `command` are removed, and what they run is a part.
- For `sudo`, `xargs`, `sh -c` and the like, and for words such as `find -exec`, a star in a rule
  does not match the words behind them, and everything that might be run is an aside. Which words of
  `programs.py` lists them.
- After `cd FOLDER`, a program that obeys what it finds in its folder, as git does, is the part
  `git -C FOLDER …`, which a rule must allow as such.

An aside can be denied or asked about, but no rule has to allow it.
"""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass

from windlass.core.errors import ConfigError
from windlass.gates.globs import HOLE, QUOTED_SPACE, STAR_BARRIER, printable_text
from windlass.gates.paths import simplify_path
from windlass.gates.programs import FOLDER_READERS, find_hazards, takes_script
from windlass.gates.shell_reader import (
    OPENING_WORDS,
    FileRedirection,
    ShellItem,
    ShellWord,
    UnreadableCommand,
    read_shell_command,
)

WORDS_MAX = 40
"""Words of a command that runs another one: any of them may be the first of the other command."""
WORDS_CHARS_MAX = 2_000
PARTS_MAX = 500

TRANSPARENT_WRAPPERS = {
    "command": re.compile(r""),
    "nice": re.compile(r"(-n [0-9+-]+ )?"),
    "nohup": re.compile(r""),
    "timeout": re.compile(r"[0-9]+(\.[0-9]+)?[smhd]? "),
}
"""Commands that only run another one, and the words that may precede that one."""
RUNNERS = frozenset(
    """
    ash bash builtin busybox bwrap chpst chroot chrt command cpulimit csh dash dbus-run-session doas
    entr env exec fakeroot faketime firejail fish flock gosu ionice ksh linux32 linux64 ltrace nice
    nohup nsenter numactl parallel perf pkexec prlimit proot proxychains rlwrap runuser screen
    script setarch setpriv setsid sg sh ssh sshpass start-stop-daemon stdbuf strace su sudo
    systemd-inhibit systemd-run taskset tcsh time timeout tmux torsocks toybox unbuffer unshare
    valgrind watch xargs xvfb-run zsh
    """.split()  # noqa: SIM905 - a list of words
)
"""Commands that run another one, which they get as words or as text."""
TEXT_RUNNERS = frozenset(["parallel", "screen", "script", "ssh", "su", "tmux", "watch"])
"""Runners that join several words into one command, so any word may be part of it."""
WORD_ADDING_RUNNERS = frozenset(["parallel", "xargs"])
"""Runners that append words which are not in the command line."""
SHELLS = frozenset(["ash", "bash", "csh", "dash", "fish", "ksh", "sh", "tcsh", "zsh"])
EVALUATORS = frozenset([".", "alias", "enable", "eval", "fc", "hash", "source", "trap"])
"""Builtins that run text as commands."""
SETTERS = frozenset(["declare", "export", "local", "readonly", "typeset"])
ASSIGNING_BUILTINS = SETTERS | {"alias", "eval", "let"}
"""Builtins whose words bash reads as assignments."""
ARITHMETIC_BUILTINS = SETTERS | frozenset(
    ["[", "getopts", "let", "mapfile", "printf", "read", "readarray", "test", "unset", "wait"]
)
"""Builtins that may run a command in the index of an array, even if it is quoted."""
FOLDER_CHANGERS = frozenset(["cd", "chdir", "popd", "pushd"])

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_ODD_NAME = re.compile(rf"^-|[{QUOTED_SPACE}\n]")
_ARRAY_ITEM = re.compile(rf"[A-Za-z_][A-Za-z0-9_]*{HOLE}")
"""May be an item of an array: its index may hold spaces, and bash evaluates it."""
_RUNS_TEXT = re.compile(r"-[abefhiklmnpqrtuvx]*c")
_SCRIPT_CHARS = re.compile(rf"[\s;&|<>()$`'\"\\#{QUOTED_SPACE}]")
_PATTERN_SPLITS = re.compile(r"[;|&\n`'\"\\]|\$\(|\$\{|(?<!^)[<>]")


@dataclass(frozen=True, slots=True)
class CommandPart:
    """A part of a command line that rules decide about on its own."""

    spellings: tuple[str, ...]
    """All must match for certain for a YES; one that might match is enough for a MAYBE."""
    is_aside: bool = False
    doubt: str = ""
    """Why it could not be read with certainty; empty if it could."""

    @property
    def display_text(self) -> str:
        """The part in one printable line."""
        return printable_text(self.spellings[0])


def split_command(command: str, root: str | None = None) -> tuple[CommandPart, ...]:
    """All parts of a command line; a single hole, which might be anything, if it is unreadable.

    `root`: the folder that the command runs in. Going to it is not a change of folder.
    """
    try:
        items = read_shell_command(command)
        parts = tuple(_split_items(items, 0, folder=_find_folder(items, root)))
    except UnreadableCommand as error:
        return (CommandPart((HOLE,), doubt=str(error)),)
    if len(parts) > PARTS_MAX:
        return (CommandPart((HOLE,), doubt="it has too many parts"),)
    return parts or (CommandPart(("",)),)


def check_command_pattern(pattern: str) -> None:
    """Raise ConfigError for a pattern that no part of a command can match as intended."""
    if _PATTERN_SPLITS.search(pattern):
        raise ConfigError(
            "a pattern is about one command, without quotes: each part of a command line is "
            "judged on its own, so write a rule for each"
        )
    first = pattern.partition(" ")[0]
    if first in OPENING_WORDS:
        raise ConfigError(f"{first!r} is removed before rules are matched: write what follows it")


def _find_folder(items: list[ShellItem], root: str | None) -> str:
    """The folder that a command line goes to; empty if it stays where it is.

    It counts for all of its commands, because a loop may run an earlier one again.
    """
    folder = ""
    for item in items:
        if isinstance(item, FileRedirection):
            continue
        texts = [word.text for word in item.words if not _ASSIGNMENT.match(word.text)]
        if texts[:1] == ["command"]:
            texts = texts[1:]
        if not texts or texts[0] not in FOLDER_CHANGERS:
            continue
        named = [text for text in texts[1:] if not text.startswith(("-", "+"))]
        folder = posixpath.join(folder, named[0] if len(named) == 1 else HOLE)
    if not folder or HOLE in folder or folder.startswith("~"):
        return HOLE if folder else ""
    if root is not None and folder.startswith("/"):
        folder = posixpath.relpath(folder, root)
    folder = simplify_path(folder)
    return "" if folder in {".", "./"} else folder


def _split_items(
    items: list[ShellItem], depth: int, *, aside: bool = False, folder: str = ""
) -> Iterator[CommandPart]:
    for item in items:
        if isinstance(item, FileRedirection):
            sign = ">" if item.writes else "<"
            yield CommandPart((f"{sign} {simplify_path(item.target)}",), aside)
        else:
            yield from _split_simple_command(item.words, depth, aside=aside, folder=folder)


def _split_simple_command(
    words: tuple[ShellWord, ...], depth: int, *, aside: bool, folder: str
) -> Iterator[CommandPart]:
    while words and (assigned := _ASSIGNMENT.match(words[0].text)):
        if words[0].unquoted_chars < assigned.end():
            break  # A quoted `A=1` is the name of a command.
        yield CommandPart((words[0].text,), aside)
        words = words[1:]
    if words:
        yield from _split_named_command(words, depth, aside=aside, folder=folder)


def _split_named_command(
    words: tuple[ShellWord, ...], depth: int, *, aside: bool, folder: str
) -> Iterator[CommandPart]:
    """The parts of a command without assignments before it."""
    texts = [word.text for word in words]
    if not texts[0] or _ODD_NAME.search(texts[0]):
        texts[0] = HOLE
    if HOLE in texts[0]:
        yield CommandPart((HOLE,), is_aside=True, doubt="it is not known which command runs")
    name = texts[0].rpartition("/")[2].casefold()
    if "/" in texts[0]:
        # A rule that denies `rm` must also see `/bin/rm`.
        yield CommandPart((" ".join([name, *texts[1:]]),), is_aside=True)
    inner = _count_wrapped_words(texts)
    if inner:
        yield CommandPart((" ".join(texts),), is_aside=True)
        rest = words[len(words) - inner :]
        yield from _split_simple_command(rest, depth, aside=aside, folder=folder)
        return
    loose = [word.has_expansion and "/" in word.text for word in words]
    spellings = _path_spellings(_add_star_barriers(name, texts), loose)
    if folder and name in FOLDER_READERS:
        there = f"{texts[0]} {STAR_BARRIER}-C {STAR_BARRIER}{folder}"
        yield CommandPart(spellings, is_aside=True)
        spellings = tuple(there + text.removeprefix(texts[0]) for text in spellings)
    yield CommandPart(spellings, aside)
    if name in SETTERS:
        yield from (CommandPart((text,), is_aside=True) for text in texts[1:] if "=" in text)
    if _may_evaluate(name, texts) or (
        name in ARITHMETIC_BUILTINS and any(word.has_code for word in words)
    ):
        yield CommandPart((HOLE,), is_aside=True, doubt=f"{name} may evaluate its words")
    hazards = find_hazards(name, texts[1:])
    if name in RUNNERS or name in EVALUATORS or "runs" in hazards:
        yield from _find_asides(name, texts, depth)
    if "runs" in hazards and takes_script(name):
        yield CommandPart((HOLE,), is_aside=True, doubt=f"{name} may run what its script says")


def _may_evaluate(name: str, texts: list[str]) -> bool:
    """Whether a builtin may run a command in the index of an array that it assigns to."""
    if name not in ASSIGNING_BUILTINS:
        return False
    return any(_ARRAY_ITEM.match(text) or (name == "let" and HOLE in text) for text in texts[1:])


def _count_wrapped_words(texts: list[str]) -> int:
    """How many words remain without a wrapper that only runs them; 0 if there is no wrapper."""
    wrapper = TRANSPARENT_WRAPPERS.get(texts[0])
    if wrapper is None:
        return 0
    before = wrapper.match(" ".join(texts[1:]))
    if before is None:
        return 0
    left = texts[1 + before[0].count(" ") :]
    if not left or left[0].startswith("-"):
        return 0  # An option of the wrapper that is not known here.
    return len(left)


def _add_star_barriers(name: str, texts: list[str]) -> list[str]:
    """The words, with a barrier before each word that a star of a pattern must not match."""
    head, *rest = texts
    if name in WORD_ADDING_RUNNERS:
        rest.append(HOLE)
    if name in EVALUATORS or (name in ARITHMETIC_BUILTINS and _may_calculate(name, rest)):
        return [head, *(STAR_BARRIER + text for text in rest)]
    if name in RUNNERS and rest:
        if name not in TEXT_RUNNERS and _is_plain_command(rest[0]):
            # This word is the other command; its own arguments may match a star.
            return [head, STAR_BARRIER + rest[0], *rest[1:]]
        return [head, *(STAR_BARRIER + text for text in rest)]
    hazards = find_hazards(name, rest)
    barred = [
        STAR_BARRIER + text if hazard else text for text, hazard in zip(rest, hazards, strict=True)
    ]
    return [head, *barred]


def _is_plain_command(text: str) -> bool:
    """Whether a word can only be the name of a command: not an option, not an assignment."""
    return not text.startswith("-") and not re.search(f"[={HOLE}{QUOTED_SPACE}\n]", text)


def _may_calculate(name: str, rest: list[str]) -> bool:
    """Whether a builtin may evaluate one of its words as arithmetic. `printf` only does with -v."""
    if name == "printf" and not (rest and rest[0].startswith(("-v", HOLE))):
        return False
    return any(HOLE in text or "$" in text or "`" in text for text in rest)


def _path_spellings(texts: list[str], loose: list[bool]) -> tuple[str, ...]:
    """The words as they are, and with `..` resolved in words that may be paths."""
    straight: list[str] = []
    for text, is_loose in zip(texts, [*loose, False], strict=False):
        if is_loose:
            straight.append(HOLE)
        elif re.search(r"/\.\.(/|$)", text):
            straight.append(simplify_path(text))
        else:
            straight.append(text)
    return tuple(dict.fromkeys((" ".join(texts), " ".join(straight))))


def _find_asides(name: str, texts: list[str], depth: int) -> Iterator[CommandPart]:
    """All that this command might run: any word may start another command, or be a script."""
    if depth or len(texts) > WORDS_MAX or sum(map(len, texts)) > WORDS_CHARS_MAX:
        yield CommandPart((HOLE,), is_aside=True, doubt=f"{name} may run anything")
        return
    more = [HOLE] if name in WORD_ADDING_RUNNERS else []
    for at in range(len(texts)):
        first = texts[at].rpartition("/")[2]
        if _is_shell_reading_input(first.casefold(), texts[at + 1 :]):
            yield CommandPart((HOLE,), is_aside=True, doubt=f"{first} runs what it reads")
        for start in _command_starts(texts[at]) if at else ():
            rest = texts[at + 1 :]
            head = HOLE if HOLE in start else start.rpartition("/")[2]
            yield CommandPart((" ".join([head, *rest, *more]),), is_aside=True)
            if any(_SCRIPT_CHARS.search(text) for text in (start, *rest)):
                script = " ".join([start, *rest]).replace(QUOTED_SPACE, " ")
                yield from _split_script(script.replace(HOLE, "${_}"), depth)


def _command_starts(text: str) -> Iterator[str]:
    """The texts in a word that may start a command: `-Srm` and `--split-string=rm` hold `rm`."""
    yield text
    if text.startswith("--"):
        yield text.partition("=")[2]
    elif text.startswith("-"):
        yield HOLE if HOLE in text or text[2:3] == "-" else text[2:]


def _is_shell_reading_input(name: str, rest: list[str]) -> bool:
    """Whether a shell reads its commands from standard input, not from its words or a file."""
    if name in SHELLS and not any(_RUNS_TEXT.fullmatch(text) for text in rest):
        return not rest or rest[0].startswith(("-", "+", "/dev/"))
    return name in {".", "source"} and any(text.startswith("/dev/") for text in rest)


def _split_script(script: str, depth: int) -> Iterator[CommandPart]:
    try:
        yield from _split_items(read_shell_command(script, depth + 1), depth + 1, aside=True)
    except UnreadableCommand as error:
        yield CommandPart((HOLE,), is_aside=True, doubt=str(error))
