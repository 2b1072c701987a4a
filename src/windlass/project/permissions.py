"""What an agent may do, from the settings of a project: its permission mode and its policies."""

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from windlass.core.errors import ConfigError
from windlass.gates.combined import all_of
from windlass.gates.data_flow import flow_guard
from windlass.gates.policy_file import GuardedRules, load_policy, parse_policy
from windlass.gates.presets import allow_all, allow_edits, ask, plan, read_only
from windlass.gates.rules import RuleGate
from windlass.gates.safe_commands import SafeCommandGate
from windlass.gates.settings_files import guard_settings_files
from windlass.ports import Gate, GateRequest
from windlass.project.hooks import hook_gates
from windlass.project.layers import LoadedSettings, PolicySource
from windlass.project.settings import PermissionMode
from windlass.project.trust import ProjectFolder, own_files

GATE_PRESETS: Mapping[PermissionMode, Callable[[Path], Gate]] = {
    "ask": lambda folder: SafeCommandGate(ask(), folder),
    "read-only": lambda _folder: read_only(),
    "allow-edits": lambda folder: SafeCommandGate(allow_edits(), folder),
    "plan": lambda folder: SafeCommandGate(plan(), folder, denied_too=True),
    "allow-all": lambda _folder: allow_all(),
}
ADDRESSES_KEY = "windlass_typed_addresses"
"""The key of the addresses that the person typed, in the context of a run."""


def build_gate(loaded: LoadedSettings, folder: Path, project: ProjectFolder) -> Gate:
    """All rules that are in force as one gate: the strictest verdict wins.

    These are the permission mode, the policies of the user and of the project, the flow guard
    unless it is off, and a question before the project's own settings are changed.
    """
    settings = loaded.settings
    gates: list[Gate] = [*hook_gates(settings.hooks)]
    if loaded.uses_mode:
        gates.append(GATE_PRESETS[settings.permission_mode](folder))
    for source in loaded.policies:
        gates += _load_policy(source, folder, project)
    if settings.flow_guard:
        gates.append(flow_guard(typed_addresses=_read_typed_addresses))
    settings_files = (*project.snapshot.digests, *map(str, own_files()), *named_files(loaded))
    gates.append(guard_settings_files(folder, settings_files))
    return all_of(*gates)


def named_files(loaded: LoadedSettings) -> tuple[str, ...]:
    """The files that a person named themselves: policies, manifests of tools, a file of servers.

    They are not part of a digest, so what changes one decides what the next run may do.
    """
    named = [source.path for source in loaded.policies if not source.by_project]
    named += loaded.settings.tool_files
    servers = loaded.settings.mcp_config
    if servers and "mcp_config" not in loaded.project_keys:
        named.append(servers)
    return tuple(named)


def _read_typed_addresses(request: GateRequest) -> tuple[str, ...]:
    """The addresses that `launch_context` recorded with the run."""
    try:
        return msgspec.convert(request.context.get(ADDRESSES_KEY, ()), tuple[str, ...])
    except msgspec.ValidationError:
        # Another program may use the same key for something else.
        return ()


def _load_policy(source: PolicySource, folder: Path, project: ProjectFolder) -> list[Gate]:
    """The gates of one policy file. What a project that is not trusted allows is left out."""
    if not source.by_project:
        return [load_policy(source.path, root=folder)]
    path = Path(source.path)
    data = project.snapshot.read(path)
    if data is None:
        raise ConfigError(f"the policy {path} cannot be read: there is no such file")
    try:
        gate = parse_policy(data.decode(), name=path.stem, source=source.path, root=folder)
    except UnicodeDecodeError:
        raise ConfigError(f"the policy {path} cannot be read: it is not UTF-8") from None
    if not source.restricts_only:
        return [gate]
    strict = [rule for rule in gate.rules if rule.decision != "allow"]
    name = f"untrusted {path.stem}"
    gates: list[Gate] = [RuleGate(strict, default="allow", name=name, root=folder)]
    if isinstance(gate, GuardedRules):
        gates.append(gate.guard)
    return gates
