"""Cases: what an agent is asked in an evaluation, and what is expected of it.

    {"id": "refund", "prompt": "Refund order 7.", "checks": [{"used": {"tool": "refund"}}]}

A file of cases is JSONL, YAML, or a Python module with a list `cases`. Paths in it begin at the
folder of the file.
"""

import hashlib
import importlib.util
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
from msgspec.structs import replace

from windlass.agent.attachments import attach
from windlass.core.errors import ConfigError
from windlass.core.messages import ContentPart, TextPart
from windlass.core.suggestions import suggest_names

ID_CHARS_MAX = 80
_ID = re.compile(r"[A-Za-z0-9_.:@=-]+")
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9_.:@=-]+")

ToolMode = Literal["replay", "live", "refuse"]
"""Where the results of a forked trial's calls come from: the record, the tools, or nowhere."""


class ForkPoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where in a recorded session a case begins."""

    session: str
    at: int
    """The number of the last record that is kept: the trial continues from exactly there."""
    tools: ToolMode = "replay"
    allow: tuple[str, ...] = ()
    """Tools that change things and may still run, if `tools` is `live`."""


class Case(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that an agent is asked, and what is expected of it."""

    id: str
    prompt: str = ""
    attachments: tuple[str, ...] = ()
    """Paths of images and files that go with the prompt."""
    workspace: str = ""
    """A folder. Each trial works in a copy of its own."""
    expected: Any = None
    """What `output_equals()` and `output_contains()` compare the output with."""
    tags: tuple[str, ...] = ()
    metadata: dict[str, str | int | float | bool] = {}
    """What the cases of a report are grouped by, such as a difficulty."""
    checks: tuple[dict[str, Any], ...] = ()
    """Scorers for this case alone: each is the name of one, with its arguments."""
    fork: ForkPoint | None = None
    """The recorded session that it continues, instead of a prompt."""

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id) or len(self.id) > ID_CHARS_MAX:
            raise ValueError(
                f"the id {self.id!r} of a case must have 1 to {ID_CHARS_MAX} letters, digits or "
                "any of _ . : @ = -"
            )
        if bool(self.prompt.strip()) == (self.fork is not None):
            raise ValueError(f"case {self.id}: give either a prompt or a fork")

    def build_prompt(self) -> tuple[ContentPart, ...]:
        """Return the prompt with its attachments. Raises ConfigError if one cannot be read."""
        return (TextPart(self.prompt), *(attach(Path(path)) for path in self.attachments))

    @property
    def digest(self) -> str:
        """Changes with what is asked, and not with what is expected."""
        asked = (self.prompt, self.attachments, self.workspace, self.fork)
        return hashlib.sha256(msgspec.json.encode(asked)).hexdigest()[:16]

    @property
    def expected_digest(self) -> str:
        """Changes with what is expected."""
        return hashlib.sha256(msgspec.json.encode(self.expected)).hexdigest()[:16]


def check_cases(cases: Iterable[Case]) -> list[Case]:
    """Return the cases. Raises ConfigError if there are none, or two have the same id."""
    listed = list(cases)
    if not listed:
        raise ConfigError("there are no cases to evaluate")
    seen = set[str]()
    for case in listed:
        if case.id in seen:
            raise ConfigError(f"two cases have the id {case.id!r}")
        seen.add(case.id)
    return listed


def choose_cases(cases: Sequence[Case], words: Sequence[str]) -> list[Case]:
    """Return the cases whose id or one of whose tags is among the words; all without words.

    Raises ConfigError for a word that names no case.
    """
    known = {word for case in cases for word in (case.id, *case.tags)}
    for word in words:
        if word not in known:
            raise ConfigError(
                f"no case has the id or tag {word!r}.{suggest_names(word, sorted(known))}"
            )
    if not words:
        return list(cases)
    return [case for case in cases if case.id in words or set(case.tags) & set(words)]


def make_id(text: str) -> str:
    """Return a text as the id of a case."""
    return _NOT_IN_ID.sub("-", text).strip("-")[:ID_CHARS_MAX] or "case"


def load_cases(path: str | os.PathLike[str]) -> list[Case]:
    """Read cases from a `.jsonl`, `.yaml`, `.yml` or `.py` file.

    Raises ConfigError, with the place, if the file cannot be read or a case is wrong.
    """
    file = Path(path)
    if file.suffix == ".py":
        return check_cases(_load_python(file))
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: the cases cannot be read: {error}") from None
    match file.suffix:
        case ".jsonl":
            found = _parse_lines(file, text)
        case ".yaml" | ".yml":
            found = _parse_yaml(file, text)
        case _:
            raise ConfigError(f"{file}: cases are in .jsonl, .yaml or .py files")
    return check_cases(found)


def write_cases(path: str | os.PathLike[str], cases: Iterable[Case]) -> int:
    """Write cases as JSONL, one a line; returns how many."""
    lines = [msgspec.json.encode(case).decode() for case in cases]
    Path(path).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return len(lines)


def _parse_lines(file: Path, text: str) -> list[Case]:
    cases: list[Case] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            raw = msgspec.json.decode(line)
        except msgspec.DecodeError as error:
            raise ConfigError(f"{file}:{number}: not a line of JSON: {error}") from None
        cases.append(_read_case(raw, file.parent, f"{file}:{number}"))
    return cases


def _parse_yaml(file: Path, text: str) -> list[Case]:
    try:
        import yaml  # noqa: PLC0415 - an extra, and only for such files
    except ModuleNotFoundError:
        raise ConfigError(
            f"{file}: YAML needs the extra `eval`: pip install 'windlass[eval]'; or write JSONL"
        ) from None
    try:
        raw: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: not YAML: {error}") from None
    if isinstance(raw, Mapping):
        raw = cast("Mapping[str, Any]", raw).get("cases")
    if not isinstance(raw, list):
        raise ConfigError(f"{file}: give a list of cases")
    listed = cast("list[object]", raw)
    return [
        _read_case(case, file.parent, f"{file}, case {nth}") for nth, case in enumerate(listed, 1)
    ]


def _read_case(raw: object, folder: Path, place: str) -> Case:
    if isinstance(raw, Mapping):
        fields = cast("Mapping[str, object]", raw)
        for name in fields:
            if name not in Case.__struct_fields__:
                hint = suggest_names(str(name), Case.__struct_fields__)
                raise ConfigError(f"{place}: a case has no field {name!r}.{hint}")
    try:
        case = msgspec.convert(raw, Case)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{place}: {error}") from None
    return _begin_at(case, folder)


def _begin_at(case: Case, folder: Path) -> Case:
    """Return the case with paths that do not depend on where the program was started."""
    workspace = str((folder / case.workspace).absolute()) if case.workspace else ""
    attachments = tuple(str((folder / path).absolute()) for path in case.attachments)
    return replace(case, workspace=workspace, attachments=attachments)


def _load_python(file: Path) -> list[Case]:
    """Run a Python file, and return its `cases`: a list, or a function that returns one."""
    spec = importlib.util.spec_from_file_location(f"windlass_cases_{file.stem}", file)
    if spec is None or spec.loader is None or not file.is_file():
        raise ConfigError(f"{file}: there is no such file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Any = getattr(module, "cases", None)
    if callable(found):
        found = found()
    if not isinstance(found, Iterable):
        raise ConfigError(f"{file}: the module needs a list `cases`")
    listed = list(cast("Iterable[object]", found))
    for case in listed:
        if not isinstance(case, Case):
            raise ConfigError(f"{file}: {case!r} is not a Case")
    return [_begin_at(case, file.parent) for case in cast("list[Case]", listed)]
