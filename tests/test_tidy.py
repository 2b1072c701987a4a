"""The shape of the code, as a test: a limit that no machine checks is a wish.

A limit is a question: does this still read well? Where breaking one reads better, the exception is
listed here with its reason. The complexity of functions is limited by the linter (C901).
"""

import ast
import importlib
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from windlass.lazy_modules import find_homes

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "windlass"

MODULE_LINES_MAX = 400
"""What can be read in one sitting."""
LONG_MODULES = {
    "src/windlass/agent/handles.py": "a start returns a handle",
    "src/windlass/agent/openings.py": "what is asked for, and the facts that it becomes",
    "src/windlass/agent/runs.py": "a driver from its making to its last late result",
    "src/windlass/server/service.py": "a service from its start to its drain",
    "src/windlass/runtime/driver.py": "one run from its lease to its end",
    "src/windlass/core/messages.py": "a message with each kind of its parts",
    "src/windlass/core/state.py": "the fields of a session, each with what it means",
    "src/windlass/runtime/attempt.py": "one request from its first byte to its charge",
}
"""Longer modules, each with the reason why it reads better as one."""
LOOP_LINES_MAX = 300
"""The loop is the shortest way to understand the program, and must stay it."""
FUNCTION_LINES_MAX = 40
"""What fits on a screen."""
LONG_FUNCTIONS = {
    "src/windlass/core/fold/run.py": "_apply_in_run",  # one arm for each fact
    "src/windlass/runtime/loop.py": "run_loop",  # one arm for each move
    "src/windlass/core/projection/project.py": "_apply_fact",  # one arm for each fact
    "src/windlass/runtime/mailbox.py": "_make_fact",  # one arm for each message
    "src/windlass/runtime/attempt.py": "stream",  # each way in which a request can end
}
"""Longer functions, each with the reason why it reads better as one."""
SMALL_LINES = 60
"""A smaller module with one importer is a wall in the way: it belongs to its importer."""
SAME_PREFIX_MAX = 2
"""Three files of one folder that begin with the same word are a folder of their own."""
ARCHITECTURE_LINES_MAX = 230

SMALL_MODULES = {
    "windlass.core.event_json",  # above the union of events, whose module is full
    "windlass.models.lazy_providers",  # only another module can read its lazy names
    "windlass.server.lazy_sockets",  # as above
    # A command of the command line is a module, which is imported when the command is run.
    "windlass.cli.acp",
    "windlass.cli.completion",
}

