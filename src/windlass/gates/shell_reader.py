r"""Reads a shell command into what bash would run: simple commands and redirections.

Invariant: in doubt, raise UnreadableCommand. It reads lists and pipelines, groups and subshells,
`if`, `while` and `for`, quotes, here-documents and substitutions, with the commands in them. What
only bash itself can know (a variable, a file glob, the output of a command) is a hole in the word.
It does not read arithmetic, `case`, `[[`, functions, `${…}` with an operator, and characters that
are not visible. The shell is bash without a terminal: it has comments, but no aliases and no `!`
history.
"""

import re
from dataclasses import dataclass, field
from typing import TypeAlias

from windlass.gates.globs import HOLE, QUOTED_SPACE

COMMAND_CHARS_MAX = 20_000
DEPTH_MAX = 10

OPENING_WORDS = frozenset(["!", "if", "then", "elif", "else", "while", "until", "do", "{", "time"])
"""Reserved words that are followed by a command."""
CLOSING_WORDS = frozenset(["fi", "done", "}"])
"""Reserved words that are followed only by redirections."""
UNSUPPORTED_WORDS = frozenset(["case", "esac", "select", "function", "coproc", "[[", "]]", "in"])

_META_CHARS = frozenset(" \t\n;&|<>()")
_COMMAND_ENDS = frozenset(["", "\n", ";", "&", "|", ")"])
_PROCESS_SUBSTITUTIONS = frozenset(["<(", ">("])
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIMPLE_EXPANSION = re.compile(
    r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!_-]|\{(?:[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])\})"
)
_SUMS = re.compile(r"\$\(\([0-9+*/%() \t-]*\)\)")
_ANSI_QUOTED = re.compile(r"\$'(?:[^'\\]|\\.)*'", re.DOTALL)
_REDIRECTION = re.compile(r"&>>|&>|[0-9]*(?:<<<|<<-|<<|<>|<&|<(?!\()|>>|>\||>&|>(?!\())")
_SEPARATOR = re.compile(r"\n|;(?![;&])|&&|\|\||\|&|\||&(?!>)")


class UnreadableCommand(ValueError):
    """It is not certain what bash would run."""


@dataclass(frozen=True, slots=True)
class ShellWord:
    """A word of a command."""

    text: str
    """Without its quotes, and with holes."""
    is_plain: bool = True
    """Nothing is quoted and there is no hole: only such a word can be a reserved word."""
    unquoted_chars: int = 0
    """How many characters at its beginning are not quoted."""
    has_expansion: bool = False
    """It contains a variable, a home folder or the output of a command, which may be anything."""
    has_code: bool = False
    """It contains a substitution, which would run if something evaluated the word again."""


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """A command with its arguments, and the assignments before it."""

    words: tuple[ShellWord, ...]


@dataclass(frozen=True, slots=True)
class FileRedirection:
    """A redirection to or from a file."""

    writes: bool
    target: str


ShellItem: TypeAlias = SimpleCommand | FileRedirection


def read_shell_command(command: str, depth: int = 0) -> list[ShellItem]:
    """All that a command would run, including its substitutions. Raises UnreadableCommand."""
    if len(command) > COMMAND_CHARS_MAX:
        raise UnreadableCommand("the command is too long")
    hidden = [char for char in command if not (char.isprintable() or char in "\t\n")]
    if hidden:
        raise UnreadableCommand(f"it has an invisible character, U+{ord(hidden[0]):04X}")
    reader = _ShellReader(command, depth)
    reader.read_list("")
    if reader.open_heredocs:
        raise UnreadableCommand("a here-document has no end")
    return reader.items


