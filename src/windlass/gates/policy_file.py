"""A policy in a TOML file: the same rules as in code, with line numbers in its errors.

    default = "ask"

    [[rule]]
    allow = "bash(git status*)"
    matches = ["git status --short"]
    not_matches = ["git status && rm -rf x"]

    [[rule]]
    deny = "write(.git/**)"
    reason = "Git keeps its own files."

    [[rule]]
    ask = "refund"
    role = "finance"
    people = 2
    not_starter = true

Or, where the order does not matter, three lists. Denials are checked first, then questions.

    allow = ["read", "bash(ls *)"]
    deny = ["bash(rm *)"]

`flow_guard = true` adds the flow guard to the rules; "ask" is the same, and "deny" denies.

Invariant: a policy that cannot be read, or that has an unknown key, is an error at the start.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import cast

import msgspec
from typing_extensions import override

from windlass.core.errors import ConfigError
from windlass.core.suggestions import suggest_names
from windlass.core.toml_text import read_toml
from windlass.core.verdicts import Allow, Approval, Deny, Verdict
from windlass.gates.combined import all_of
from windlass.gates.data_flow import FlowGuard, flow_guard
from windlass.gates.rules import Decision, Rule, RuleGate, check_decision
from windlass.ports import GateRequest

DECISION_ORDER: tuple[Decision, ...] = ("deny", "ask", "allow")
POLICY_KEYS = ("default", "rule", *DECISION_ORDER, "deny_replies", "flow_guard")
POLICY_BYTES_MAX = 1_048_576
RULE_KEYS = (*DECISION_ORDER, "reason", "matches", "not_matches", *Approval.__struct_fields__)

_RULE_LINE = re.compile(r"^\s*\[\[\s*rule\s*\]\]")


class GuardedRules(RuleGate):
    """The rules of a file together with the flow guard: the stricter verdict wins."""

    def __init__(
        self, rules: RuleGate, guard: FlowGuard, *, root: str | PathLike[str] | None = None
    ) -> None:
        super().__init__(
            rules.rules,
            default=rules.default,
            name=rules.title,
            root=root,
            approval=rules.approval,
        )
        self.guard = guard
        self._combined_gate = all_of(rules, guard)
        self.name = self._combined_gate.name

    @property
    @override
    def judges_replies(self) -> bool:
        return self._combined_gate.judges_replies

    @override
    async def judge(self, request: GateRequest) -> Verdict:
        return await self._combined_gate.judge(request)

    @override
    async def judge_reply(self, session: str, text: str) -> Allow | Deny:
        return await self._combined_gate.judge_reply(session, text)


def load_policy(path: str | PathLike[str], *, root: str | PathLike[str] | None = None) -> RuleGate:
    """The gate that a policy file describes. Raises ConfigError with the line of the mistake.

    `root`: the folder where relative paths in the rules start.
    """
    file = Path(path)
    try:
        # Bytes, because text mode would translate a bare carriage return, which may hide a line in
        # an editor. TOML refuses it.
        with file.open("rb") as opened:
            data = opened.read(POLICY_BYTES_MAX + 1)
        text = data.decode("utf-8")
    except OSError as error:
        raise ConfigError(f"the policy {file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"the policy {file} cannot be read: it is not UTF-8") from None
    if len(data) > POLICY_BYTES_MAX:
        raise ConfigError(f"the policy {file} cannot be read: it is larger than 1 MiB")
    return parse_policy(text, name=file.stem, source=str(file), root=root)


def parse_policy(
    text: str,
    *,
    name: str = "policy",
    source: str = "the policy",
    root: str | PathLike[str] | None = None,
) -> RuleGate:
    """The gate that a policy describes. Raises ConfigError with `source` and the line.

    `name`: of the gate, in records; `source`: how errors call the policy.
    """
    return _PolicyReader(text, source).build_gate(name, root)


class _PolicyReader:
    """Builds a gate from the text of a policy, and finds the lines for errors."""

    def __init__(self, text: str, source: str) -> None:
        self._lines = text.splitlines()
        self._source = source
        try:
            self._table: dict[str, object] = read_toml(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{source} is not TOML: {error}") from None

    def build_gate(self, name: str, root: str | PathLike[str] | None) -> RuleGate:
        self._check_keys(self._table, POLICY_KEYS, self._find_key_line)
        default = self._table.get("default", "ask")
        if not isinstance(default, str):
            raise self._error_at(
                'default must be text, such as "ask"', self._find_key_line("default")
            )
        try:
            check_decision(default)
        except ConfigError as error:
            raise self._error_at(str(error), self._find_key_line("default")) from None
        rules = [*self._read_lists(), *self._read_tables()]
        replies = self._read_texts(self._table, "deny_replies", self._find_key_line("deny_replies"))
        decision = cast("Decision", default)
        gate = RuleGate(rules, default=decision, name=name, reply=replies or None, root=root)
        guard = self._read_flow_guard()
        return GuardedRules(gate, guard, root=root) if guard else gate

    def _read_flow_guard(self) -> FlowGuard | None:
        setting = self._table.get("flow_guard", False)
        if isinstance(setting, bool):
            return flow_guard() if setting else None
        if setting not in ("ask", "deny"):
            message = 'flow_guard must be true, false, "ask" or "deny"'
            raise self._error_at(message, self._find_key_line("flow_guard"))
        return flow_guard(setting)

    def _read_lists(self) -> Iterator[Rule]:
        given: list[Decision] = [key for key in DECISION_ORDER if key in self._table]
        if given and "rule" in self._table:
            raise self._error_at(
                "use lists or [[rule]] tables, not both: their order would not be clear",
                self._find_key_line(given[0]),
            )
        for decision in given:
            for pattern in self._read_texts(self._table, decision, self._find_key_line(decision)):
                yield self._make_rule(decision, pattern, {}, self._find_text_line(pattern))

    def _read_tables(self) -> Iterator[Rule]:
        tables = self._table.get("rule", [])
        if not isinstance(tables, list):
            raise self._error_at("write [[rule]], with two brackets", self._find_key_line("rule"))
        lines = [at for at, line in enumerate(self._lines, 1) if _RULE_LINE.match(line)]
        for at, table in enumerate(cast("list[object]", tables)):
            line = lines[at] if at < len(lines) else 0
            if not isinstance(table, dict):
                raise self._error_at("a rule must be a table: [[rule]]", line)
            yield self._read_table(cast("dict[str, object]", table), line)

    def _read_table(self, table: dict[str, object], line: int) -> Rule:
        self._check_keys(table, RULE_KEYS, lambda _: line)
        given: list[Decision] = [key for key in DECISION_ORDER if key in table]
        if len(given) != 1:
            raise self._error_at("a rule must have exactly one of allow, ask and deny", line)
        pattern = table[given[0]]
        if not isinstance(pattern, str):
            raise self._error_at(f"{given[0]} must be text: write a rule for each pattern", line)
        return self._make_rule(given[0], pattern, table, line)

    def _make_rule(
        self, decision: Decision, pattern: str, table: Mapping[str, object], line: int
    ) -> Rule:
        reason = table.get("reason", "")
        if not isinstance(reason, str):
            raise self._error_at("reason must be text", line)
        matches = self._read_texts(table, "matches", line)
        not_matches = self._read_texts(table, "not_matches", line)
        given = {key: table[key] for key in Approval.__struct_fields__ if key in table}
        try:
            approval = msgspec.convert(given, Approval) if given else None
            return Rule(decision, pattern, reason, matches, not_matches, approval)
        except (ConfigError, msgspec.ValidationError) as error:
            raise self._error_at(str(error), line) from None

    def _read_texts(self, table: Mapping[str, object], key: str, line: int) -> tuple[str, ...]:
        value = table.get(key, [])
        if isinstance(value, list):
            items = cast("list[object]", value)
        else:
            items = [None]
        texts = tuple(item for item in items if isinstance(item, str))
        if len(texts) != len(items):
            raise self._error_at(f'{key} must be a list of texts, such as ["bash(ls *)"]', line)
        return texts

    def _check_keys(
        self, table: Mapping[str, object], known: tuple[str, ...], line_of: Callable[[str], int]
    ) -> None:
        for key in table:
            if key not in known:
                message = f"unknown key {key!r}.{suggest_names(key, known)}"
                raise self._error_at(message, line_of(key))

    def _find_key_line(self, key: str) -> int:
        form = re.compile(rf"""^\s*(\[+\s*)?["']?{re.escape(key)}["']?\s*[=\].]""")
        return next((at for at, line in enumerate(self._lines, 1) if form.match(line)), 0)

    def _find_text_line(self, text: str) -> int:
        return next((at for at, line in enumerate(self._lines, 1) if text in line), 0)

    def _error_at(self, message: str, line: int) -> ConfigError:
        place = f"{self._source}, line {line}" if line else self._source
        return ConfigError(f"{place}: {message}")
