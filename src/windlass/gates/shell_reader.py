r"""A shell command, read into what bash would run: simple commands and redirections.

The law: when in doubt, Unreadable. What is read: lists and pipelines, groups and subshells, `if`,
`while` and `for`, quotes, here-documents and substitutions, with the commands in them. What only
bash itself can know (a variable, a file glob, the output of a command) is a hole in the word.
Not read: arithmetic, `case`, `[[`, functions, `${…}` with an operator, and characters that cannot
be seen. The shell is bash without a terminal: comments count, aliases and `!` history do not.
"""

import re
from dataclasses import dataclass, field

from windlass.gates.globs import BLANK, HOLE
from windlass.gates.shell_words import Found, Redirection, Simple, Unreadable, Word

COMMAND_CHARS_MAX = 20_000
DEPTH_MAX = 10

OPENERS = frozenset(["!", "if", "then", "elif", "else", "while", "until", "do", "{", "time"])
"""Reserved words after which a command stands."""
CLOSERS = frozenset(["fi", "done", "}"])
"""Reserved words after which only redirections stand."""
UNREAD = frozenset(["case", "esac", "select", "function", "coproc", "[[", "]]", "in"])

_META = frozenset(" \t\n;&|<>()")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIMPLE_EXPANSION = re.compile(
    r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!_-]|\{(?:[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])\})"
)
_SUMS = re.compile(r"\$\(\([0-9+*/%() \t-]*\)\)")
_ANSI = re.compile(r"\$'(?:[^'\\]|\\.)*'", re.DOTALL)
_REDIRECTION = re.compile(r"&>>|&>|[0-9]*(?:<<<|<<-|<<|<>|<&|<(?!\()|>>|>\||>&|>(?!\())")
_SEPARATOR = re.compile(r"\n|;(?![;&])|&&|\|\||\|&|\||&(?!>)")


def read(command: str, depth: int = 0) -> list[Found]:
    """All that a command would run, also inside of its substitutions."""
    if len(command) > COMMAND_CHARS_MAX:
        raise Unreadable("the command is too long")
    odd = next((c for c in command if not (c.isprintable() or c in "\t\n")), None)
    if odd is not None:
        raise Unreadable(f"it holds a character that cannot be seen, U+{ord(odd):04X}")
    reader = _Reader(command, depth)
    reader.read_list("")
    if reader.awaited:
        raise Unreadable("a here-document has no end")
    return reader.found


