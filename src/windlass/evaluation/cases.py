"""Cases: what an agent is asked in an evaluation, and what is expected of it.

    {"id": "refund", "prompt": "Refund order 7.", "checks": [{"used": {"tool": "refund"}}]}

A file of cases is JSONL, JSON, YAML, CSV, Parquet, or a Python module with a list `cases`. Paths in
it begin at the folder of the file.
"""

import csv
import hashlib
import importlib
import importlib.util
import io
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

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
    """A folder. Each trial works in its own copy."""
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
            raise ValueError(f"case {self.id}: pass either a prompt or a fork")

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


def sample_cases(cases: Sequence[Case], size: float, seed: int = 0) -> list[Case]:
    """Return some of the cases, drawn and ordered by chance; the same ones for the same seed.

    `size` is a number of cases, or a share of them below 1. Raises ConfigError if it is neither.
    """
    count = max(1, round(size * len(cases))) if 0 < size < 1 else int(size)
    if count < 1 or (size >= 1 and count != size):
        raise ConfigError(f"a sample of {size}: pass a number of cases, or a share below 1")
    # The order of a file must not matter: an added case would change which others are drawn.
    ordered = sorted(cases, key=lambda case: _draw_place(case.id, seed))
    return ordered[:count]


def _draw_place(case_id: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}\0{case_id}".encode()).digest()


def load_cases(
    path: str | os.PathLike[str], *, fields: Mapping[str, str] | None = None
) -> list[Case]:
    """Read cases from a `.jsonl`, `.json`, `.yaml`, `.csv`, `.tsv`, `.parquet` or `.py` file.

    A folder stands for all such files in it, by name. `fields` says which columns the fields of a
    case are in, such as `{"prompt": "question", "expected": "answer"}` for a dataset of others: its
    other columns are metadata, and rows without an id are numbered. Raises ConfigError, with the
    place, if a file cannot be read or a case is wrong.
    """
    place = Path(path)
    files = [place]
    if place.is_dir():
        files = sorted(file for file in place.iterdir() if file.suffix in (*_READERS, ".py"))
        if not files:
            raise ConfigError(f"{place}: the folder has no file of cases")
    return check_cases(case for file in files for case in _load_file(file, fields))


def _load_file(file: Path, fields: Mapping[str, str] | None) -> list[Case]:
    if file.suffix == ".py":
        return _load_python(file)
    reader = _READERS.get(file.suffix)
    if reader is None:
        raise ConfigError(f"{file}: cases are in {', '.join(sorted(_READERS))} or .py files")
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file}: the cases cannot be read: {error}") from None
    rows = reader(file, data)
    if fields is not None:
        rows = [
            (where, _map_fields(row, fields, f"{file.stem}-{nth}", where))
            for nth, (where, row) in enumerate(rows, 1)
        ]
    return [_read_case(row, file.parent, where) for where, row in rows]


def _map_fields(row: object, fields: Mapping[str, str], name: str, where: str) -> dict[str, Any]:
    """Return a row of another dataset as a case: its other columns are metadata."""
    if not isinstance(row, Mapping):
        raise ConfigError(f"{where}: not a row with columns")
    columns = cast("Mapping[str, Any]", row)
    for field, column in fields.items():
        if field not in Case.__struct_fields__:
            hint = suggest_names(field, Case.__struct_fields__)
            raise ConfigError(f"fields: a case has no field {field!r}.{hint}")
        if column not in columns:
            raise ConfigError(f"{where}: no column {column!r}.{suggest_names(column, columns)}")
    case: dict[str, Any] = {field: columns[column] for field, column in fields.items()}
    case["id"] = make_id(str(case.get("id", name)))
    used = set(fields.values())
    rest = {key: value for key, value in columns.items() if key not in used}
    kept = {key: value for key, value in rest.items() if isinstance(value, str | int | float)}
    return {"metadata": kept, **case}


def write_cases(path: str | os.PathLike[str], cases: Iterable[Case]) -> int:
    """Write cases as JSONL, one a line; returns how many."""
    lines = [msgspec.json.encode(case).decode() for case in cases]
    Path(path).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return len(lines)


Rows: TypeAlias = list[tuple[str, object]]
"""Each with its place, for messages."""


def _decode_text(file: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: the cases cannot be read: {error}") from None


def _parse_lines(file: Path, data: bytes) -> Rows:
    rows: Rows = []
    for number, line in enumerate(_decode_text(file, data).splitlines(), 1):
        if not line.strip():
            continue
        try:
            rows.append((f"{file}:{number}", msgspec.json.decode(line)))
        except msgspec.DecodeError as error:
            raise ConfigError(f"{file}:{number}: not a line of JSON: {error}") from None
    return rows


def _parse_json(file: Path, data: bytes) -> Rows:
    try:
        return _list_rows(file, msgspec.json.decode(data))
    except msgspec.DecodeError as error:
        raise ConfigError(f"{file}: not JSON: {error}") from None


def _parse_yaml(file: Path, data: bytes) -> Rows:
    try:
        import yaml  # noqa: PLC0415 - an extra, and only for such files
    except ModuleNotFoundError:
        raise ConfigError(
            f"{file}: YAML needs the extra `eval`: pip install 'windlass[eval]'; or write JSONL"
        ) from None
    try:
        return _list_rows(file, yaml.safe_load(_decode_text(file, data)))
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: not YAML: {error}") from None


def _list_rows(file: Path, raw: object) -> Rows:
    if isinstance(raw, Mapping):
        raw = cast("Mapping[str, Any]", raw).get("cases")
    if not isinstance(raw, list):
        raise ConfigError(f"{file}: pass a list of cases")
    listed = cast("list[object]", raw)
    return [(f"{file}, case {nth}", case) for nth, case in enumerate(listed, 1)]


def _parse_table(file: Path, data: bytes) -> Rows:
    """Read CSV or TSV. Tags are separated by spaces, and cells that are empty are left out."""
    delimiter = "\t" if file.suffix == ".tsv" else ","
    reader = csv.DictReader(io.StringIO(_decode_text(file, data)), delimiter=delimiter)
    rows: Rows = []
    for nth, line in enumerate(reader, 2):
        if None in line or None in line.values():
            raise ConfigError(f"{file}, row {nth}: it has not as many cells as the head")
        row: dict[str, object] = {key: cell for key, cell in line.items() if cell}
        if "tags" in row:
            row["tags"] = str(row["tags"]).split()
        rows.append((f"{file}, row {nth}", row))
    return rows


def _parse_parquet(file: Path, data: bytes) -> Rows:
    """Read a file of a dataset as Hugging Face keeps them."""
    try:
        # By its name, because it has no types and is not ours to need.
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ModuleNotFoundError:
        raise ConfigError(f"{file}: Parquet needs pyarrow: pip install pyarrow") from None
    try:
        rows: list[object] = parquet.read_table(io.BytesIO(data)).to_pylist()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file}: not Parquet: {error}") from None
    return [(f"{file}, row {nth}", row) for nth, row in enumerate(rows, 1)]


_READERS: Mapping[str, Callable[[Path, bytes], Rows]] = {
    ".csv": _parse_table,
    ".json": _parse_json,
    ".jsonl": _parse_lines,
    ".parquet": _parse_parquet,
    ".tsv": _parse_table,
    ".yaml": _parse_yaml,
    ".yml": _parse_yaml,
}


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