# Written with character classes, so that the patterns do not find themselves.
MACHINE_PATH = re.compile(r"(?<![\w.$~{}<>/-])[/](work|home|root|Users|opt[/]pypi)[/][\w.]")
REGISTRY = re.compile(
    r"pypi[.]org|pythonhosted[.]org|registry[.]npmjs|(index|find)[-](url|links)\b"
)


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def lines_of(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


@cache
def tree_of(path: Path) -> ast.Module:
    """Parsed once for all the tests here."""
    return ast.parse(path.read_text("utf-8"), str(path))


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in modules():
        yield name_of(path), tree_of(path)


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def own_imports(tree: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports of our own modules, wherever in the tree they stand."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names) if any(n.name.split(".")[0] == "windlass" for n in names):
                yield node
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] == "windlass":
                yield node
            case _:
                pass


def test_a_module_fits_in_a_sitting() -> None:
    long = [name_of(path) for path in modules() if lines_of(path) > MODULE_LINES_MAX]
    assert [name for name in long if name not in LONG_MODULES] == []


def test_a_function_fits_on_a_screen() -> None:
    long = [
        f"{name}:{function.lineno} {function.name}"
        for name, tree in trees()
        for function in functions(tree)
        if (function.end_lineno or 0) - function.lineno + 1 > FUNCTION_LINES_MAX
        if LONG_FUNCTIONS.get(name) != function.name
    ]
    assert long == []


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def importers() -> dict[str, set[str]]:
    """The modules that import each module of ours, lazily or not."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in modules():
        for node in own_imports(tree_of(path)):
            if isinstance(node, ast.ImportFrom) and node.module:
                found[node.module].add(module_of(path))
                for alias in node.names:
                    found[f"{node.module}.{alias.name}"].add(module_of(path))
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.name].add(module_of(path))
    return found


def test_a_small_module_has_more_than_one_importer() -> None:
    found = importers()
    walls = {
        module_of(path)
        for path in modules()
        if not path.stem.startswith("__")
        if lines_of(path) < SMALL_LINES and len(found[module_of(path)]) == 1
    }
    assert walls - SMALL_MODULES == set()
    assert SMALL_MODULES - walls == set(), "no exception any more"


def test_files_that_share_a_word_have_a_folder() -> None:
    prefixes = Counter(
        (name_of(path.parent), path.stem.split("_")[0])
        for path in modules()
        if "_" in path.stem.strip("_")
    )
    assert [prefix for prefix, count in prefixes.items() if count > SAME_PREFIX_MAX] == []


def test_no_class_name_is_used_twice() -> None:
    """So that a search for a class finds one."""
    names = Counter(
        node.name
        for _, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_a_module_says_what_it_is_for() -> None:
    assert [name for name, tree in trees() if not ast.get_docstring(tree)] == []


def test_the_loop_stays_the_one_place_to_read() -> None:
    loop = SOURCE / "runtime" / "loop.py"
    assert not loop.exists() or lines_of(loop) <= LOOP_LINES_MAX


def test_the_guide_names_functions_where_they_are() -> None:
    """Each "`name` in `file.py`" of the guide: the file defines the name."""
    guide = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    named = re.findall(r"`([\w.]+)` in\s+`([\w/]+\.py)`", guide)
    stale = [
        f"{name} in {file}"
        for name, file in named
        if not re.search(
            rf"(?:def|class) {name.rpartition('.')[2]}\b|^{name}\b",
            (SOURCE / file).read_text("utf-8"),
            re.MULTILINE,
        )
    ]
    assert named
    assert stale == []


def test_the_architecture_stays_readable() -> None:
    page = ROOT / "ARCHITECTURE.md"
    assert not page.exists() or lines_of(page) <= ARCHITECTURE_LINES_MAX


def type_checking_imports(tree: ast.Module) -> dict[str, str]:
    """The imports of ours that only a type checker and the import contract see: name, module."""
    return {
        alias.asname or alias.name: node.module or ""
        for branch in tree.body
        if isinstance(branch, ast.If) and ast.unparse(branch.test) == "TYPE_CHECKING"
        for node in own_imports(branch)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def lazy_modules(tree: ast.Module) -> dict[str, str]:
    """The table `LAZY_MODULES` of a module: what it imports by name, when it is first used."""
    for node in tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name("LAZY_MODULES"), value=ast.Dict() as table):
                return find_homes(ast.literal_eval(table))
            case _:
                pass
    return {}


def test_the_tables_of_lazy_modules_are_sorted() -> None:
    """A name of a table has one place, which a reader finds without a search."""
    for name, tree in trees():
        for node in tree.body:
            match node:
                case ast.AnnAssign(target=ast.Name("LAZY_MODULES"), value=ast.Dict() as table):
                    rows: dict[str, str] = ast.literal_eval(table)
                    assert list(rows) == sorted(rows), name
                    assert [*rows.values()] == [
                        " ".join(sorted(set(names.split()))) for names in rows.values()
                    ], name
                case _:
                    pass


def test_no_import_of_ours_hides() -> None:
    """An own import that is not at the top level of its module is a cycle that hides.

    Lazy imports do not hide: they stand under TYPE_CHECKING, where the import contract sees them.
    """
    hidden = [
        f"{name}:{node.lineno}"
        for name, tree in trees()
        for node in own_imports(tree)
        if node not in tree.body
        if not (isinstance(node, ast.ImportFrom) and node.module in lazy_modules(tree).values())
    ]
    assert hidden == []


def test_the_tables_of_lazy_modules_say_what_the_import_contract_reads() -> None:
    tables = {name: lazy_modules(tree) for name, tree in trees()}
    assert tables == {name: type_checking_imports(tree) for name, tree in trees()}
    for name, table in tables.items():
        for attribute, module in table.items():
            assert hasattr(importlib.import_module(module), attribute), f"{name}: {attribute}"


def test_no_other_text_names_a_module_of_ours() -> None:
    """A module that is imported by name outside of a table is an import that no contract sees."""
    ours = {module_of(path) for path in modules()} - {"windlass"}
    named = [
        f"{name}:{node.lineno} {node.value}"
        for name, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in ours
        if node.value not in lazy_modules(tree).values()
    ]
    assert named == []


def opens_front_door(node: ast.Import | ast.ImportFrom) -> bool:
    """Whether an import binds the package itself. `import windlass.a.b as b` binds a module."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "windlass"
    return any(alias.asname is None or alias.name == "windlass" for alias in node.names)


def test_nothing_inside_imports_the_front_door() -> None:
    """`from windlass import …` inside the package would be a cycle that no layer shows."""
    through = [
        f"{name}:{node.lineno}"
        for name, tree in trees()
        for node in own_imports(tree)
        if opens_front_door(node)
    ]
    assert through == []


def kind_and_name(name: str) -> tuple[int, str]:
    """The linter's order: constants, then classes, then the rest."""
    if name.isupper():
        return 0, name
    return (1 if name[0].isupper() else 2), name


PUBLIC_PACKAGES = [
    "windlass",
    "windlass.client",
    "windlass.evaluation",
    "windlass.gates",
    "windlass.journals",
    "windlass.knowledge",
    "windlass.models",
    "windlass.notebook",
    "windlass.project",
    "windlass.server",
    "windlass.telemetry",
    "windlass.testing",
    "windlass.tools",
]


@pytest.mark.parametrize("name", PUBLIC_PACKAGES)
def test_the_public_names_are_sorted_and_complete(name: str) -> None:
    package = importlib.import_module(name)
    public: list[str] = getattr(package, "__all__", [])
    path = SOURCE.joinpath(*name.split(".")[1:], "__init__.py")
    tree = tree_of(path)
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        if node.module not in ("typing", "windlass.lazy_modules")
        for alias in node.names
    }
    assert public == sorted(set(public), key=None if lazy_modules(tree) else kind_and_name)
    assert imported | set(lazy_modules(tree)) == set(public)
    assert [name for name in public if not hasattr(package, name)] == []


