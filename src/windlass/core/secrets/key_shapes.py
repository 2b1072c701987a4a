"""Find keys, tokens and passwords by the public prefix that their issuer gives them.

Invariant: the prefix is public and stays visible, what follows it is the secret. So a stream holds
nothing back until a prefix is complete. Each prefix is examined once, and the search continues
after its run of characters, so that the cost is linear in the text.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from windlass.core.secrets.key_judges import (
    ASSIGNED_NAMES,
    ASSIGNED_RUN,
    CONTEXT_CHARS,
    WINDOW_CHARS,
    KeyJudge,
    Span,
    judge_assigned,
    judge_aws_key,
    judge_jwt,
    judge_letters,
    judge_password,
    judge_pem,
    judge_public,
    judge_token,
    may_assign,
)
from windlass.core.secrets.public_shapes import PUBLIC_SHAPES, Alphabet


class KeyShape(NamedTuple):
    """A public prefix, the characters that may follow it, and the test that these are a secret."""

    prefix: str
    run: re.Pattern[str]
    judge: KeyJudge
    is_glued: bool = False
    """Whether the prefix may follow a letter or digit."""
    context: int = 0
    """How many characters before the prefix are looked at too."""


class KeySearch(NamedTuple):
    """The secrets in a text, and its open end: keep it from `keep` on, show it up to `hold`."""

    spans: list[Span]
    hold: int
    keep: int


def _run_of(characters: str) -> re.Pattern[str]:
    return re.compile(f"(?:{characters})*+")


_PLAIN = _run_of("[A-Za-z0-9]")
_WORDS = _run_of("[A-Za-z0-9_]")
_DASHED = _run_of("[A-Za-z0-9_-]")
_DOTTED = _run_of("[A-Za-z0-9_.-]")
_HEADER = _run_of("[A-Za-z0-9._~+/=-]")
_USER = _run_of(r"""[^\s/@"'<>`|{}\[\]\\^#?*$]""")
# Base64 in lines, whose breaks may be escaped, with the header lines of old encrypted keys.
_PEM = _run_of(r"[A-Za-z0-9+/=:,]|-(?!-)|(?<=:)[ ]|[\r\n]+[ \t]*|\\{1,4}+[nrt]|\\+\Z")

_RUNS: dict[Alphabet, re.Pattern[str]] = {
    "hex": _run_of("[A-Fa-f0-9]"),
    "plain": _PLAIN,
    "words": _WORDS,
    "dashed": _DASHED,
    "dotted": _run_of("[A-Za-z0-9_.~-]"),
    "path": _run_of("[A-Za-z0-9_/-]"),
    "base64": _run_of("[A-Za-z0-9+/=]"),
    "percent": _run_of("[A-Za-z0-9%]"),
    "header": _HEADER,
}

_BORDER_CHARS = 256
"""How far back a place is looked for where a run can be cut."""


def _public_groups() -> dict[str, tuple[KeyShape, ...]]:
    groups: dict[str, tuple[KeyShape, ...]] = {}
    for shape in PUBLIC_SHAPES:
        key = KeyShape(shape.prefix, _RUNS[shape.alphabet], judge_public(shape), shape.is_glued)
        groups[shape.prefix] = (key,)
    return groups


