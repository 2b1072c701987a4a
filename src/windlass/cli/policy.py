"""`windlass policy`: is a policy sound, and what would it say of a call?"""

import sys
from typing import Literal, NoReturn

import click

from windlass.core.errors import ConfigError
from windlass.core.messages import Effect
from windlass.gates.policy_file import GuardedRules, load_policy
from windlass.gates.written_calls import parse_written_call

UNSOUND_CODE = 2
"""The exit code for a policy, or a call, that cannot be read."""


@click.group()
def policy() -> None:
    """Check a policy file, and ask it about a call."""


@policy.command()
@click.argument("file")
def check(file: str) -> None:
    """Read FILE and run the examples of its rules: all must hold.

    The exit code is 0 if the policy is sound and 2 if it is not.
    """
    try:
        gate = load_policy(file)
    except ConfigError as error:
        _exit_unsound(error)
    examples = sum(len(rule.matches) + len(rule.not_matches) for rule in gate.rules)
    click.echo(
        f"{file}: {_count_noun(len(gate.rules), 'rule')}, {_count_noun(examples, 'example')}, "
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
    help="What the tool declares; without it, what the core tool of this name does, or write.",
)
@click.option("--root", help="The folder where relative paths begin.")
def explain(
    file: str,
    call: str,
    effect: Literal["read", "idempotent", "write"] | None,
    root: str | None,
) -> None:
    """Say what FILE decides about CALL, and why. Nothing is run.

    CALL is written as 'bash({"command": "rm -rf /"})', or in short as 'bash(rm -rf /)'.
    """
    declared: Effect | None = effect
    try:
        gate = load_policy(file, root=root)
        asked = parse_written_call(call, effect=declared, root=root)
    except ConfigError as error:
        _exit_unsound(error)
    ruling = gate.decide_call(asked)
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
        held = "if it sends out, and the session holds untrusted and private content"
        click.echo(f"flow      {gate.guard.decision}, {held}")


def _count_noun(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _exit_unsound(error: ConfigError) -> NoReturn:
    click.echo(f"Error: {error}", err=True)
    sys.exit(UNSOUND_CODE)