def test_every_event_is_in_the_one_union() -> None:
    """E1: closed, so that a match over it can be exhaustive."""
    events = importlib.import_module("windlass.core.events")
    placed = {kind.__name__ for kind in events.PlacedEvent.__subclasses__()}
    assert {kind.__name__ for kind in get_args(events.Event)} == placed


@pytest.mark.slow
def test_the_layers_hold() -> None:
    """In a process of its own: the linter takes over the logging of the one that it runs in."""
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", code, "--no-cache"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


def tracked() -> Iterator[tuple[str, str]]:
    """Each text file that is, or is about to be, in the repository."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        try:
            yield name, (ROOT / name).read_text("utf-8")
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue


@pytest.mark.parametrize("pattern", [MACHINE_PATH, REGISTRY], ids=["paths", "registries"])
def test_no_machine_and_no_registry_is_named(pattern: re.Pattern[str]) -> None:
    found = [
        f"{name}:{number} {line.strip()[:80]}"
        for name, text in tracked()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (MACHINE_PATH, "see " + "/ho" + "me/ann/notes", True),
        (MACHINE_PATH, "$HOME" + "/wo" + "rk/notes", False),
        (MACHINE_PATH, "docs/wo" + "rk/notes", False),
        (REGISTRY, "--extra-index" + "-url x", True),
        (REGISTRY, "the index of links", False),
    ],
)
def test_the_patterns_find_what_they_should(
    pattern: re.Pattern[str],
    text: str,
    found: bool,  # noqa: FBT001
) -> None:
    assert bool(pattern.search(text)) is found