@dataclass(slots=True)
class _ShellReader:
    """A recursive-descent parser; `items` are the commands and redirections found so far."""

    text: str
    depth: int
    position: int = 0
    items: list[ShellItem] = field(default_factory=list[ShellItem])
    open_heredocs: list[tuple[str, bool, bool]] = field(
        default_factory=list[tuple[str, bool, bool]]
    )
    """Here-documents whose bodies start after this line: end mark, tabs stripped, expanded."""

    @property
    def current_char(self) -> str:
        """The next character; empty at the end."""
        return self.text[self.position : self.position + 1]

    def read_list(self, closer: str) -> None:
        """Read commands up to the closing character, or to the end."""
        self.depth += 1
        if self.depth > DEPTH_MAX or (closer and self.open_heredocs):
            raise UnreadableCommand("commands are nested too deeply, or follow a here-document")
        while True:
            self.skip_space()
            if self.current_char == closer:
                break
            if not self.current_char:
                raise UnreadableCommand("a parenthesis is not closed")
            self.read_simple_command()
            separator = _SEPARATOR.match(self.text, self.position)
            if separator:
                self.position = separator.end()
                if separator[0] == "\n":
                    self.read_heredoc_bodies()
            elif self.current_char != closer:
                raise UnreadableCommand(f"{self.current_char!r} is where a command should end")
        self.position += len(closer)
        self.depth -= 1

    def skip_space(self, *, lines: bool = True) -> None:
        """Skip spaces, comments, joined lines and, if `lines`, line breaks."""
        while True:
            if self.current_char == "#":
                end = self.text.find("\n", self.position)
                self.position = len(self.text) if end < 0 else end
            elif self.text[max(0, self.position - 1) : self.position + 2] in {" \\\n", "\t\\\n"}:
                # Only after a space: elsewhere, joined lines could form a new operator.
                self.position += 2
            elif self.current_char == "\n" and lines:
                self.position += 1
                self.read_heredoc_bodies()
            elif self.current_char in {" ", "\t"}:
                self.position += 1
            else:
                return

    def read_simple_command(self) -> None:
        """Read one command with its redirections, or a subshell, up to a separator."""
        words: list[ShellWord] = []
        has_begun = False  # From then on, reserved words are ordinary words.
        is_closed = False  # After `)`, `fi` or `done`, only redirections may follow.
        is_loop = False
        while True:
            self.skip_space(lines=False)
            redirection = _REDIRECTION.match(self.text, self.position)
            if redirection:
                self.position = redirection.end()
                self.read_redirection(redirection[0].lstrip("0123456789"))
                has_begun = True
            elif self.current_char in _COMMAND_ENDS:
                break
            elif self.current_char == "(":
                if has_begun or is_closed or self.text.startswith("((", self.position):
                    raise UnreadableCommand("a parenthesis is neither quoted nor a subshell")
                self.position += 1
                self.read_list(")")
                is_closed = True
            else:
                word = self.read_word()
                if word.is_plain and not has_begun:
                    reserved = word.text
                else:
                    reserved = ""
                if is_closed or reserved in UNSUPPORTED_WORDS:
                    raise UnreadableCommand(f"{word.text!r} is not supported")
                is_closed = reserved in CLOSING_WORDS
                if reserved == "for":
                    has_begun = is_loop = True
                elif not is_closed and reserved not in OPENING_WORDS:
                    has_begun = True
                    words.append(word)
        if is_loop:
            self.items.append(SimpleCommand(_loop_assignment(words)))
        elif words:
            self.items.append(SimpleCommand(tuple(words)))

    def read_redirection(self, operator: str) -> None:
        """Read the target of a redirection. Only files count, not copies of open ones."""
        self.skip_space(lines=False)
        word = self.read_word()
        if operator in {"<<", "<<-"}:
            if re.search(rf"[{HOLE}{QUOTED_SPACE}\n]", word.text) or self.depth > 1:
                raise UnreadableCommand("such a here-document is not supported")
            self.open_heredocs.append((word.text, operator == "<<-", word.is_plain))
        elif operator == "<<<" or word.text == "/dev/null":
            pass
        elif not (operator in {">&", "<&"} and re.fullmatch(r"[0-9]+-?|-", word.text)):
            target = HOLE if word.has_expansion else word.text
            self.items.append(FileRedirection(operator != "<", target))

    def read_heredoc_bodies(self) -> None:
        """Read the here-documents of this line. A body is data, but substitutions in it are run."""
        heredocs = self.open_heredocs
        self.open_heredocs = []
        for mark, strips_tabs, is_expanded in heredocs:
            lines: list[str] = []
            while True:
                if not self.current_char:
                    raise UnreadableCommand("a here-document has no end")
                end = self.text.find("\n", self.position)
                if end < 0:
                    line = self.text[self.position :]
                else:
                    line = self.text[self.position : end]
                self.position += len(line) + 1
                if line == mark or (strips_tabs and line.lstrip("\t") == mark):
                    break
                lines.append(line)
            if is_expanded:
                self.read_heredoc_body("\n".join(lines))

    def read_heredoc_body(self, body: str) -> None:
        """Read the substitutions in a body."""
        if "\\\n" in body or body.endswith("\\"):
            raise UnreadableCommand("a here-document joins lines")
        inner = _ShellReader(body, self.depth)
        while inner.current_char:
            if inner.current_char not in {"$", "`", "\\"}:
                inner.position += 1
            elif inner.current_char == "\\":
                inner.position += 2
            else:
                inner.read_expansion(quoted=True)
        self.items.extend(inner.items)

    def read_word(self) -> ShellWord:
        """Read one word, up to a space or an operator."""
        start = self.position
        pieces: list[tuple[str, bool]] = []  # A text, and whether it is quoted or unknown.
        has_braces = False
        globs = 0
        while self.is_in_word():
            char = self.current_char
            if char == "#" and self.position == start:
                raise UnreadableCommand("there is a comment where a word should be")
            if char == "\\":
                pieces.append((_check_escape(self.take_chars(2))[1:], True))
            elif char in {"'", '"'}:
                pieces.append((self.read_quoted(char), True))
            elif char in {"$", "`", "<", ">"}:
                pieces.append((self.read_expansion(quoted=False), True))
            elif char in {"*", "?", "["} or (char == "~" and self.may_be_home(start)):
                globs += char != "~"
                pieces.append((HOLE, True))
                self.position += 1
            else:
                has_braces = has_braces or char in {"{", "}"}
                pieces.append((char, False))
                self.position += 1
        raw = self.text[start : self.position]
        if not raw or self.current_char == "(":
            raise UnreadableCommand("there is a parenthesis, or nothing, where a word should be")
        return _make_word(raw, pieces, braces=has_braces, globs=globs)

    def is_in_word(self) -> bool:
        """Whether the next character belongs to a word. `<(` starts one, although `<` ends one."""
        if self.text[self.position : self.position + 2] in _PROCESS_SUBSTITUTIONS:
            return True
        return bool(self.current_char) and self.current_char not in _META_CHARS

    def may_be_home(self, start: int) -> bool:
        """Whether bash may expand a `~` here: at the start of a word, or after `=` or `:`."""
        return self.position == start or self.text[self.position - 1] in {"=", ":"}

    def take_chars(self, count: int) -> str:
        """The next characters, which must be there."""
        taken = self.text[self.position : self.position + count]
        if len(taken) < count:
            raise UnreadableCommand("it ends in the middle of a word")
        self.position += count
        return taken

    def read_quoted(self, quote: str) -> str:
        """Read a quoted text, and return it without its quotes."""
        start = self.position
        pieces: list[str] = []
        self.position += 1
        while self.current_char != quote:
            if quote == '"' and self.current_char in {"$", "`"}:
                pieces.append(self.read_expansion(quoted=True))
            elif quote == '"' and self.current_char == "\\":
                pair = _check_escape(self.take_chars(2))
                pieces.append(pair[1:] if pair[1] in '$`"\\' else pair)
            else:
                pieces.append(_mark_quoted_spaces(self.take_chars(1)))
        self.position += 1
        if self.open_heredocs and "\n" in self.text[start : self.position]:
            raise UnreadableCommand("a line ends in quotes before a here-document")
        return "".join(pieces)

    def read_expansion(self, *, quoted: bool) -> str:
        """Read what `$`, a backtick, `<(` or `>(` starts, with the commands in it."""
        forms = [_SIMPLE_EXPANSION, _SUMS]
        if not quoted:
            forms.append(_ANSI_QUOTED)
        for form in forms:
            if simple := form.match(self.text, self.position):
                self.position = simple.end()
                return HOLE
        first = self.current_char
        second = self.text[self.position + 1 : self.position + 2]
        if first == "`":
            end = self.text.find("`", self.position + 1)
            inner = self.text[self.position + 1 : end]
            if end < 0 or "\\" in inner or self.open_heredocs:
                raise UnreadableCommand("backticks with escapes are not supported")
            self.items.extend(read_shell_command(inner, self.depth))
            self.position = end + 1
            return HOLE
        if second == "(" and self.text[self.position + 2 : self.position + 3] != "(":
            self.position += 2
            self.read_list(")")
            return HOLE
        if second in {"{", "[", "("} or (second in {"'", '"'} and not quoted):
            raise UnreadableCommand(f"the expansion ${second}… is not supported")
        self.position += 1
        return first


