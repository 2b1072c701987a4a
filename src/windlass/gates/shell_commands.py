"""A shell command, split into the parts that rules decide about. `rules.py` decides.

The law: each command that would run is a part, and so is each redirection to or from a file
(`> build/log`, `< notes`) and each assignment (`FOO=1`). All parts must be allowed, and any part
can be denied. If a command runs another one, the other one counts, too:
- `nice`, `nohup`, `timeout` and `command` are removed, and what they run is a part.
- For `sudo`, `xargs`, `sh -c` and the like, and for options such as `find -exec`, a star in a rule
  does not match the words behind them, and everything that might be run is an aside.

An aside can be denied or asked about, but no rule has to allow it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from windlass.core.errors import ConfigError
from windlass.gates.globs import HOLE, QUOTED_SPACE, STAR_BARRIER, printable_text
from windlass.gates.paths import simplify_path
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
"""Commands that only run another one, and the words that may stand before that one."""
RUNNERS = frozenset(
    """
    ash bash builtin busybox bwrap chroot chrt command csh dash doas env exec firejail fish flock
    gosu ionice ksh ltrace nice nohup nsenter numactl parallel pkexec prlimit proxychains runuser
    screen script setpriv setsid sg sh ssh stdbuf strace su sudo systemd-run taskset tcsh time
    timeout tmux toybox unbuffer unshare watch xargs zsh
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
DANGEROUS_OPTIONS: dict[str, str] = {
    "compgen": "-C -F -W",
    "fd": "-x -X --exec --exec-batch",
    "find": "-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls",
    "git": "-c -O --config-env --exec --exec-path --ext-diff --output --open-files-in-pager "
    "--receive-pack --upload-pack",
    "go": "-exec -toolexec -vettool",
    "man": "-H -P --html --pager",
    "mapfile": "-C",
    "readarray": "-C",
    "rg": "--pre --hostname-bin",
    "rsync": "-e --rsh --rsync-path",
    "sed": "-i --in-place",
    "sort": "-o --output --compress-program",
    "tar": "-I -F --checkpoint-action --info-script --new-volume-script --rsh-command --to-command "
    "--use-compress-program",
}
"""Options that run or write something: a star does not match them. The list is not complete."""

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


def split_command(command: str) -> tuple[CommandPart, ...]:
    """All parts of a command line; a single hole, which might be anything, if it is unreadable."""
    try:
        parts = tuple(_split_items(read_shell_command(command), 0))
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


def _split_items(
    items: list[ShellItem], depth: int, *, aside: bool = False
) -> Iterator[CommandPart]:
    for item in items:
        if isinstance(item, FileRedirection):
            sign = ">" if item.writes else "<"
            yield CommandPart((f"{sign} {simplify_path(item.target)}",), aside)
        else:
            yield from _split_simple_command(item.words, depth, aside=aside)


def _split_simple_command(
    words: tuple[ShellWord, ...], depth: int, *, aside: bool = False
) -> Iterator[CommandPart]:
    while words and (assigned := _ASSIGNMENT.match(words[0].text)):
        if words[0].unquoted_chars < assigned.end():
            break  # A quoted `A=1` is the name of a command.
        yield CommandPart((words[0].text,), aside)
        words = words[1:]
    if words:
        yield from _split_named_command(words, depth, aside=aside)


def _split_named_command(
    words: tuple[ShellWord, ...], depth: int, *, aside: bool
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
        yield from _split_simple_command(words[len(words) - inner :], depth, aside=aside)
        return
    loose = [word.has_expansion and "/" in word.text for word in words]
    yield CommandPart(_path_spellings(_add_star_barriers(name, texts), loose), aside)
    if name in SETTERS:
        yield from (CommandPart((text,), is_aside=True) for text in texts[1:] if "=" in text)
    if _may_evaluate(name, texts) or (
        name in ARITHMETIC_BUILTINS and any(word.has_code for word in words)
    ):
        yield CommandPart((HOLE,), is_aside=True, doubt=f"{name} may evaluate its words")
    if name in RUNNERS or name in EVALUATORS or _has_dangerous_option(name, texts):
        yield from _find_asides(name, texts, depth)


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
    options = DANGEROUS_OPTIONS.get(name, "").split()
    if not options:
        return texts
    barred = [head]
    for text in rest:
        if HOLE in text or _is_option_of(text, options):
            barred.append(STAR_BARRIER + text)
        else:
            barred.append(text)
    return barred


def _is_plain_command(text: str) -> bool:
    """Whether a word can only be the name of a command: not an option, not an assignment."""
    return not text.startswith("-") and not re.search(f"[={HOLE}{QUOTED_SPACE}\n]", text)


def _may_calculate(name: str, rest: list[str]) -> bool:
    """Whether a builtin may evaluate one of its words as arithmetic. `printf` only does with -v."""
    if name == "printf" and not (rest and rest[0].startswith(("-v", HOLE))):
        return False
    return any(HOLE in text or "$" in text or "`" in text for text in rest)


def _has_dangerous_option(name: str, texts: list[str]) -> bool:
    return any(_is_option_of(text, DANGEROUS_OPTIONS.get(name, "").split()) for text in texts[1:])


def _is_option_of(text: str, options: list[str]) -> bool:
    """Whether a word is one of these options, also abbreviated or with its value appended."""
    given = text.partition("=")[0]
    for option in options:
        if option.startswith("--"):
            if given.startswith("--") and len(given) > len("--") and option.startswith(given):
                return True
        elif given == option or (len(option) == len("-x") and re.match(rf"-\w*{option[1]}", text)):
            return True
    return False


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