URL_PREFIX = "://"
SHAPE_GROUPS: dict[str, tuple[KeyShape, ...]] = {
    URL_PREFIX: (KeyShape(URL_PREFIX, _USER, judge_password),),
    "sk-": (KeyShape("sk-", _DASHED, judge_token(16)),),
    "AIza": (KeyShape("AIza", _DASHED, judge_token(30, 6)),),
    "AKIA": (KeyShape("AKIA", _PLAIN, judge_aws_key),),
    "ASIA": (KeyShape("ASIA", _PLAIN, judge_aws_key),),
    **{f"gh{kind}_": (KeyShape(f"gh{kind}_", _WORDS, judge_token(30)),) for kind in "pousr"},
    "github_pat_": (KeyShape("github_pat_", _WORDS, judge_token(40)),),
    "glpat-": (KeyShape("glpat-", _DASHED, judge_token(18, 8)),),
    **{
        f"xox{kind}-": (KeyShape(f"xox{kind}-", _DASHED, judge_token(20, 8)),)
        for kind in "abceoprs"
    },
    "xapp-": (KeyShape("xapp-", _DASHED, judge_token(20, 8)),),
    "hf_": (KeyShape("hf_", _PLAIN, judge_letters(30)),),
    "gsk_": (KeyShape("gsk_", _PLAIN, judge_token(40)),),
    "npm_": (KeyShape("npm_", _PLAIN, judge_letters(34)),),
    "pypi-": (KeyShape("pypi-", _DASHED, judge_token(50)),),
    "k_live_": tuple(KeyShape(f"{kind}k_live_", _PLAIN, judge_token(16)) for kind in "sr"),
    "earer ": tuple(KeyShape(f"{first}earer ", _HEADER, judge_token(16, 6)) for first in "Bb"),
    "Basic ": (KeyShape("Basic ", _HEADER, judge_token(16, 6)),),
    "PRIVATE KEY-----": (KeyShape("PRIVATE KEY-----", _PEM, judge_pem),),
    "eyJ": (KeyShape("eyJ", _DOTTED, judge_jwt),),
    **{
        name: (
            KeyShape(
                name, ASSIGNED_RUN, judge_assigned(name), is_glued=True, context=CONTEXT_CHARS
            ),
        )
        for name in ASSIGNED_NAMES
    },
    **_public_groups(),
}
"""The shapes, each under a text that every match of them contains."""
PREFIX_CHARS_MAX = max(len(shape.prefix) for group in SHAPE_GROUPS.values() for shape in group)


_JOINTS = "-_"
_JOINT_CONTEXT = 2
_JOINT_TAIL = 4
_JointStarts = dict[str, tuple[tuple[str, int], ...]]


def _starts_by_joint(joint: str) -> _JointStarts:
    """Return the starts with this joint in them, by the characters before it, with its place."""
    starts: _JointStarts = {}
    for known in SHAPE_GROUPS:
        at = _joint_of(known)
        if at and known[at] == joint:
            before = known[at - _JOINT_CONTEXT : at]
            starts[before] = (*starts.get(before, ()), (known, at))
    return starts


def _joint_of(known: str) -> int:
    """Return the place of the joint by which a start is found; 0 if it has none.

    It is near the end of the start: a stream looks for joints in what is new only, and in the last
    characters before that.
    """
    first = max(_JOINT_CONTEXT, len(known) - 1 - _JOINT_TAIL)
    places = (at for at in range(first, len(known)) if known[at] in _JOINTS)
    return next(places, 0)


_DASH_STARTS = _starts_by_joint("-")
_SCORE_STARTS = _starts_by_joint("_")
_PLAIN_STARTS = tuple(known for known in SHAPE_GROUPS if not _joint_of(known))


def has_no_key(text: str, since: int = 0) -> bool:
    """Whether no secret begins in a text. For most short texts this is very cheap.

    `since`: no start was complete before this place.

    It is called for every piece of every stream, so each question is a plain search for something
    that few texts contain. Those about capital letters are asked only if there are any.
    """
    if "-" in text and _has_start(text, "-", since, _DASH_STARTS):
        return False
    if "_" in text and _has_start(text, "_", since, _SCORE_STARTS):
        return False
    if "/" in text and ("://" in text or "s/T" in text or "ook" in text):
        return False
    if "." in text and (
        "hv" in text or "SG." in text or ".pt." in text or "c01." in text or "sv1." in text
    ):
        return False
    if "earer " in text or "~" in text or "sig=" in text or "ya29" in text or "dapi" in text:
        return False
    if ("oken" in text or "ecret" in text or "assw" in text) and may_assign(text):
        return False
    if "apikey" in text or "login=" in text:
        return False
    return text.islower() or not (
        "IA" in text
        or "eyJ" in text
        or "AIza" in text
        or ":AA" in text
        or "Key=" in text
        or "Basic " in text
        or "SK" in text
        or "LTAI" in text
        or "EZAK" in text
        or "ATATT3" in text
        or "APIKEY" in text
        or "apiKey" in text
        or (("OKEN" in text or "ECRET" in text or "ASSW" in text) and may_assign(text))
    )


def _has_start(text: str, joint: str, since: int, starts: _JointStarts) -> bool:
    """Whether a start with this joint is in a text: `_find_starts`, up to the first one."""
    at = text.find(joint, since - _JOINT_TAIL - 1 if since > _JOINT_TAIL else 0)
    while at >= 0:
        for known, before in starts.get(text[at - _JOINT_CONTEXT : at], ()):
            if at >= before and text.startswith(known, at - before):
                return True
        at = text.find(joint, at + 1)
    return False


