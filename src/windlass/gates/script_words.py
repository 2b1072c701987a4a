"""The scripts of `sed` and `awk`: which are known to be harmless, and what the others do.

Invariant: only a script whose every command was read and is known to do nothing but text work is
harmless. Whatever is not read counts as one that runs programs.
"""

import re
from typing import Literal, TypeAlias

from windlass.gates.globs import HOLE, QUOTED_SPACE

Hazard: TypeAlias = Literal["", "runs", "writes", "unknown"]
"""What a word of a command does besides the work of its program; "unknown": it has holes."""

_SED_FLAGS = re.compile(
    r"-[nErsuz]+|--(quiet|silent|regexp-extended|separate|null-data|posix|debug)"
)
_SED_SCRIPT = re.compile(r"-[nErsuz]*e(.*)|--expression(?:=(.*))?", re.DOTALL)
_SED_ADDRESS = r"(?:[0-9]+(?:~[0-9]+)?|\$|/(?:[^/\\\n]|\\.)*/[IM]*)"
_SED_PLAIN = re.compile(
    rf"\s*(?:{_SED_ADDRESS}(?:\s*,\s*(?:[+~]?[0-9]+|{_SED_ADDRESS}))?)?\s*!?\s*"
    r"(?:[{}]|(?:[pPdDgGhHxnNl=zF]|[qQ][0-9 ]*)?\s*(?:[;\n]|(?=\})|\Z))"
)
_SED_CHANGE = re.compile(
    rf"\s*(?:{_SED_ADDRESS}(?:\s*,\s*(?:[+~]?[0-9]+|{_SED_ADDRESS}))?)?\s*!?\s*([sy])([^\w\s\\;{{}}])"
)
_SED_CHANGE_FLAGS = re.compile(r"[gpiIM0-9]*\s*(?:[;\n]|(?=\})|\Z)")
_SED_WRITES = re.compile(r"[gpiIM0-9]*w")

_AWK_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_AWK_FIRST_REGEX = re.compile(r"\s*!?\s*/(?:[^/\\\n]|\\.)*/")
_AWK_RUNS = re.compile(r"system|getline|@|\|")
_AWK_OPTION = re.compile(r"-F.*|-v.+|--(field-separator|assign)=.*|--(posix|traditional|csv)|--")
_AWK_VALUE_OPTIONS = frozenset(["-F", "-v", "--field-separator", "--assign"])


def sed_hazards(words: list[str]) -> list[Hazard]:
    """What each word of a sed command does."""
    hazards: list[Hazard] = []
    script_follows = False
    scripts_seen = any(_SED_SCRIPT.fullmatch(word) for word in words)
    for word in words:
        text = word.replace(QUOTED_SPACE, " ")
        given = _SED_SCRIPT.fullmatch(text)
        if HOLE in word:
            # A hole may be an option such as `-i`, or the script.
            hazards.append("unknown")
        elif script_follows:
            hazards.append(_judge_sed(text))
            script_follows = False
        elif given:
            inline = given[1] or given[2] or ""
            script_follows = not inline
            hazards.append(_judge_sed(inline) if inline else "")
        elif re.match(r"-\w*i|--in", text):
            hazards.append("writes")
        elif text.startswith("-") and text not in {"-", "--"}:
            hazards.append("" if _SED_FLAGS.fullmatch(text) else "runs")
        elif scripts_seen:
            hazards.append("")
        else:
            hazards.append(_judge_sed(text))
            scripts_seen = True
    return hazards


def _judge_sed(script: str) -> Hazard:
    """What a script of sed does: "" if each of its commands was read and is harmless."""
    at = 0
    while at < len(script):
        plain = _SED_PLAIN.match(script, at)
        if plain and plain.end() > at and _has_whole_brackets(plain[0]):
            at = plain.end()
            continue
        change = _SED_CHANGE.match(script, at)
        end = None
        if change and _has_whole_brackets(change[0]):
            end = _end_of_change(script, change.end(), change[2])
        if end is None:
            return "runs"
        flags = _SED_CHANGE_FLAGS.match(script, end)
        if flags is None:
            return "writes" if _SED_WRITES.match(script, end) else "runs"
        at = flags.end()
    return ""


def _end_of_change(script: str, at: int, delimiter: str) -> int | None:
    """Where `s/old/new/` ends; None if it is not plain how it would be read."""
    for _ in range(2):
        start = at
        while at < len(script) and script[at] != delimiter:
            at += 2 if script[at] == "\\" else 1
        if at >= len(script):
            return None
        if not _has_whole_brackets(script[start:at]):
            return None
        at += 1
    return at


def _has_whole_brackets(expression: str) -> bool:
    """Whether no bracket is open. Some programs do not end an expression inside of brackets."""
    return expression.count("[") == expression.count("]")


def awk_hazards(words: list[str]) -> list[Hazard]:
    """What each word of an awk command does."""
    hazards: list[Hazard] = []
    value_follows = False
    script_seen = False
    for word in words:
        text = word.replace(QUOTED_SPACE, " ")
        if script_seen or value_follows:
            # What follows the script is read, and never an option.
            hazards.append("")
            value_follows = False
        elif HOLE in word:
            hazards.append("unknown")
        elif text in _AWK_VALUE_OPTIONS:
            hazards.append("")
            value_follows = True
        elif text.startswith("-"):
            hazards.append("" if _AWK_OPTION.fullmatch(text) else "runs")
        else:
            hazards.append(_judge_awk(text))
            script_seen = True
    return hazards


def _judge_awk(script: str) -> Hazard:
    """What a script of awk does: "" if nothing in it can run a program or write a file."""
    if "system" in script or "getline" in script:
        return "runs"
    first = _AWK_FIRST_REGEX.match(script)
    rest = script[first.end() :] if first else script
    # Behind a `/` there may be an expression, and a quote in it does not begin a string.
    bare = rest if "/" in rest else _AWK_STRING.sub('""', rest)
    if _AWK_RUNS.search(bare.replace("||", "")):
        return "runs"
    if ">" in bare and ("/" in bare or _redirects(bare)):
        return "writes"
    return ""


def _redirects(script: str) -> bool:
    """Whether a `>` may be a redirection: in an action, and not between parentheses."""
    braces = 0
    parentheses = 0
    for letter in script:
        braces += (letter == "{") - (letter == "}")
        parentheses += (letter == "(") - (letter == ")")
        if letter == ">" and braces > 0 and parentheses <= 0:
            return True
    return False