def _check_escape(pair: str) -> str:
    """A backslash and what it quotes. Joined lines are refused: they can hide a new word."""
    if pair[1] == "\n":
        raise UnreadableCommand("a line ends within a word")
    return _mark_quoted_spaces(pair)


def _mark_quoted_spaces(text: str) -> str:
    """Mark quoted spaces: they do not separate words. Line breaks stay; unquoted ones end words."""
    return re.sub(r"[ \t]", QUOTED_SPACE, text)


def _make_word(raw: str, pieces: list[tuple[str, bool]], *, braces: bool, globs: int) -> ShellWord:
    if raw in {"[", "[[", "{}"}:
        return ShellWord(raw, unquoted_chars=len(raw))
    unquoted = next((at for at, (_, quoted) in enumerate(pieces) if quoted), len(pieces))
    text = "".join(piece for piece, _ in pieces)
    has_expansion = text.count(HOLE) > globs
    has_code = "$(" in text or "`" in text or "$'" in raw
    if braces and len(raw) > 1:
        # `{a,b}` becomes several words, and which ones is not known here.
        text = HOLE
        has_expansion = True
    is_plain = unquoted == len(pieces) and HOLE not in text
    return ShellWord(text, is_plain, unquoted, has_expansion, has_code)


def _loop_assignment(words: list[ShellWord]) -> tuple[ShellWord, ...]:
    """The head of a loop sets a variable, so it is read as an assignment."""
    if not words or not _NAME.fullmatch(words[0].text) or (words[1:] and words[1].text != "in"):
        raise UnreadableCommand("such a loop is not supported")
    name = f"{words[0].text}="
    return (ShellWord(name + HOLE, is_plain=False, unquoted_chars=len(name)),)