def _find_starts(text: str, joint: str, starts: _JointStarts) -> Iterator[str]:
    """Yield the starts with this joint that are in a text."""
    at = text.find(joint)
    while at >= 0:
        for known, before in starts.get(text[at - _JOINT_CONTEXT : at], ()):
            if at >= before and text.startswith(known, at - before):
                yield known
        at = text.find(joint, at + 1)


def _find_groups(text: str) -> Iterator[KeyShape]:
    """Yield the shapes whose start is in a text."""
    if has_no_key(text):
        return
    jointed = {
        *_find_starts(text, "-", _DASH_STARTS),
        *_find_starts(text, "_", _SCORE_STARTS),
    }
    for known in (*(known for known in _PLAIN_STARTS if known in text), *jointed):
        yield from SHAPE_GROUPS[known]


def find_keys(text: str, *, whole: bool) -> KeySearch:
    """Return the secrets in a text. Unless it is `whole`, also what its end leaves open."""
    spans: list[Span] = []
    size = hold = keep = len(text)
    if whole and size > WINDOW_CHARS:
        return KeySearch(list(_find_keys_in_windows(text)), hold, keep)
    for shape in _find_groups(text):
        for at, start, end in _find_runs(shape, text):
            if end == size and not whole:
                keep = min(keep, max(0, at - shape.context))
                hold = min(hold, _secret_start(shape, text, start))
            elif span := shape.judge(text, start, end):
                spans.append(span)
    return KeySearch(spans, hold, keep)


def _find_keys_in_windows(text: str) -> Iterator[Span]:
    """Yield the secrets in a long text, the same as in one search of all of it."""
    searched_to: dict[KeyShape, int] = {}
    """Where the last run of each shape ended: a prefix inside a run is judged with that run."""
    for first in range(0, len(text), WINDOW_CHARS):
        last = first + WINDOW_CHARS
        # A prefix that begins in the window may end behind it.
        window = text[first : last + PREFIX_CHARS_MAX - 1]
        for shape in _find_groups(window):
            since = max(first, searched_to.get(shape, 0))
            for _, start, end in _find_runs(shape, text, since, last):
                searched_to[shape] = end
                if span := shape.judge(text, start, end):
                    yield span


def _find_runs(
    shape: KeyShape, text: str, first: int = 0, last: int | None = None
) -> Iterator[tuple[int, int, int]]:
    """Yield where each prefix begins, and the start and end of the run that follows it.

    Only prefixes that begin in the stretch from `first` to `last` are looked for.
    """
    prefix = shape.prefix
    if last is None:
        last = len(text)
    reach = last + len(prefix) - 1
    at = text.find(prefix, first, reach)
    while at >= 0:
        start = end = at + len(prefix)
        if at == 0 or shape.is_glued or not (text[at - 1].isalnum() and text[at].isalpha()):
            end = _find_run_end(shape.run, text, start)
            yield at, start, end
        # A prefix inside a run is judged with that run.
        at = text.find(prefix, end, reach)


def _find_run_end(run: re.Pattern[str], text: str, start: int) -> int:
    """Return where a run of characters ends. A long one is followed window by window."""
    size = len(text)
    while True:
        border = start + WINDOW_CHARS
        if border < size and run is _PEM:
            border = _find_pem_border(text, border)
        found = run.match(text, start, min(border, size))
        end = found.end() if found else start
        if end < border or border >= size:
            return end
        start = end


def _find_pem_border(text: str, limit: int) -> int:
    """Return a place before `limit` where a run can be cut in two without being another run.

    Its pattern looks at neighbours: at breaks that are escaped, and at dashes. So it is cut before
    a letter or digit, and not behind a backslash.
    """
    for at in range(limit, limit - _BORDER_CHARS, -1):
        if text[at].isascii() and text[at].isalnum() and text[at - 1] != "\\":
            return at
    return len(text)


def _secret_start(shape: KeyShape, text: str, start: int) -> int:
    """Return where the secret would begin, in a run that reaches the end of the text."""
    if shape.prefix != URL_PREFIX:
        return start
    colon = text.find(":", start)
    return len(text) if colon < 0 else colon + 1
