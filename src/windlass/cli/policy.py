"""`windlass policy`: is a policy file valid, and what does it decide about a call?"""

import sys
from typing import Literal, NoReturn

import click

from windlass.core.errors import ConfigError
from windlass.core.messages import Effect
from windlass.core.phrases import format_count
from windlass.gates.policy_file import GuardedRules, load_policy
from windlass.gates.written_calls import parse_written_call

UNSOUND_CODE = 2
"""The exit code for a policy or a call that is not valid."""


@click.group()
def policy() -> None:
    """Check a policy file, and ask it about a call."""


@policy.command()
@click.argument("file")
def check(file: str) -> None:
    """Read FILE and check the examples of its rules.

    The exit code is 0 if the policy is valid and 2 if it is not.
    """
    try:
        gate = load_policy(file)
    except ConfigError as error:
        _exit_unsound(error)
    examples = sum(len(rule.matches) + len(rule.not_matches) for rule in gate.rules)
    click.echo(
        f"{file}: {format_count(len(gate.rules), 'rule')}, {format_count(examples, 'example')}, "
        f"default {gate.default}, {gate.name}"
    )
    if isinstance(gate, GuardedRules):
        click.echo(f"flow guard: {gate.guard.decision}")


@policy.command()
@click.argument("file")
@click.argument("call")
@click.option(
    "--effect",
    type=click.Choice(["read", "idempotent", "write"]),
    help="The effect of the tool; by default, that of the core tool with this name, or write.",
)
@click.option("--root", help="The folder that relative paths are resolved against.")
def explain(
    file: str,
    call: str,
    effect: Literal["read", "idempotent", "write"] | None,
    root: str | None,
) -> None:
    """Show what FILE decides about CALL, and why. Nothing runs.

    CALL is written as 'bash({"command": "rm -rf /"})', or shorter as 'bash(rm -rf /)'.
    """
    declared: Effect | None = effect
    try:
        gate = load_policy(file, root=root)
        request = parse_written_call(call, effect=declared, root=root)
    except ConfigError as error:
        _exit_unsound(error)
    ruling = gate.decide_call(request)
    click.echo(f"decision  {ruling.decision}")
    if ruling.rule is None:
        click.echo(f"rule      default {gate.default}")
    else:
        number = gate.rules.index(ruling.rule) + 1
        click.echo(f"rule      {ruling.rule}  ({number} of {len(gate.rules)})")
    click.echo(f"why       {ruling.explanation}")
    if ruling.rule and ruling.rule.reason:
        click.echo(f"reason    {ruling.rule.reason}")
    if isinstance(gate, GuardedRules):
        condition = "if it sends data out while the session holds untrusted and private content"
        click.echo(f"flow      {gate.guard.decision}, {condition}")


def _exit_unsound(error: ConfigError) -> NoReturn:
    click.echo(f"Error: {error}", err=True)
    sys.exit(UNSOUND_CODE)