@dataclass(slots=True)
class _Reader:
    text: str
    depth: int
    at: int = 0
    found: list[Found] = field(default_factory=list[Found])
    awaited: list[tuple[str, bool, bool]] = field(default_factory=list[tuple[str, bool, bool]])
    """Here-documents whose bodies begin after this line: end mark, tabs taken off, expanded."""

    @property
    def char(self) -> str:
        return self.text[self.at : self.at + 1]

    def read_list(self, closer: str) -> None:
        """Commands up to the closing character, or to the end."""
        self.depth += 1
        if self.depth > DEPTH_MAX or (closer and self.awaited):
            raise Unreadable("commands are nested too deep, or in a here-document's line")
        while True:
            self.skip_space()
            if self.char == closer:
                break
            if not self.char:
                raise Unreadable("a parenthesis is not closed")
            self.read_command()
            separator = _SEPARATOR.match(self.text, self.at)
            if separator:
                self.at = separator.end()
                if separator[0] == "\n":
                    self.read_bodies()
            elif self.char != closer:
                raise Unreadable(f"{self.char!r} stands where a command should end")
        self.at += len(closer)
        self.depth -= 1

    def skip_space(self, *, lines: bool = True) -> None:
        while True:
            if self.char == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif self.text[max(0, self.at - 1) : self.at + 2] in {" \\\n", "\t\\\n"}:
                self.at += 2  # Behind a blank; elsewhere it may join two characters into a sign.
            elif self.char == "\n" and lines:
                self.at += 1
                self.read_bodies()
            elif self.char in {" ", "\t"}:
                self.at += 1
            else:
                return

    def read_command(self) -> None:
        words, closed, begun, loop = list[Word](), False, False, False
        while True:
            self.skip_space(lines=False)
            redirection = _REDIRECTION.match(self.text, self.at)
            if redirection:
                self.at = redirection.end()
                self.read_redirection(redirection[0].lstrip("0123456789"))
                begun = True
                continue
            if self.char in {"", "\n", ";", "&", "|", ")"}:
                break
            if self.char == "(":
                if begun or closed or self.text.startswith("((", self.at):
                    raise Unreadable("a parenthesis that is neither a subshell nor quoted")
                self.at += 1
                self.read_list(")")
                closed = True
                continue
            word = self.read_word()
            reserved = word.text if word.plain and not begun else ""
            if closed or reserved in UNREAD:
                raise Unreadable(f"{word.text!r} is not looked into")
            if reserved in CLOSERS:
                closed = True
            elif reserved == "for":
                begun = loop = True
            elif reserved not in OPENERS:
                begun = True
                words.append(word)
        if words or loop:
            self.found.append(Simple(_loop(words) if loop else tuple(words)))

    def read_redirection(self, operator: str) -> None:
        self.skip_space(lines=False)
        word = self.read_word()
        if operator in {"<<", "<<-"}:
            if re.search(rf"[{HOLE}{BLANK}\n]", word.text) or self.depth > 1:
                raise Unreadable("a here-document that is not plain")
            self.awaited.append((word.text, operator == "<<-", word.plain))
        elif operator == "<<<" or word.text == "/dev/null":
            pass
        elif not (operator in {">&", "<&"} and re.fullmatch(r"[0-9]+-?|-", word.text)):
            self.found.append(Redirection(operator != "<", HOLE if word.loose else word.text))

    def read_bodies(self) -> None:
        """The here-documents that begin at this line. A body is data; what it runs is not."""
        awaited, self.awaited = self.awaited, []
        for mark, tabs, expanded in awaited:
            lines = list[str]()
            while True:
                if not self.char:
                    raise Unreadable("a here-document has no end")
                end = self.text.find("\n", self.at)
                line = self.text[self.at : end if end >= 0 else len(self.text)]
                self.at += len(line) + 1
                if (line.lstrip("\t") if tabs else line) == mark:
                    break
                lines.append(line)
            if expanded:
                self.read_body("\n".join(lines))

    def read_body(self, body: str) -> None:
        if "\\\n" in body or body.endswith("\\"):
            raise Unreadable("a here-document joins lines")
        inner = _Reader(body, self.depth)
        while inner.char:
            if inner.char not in {"$", "`", "\\"}:
                inner.at += 1
            elif inner.char == "\\":
                inner.at += 2
            else:
                inner.read_expansion(quoted=True)
        self.found.extend(inner.found)

    def read_word(self) -> Word:
        start, pieces, braces, globs = self.at, list[tuple[str, bool]](), False, 0
        while self.char and (self.char not in _META or self.text[self.at : self.at + 2] in _INTO):
            char, at = self.char, self.at
            if char == "#" and at == start:
                raise Unreadable("a comment stands where a word should")
            if char == "\\":
                pieces.append((_escaped(self.take(2))[1:], True))
            elif char in {"'", '"'}:
                pieces.append((self.read_quoted(char), True))
            elif char in {"$", "`", "<", ">"}:
                pieces.append((self.read_expansion(quoted=False), True))
            elif char in {"*", "?", "["} or (char == "~" and self.may_be_home(start)):
                globs += char != "~"
                pieces.append((HOLE, True))
                self.at += 1
            else:
                braces = braces or char in {"{", "}"}
                pieces.append((char, False))
                self.at += 1
        raw = self.text[start : self.at]
        if not raw or self.char == "(":
            raise Unreadable("a parenthesis, or the lack of a word")
        return _word(raw, pieces, braces=braces, globs=globs)

    def may_be_home(self, start: int) -> bool:
        return self.at == start or self.text[self.at - 1] in {"=", ":"}

    def take(self, count: int) -> str:
        taken = self.text[self.at : self.at + count]
        if len(taken) < count:
            raise Unreadable("it ends in the middle")
        self.at += count
        return taken

    def read_quoted(self, quote: str) -> str:
        start, told = self.at, list[str]()
        self.at += 1
        while self.char != quote:
            if quote == '"' and self.char in {"$", "`"}:
                told.append(self.read_expansion(quoted=True))
            elif quote == '"' and self.char == "\\":
                pair = _escaped(self.take(2))
                told.append(pair[1:] if pair[1] in '$`"\\' else pair)
            else:
                told.append(_within(self.take(1)))
        self.at += 1
        if self.awaited and "\n" in self.text[start : self.at]:
            raise Unreadable("a line ends in quotes before a here-document")
        return "".join(told)

    def read_expansion(self, *, quoted: bool) -> str:
        """What `$`, a backtick, `<(` or `>(` begins; the commands in it are found."""
        for known in (_SIMPLE_EXPANSION, _SUMS, *(() if quoted else (_ANSI,))):
            if simple := known.match(self.text, self.at):
                self.at = simple.end()
                return HOLE
        first, second = self.char, self.text[self.at + 1 : self.at + 2]
        if first == "`":
            end = self.text.find("`", self.at + 1)
            inner = self.text[self.at + 1 : end]
            if end < 0 or "\\" in inner or self.awaited:
                raise Unreadable("backticks that are not plain")
            self.found.extend(read(inner, self.depth))
            self.at = end + 1
            return HOLE
        if second == "(" and self.text[self.at + 2 : self.at + 3] != "(":
            self.at += 2
            self.read_list(")")
            return HOLE
        if second in {"{", "[", "("} or (second in {"'", '"'} and not quoted):
            raise Unreadable(f"an expansion that is not plain, ${second}…")
        self.at += 1
        return first


_INTO = frozenset(["<(", ">("])


def _escaped(pair: str) -> str:
    """A backslash and what it quotes. A line that is joined to the next may hide what begins."""
    if pair[1] == "\n":
        raise Unreadable("a line ends within a word")
    return _within(pair)


def _within(text: str) -> str:
    """Quoted text: its blanks do not separate words. Line breaks stay: no word has a bare one."""
    return re.sub(r"[ \t]", BLANK, text)


def _word(raw: str, pieces: list[tuple[str, bool]], *, braces: bool, globs: int) -> Word:
    if raw in {"[", "[[", "{}"}:
        return Word(raw, bare=len(raw))
    bare = next((at for at, (_, quoted) in enumerate(pieces) if quoted), len(pieces))
    text = "".join(piece for piece, _ in pieces)
    loose = text.count(HOLE) > globs
    code = "$(" in text or "`" in text or "$'" in raw
    if braces and len(raw) > 1:
        text, loose = HOLE, True
    return Word(text, bare == len(pieces) and HOLE not in text, bare, loose, code)


def _loop(words: list[Word]) -> tuple[Word, ...]:
    """A loop sets a variable; it does so as an assignment would."""
    if not words or not _NAME.fullmatch(words[0].text) or (words[1:] and words[1].text != "in"):
        raise Unreadable("a loop that is not plain")
    name = f"{words[0].text}="
    return (Word(name + HOLE, plain=False, bare=len(name)),)
