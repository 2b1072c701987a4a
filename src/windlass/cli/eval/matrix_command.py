"""`windlass eval matrix`: several agents or settings on the same cases, within one budget."""

import asyncio
import itertools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from windlass.cli.command_context import load_context
from windlass.cli.eval.evaluated_agents import load_maker, make_project_maker
from windlass.cli.eval.gate import choose_name, make_cli_budget
from windlass.cli.exit_codes import DONE, FAILED, LIMIT, WAITS
from windlass.cli.options import agent_options, collect_flags
from windlass.core.errors import ConfigError
from windlass.core.suggestions import suggest_names
from windlass.environ import find_login_name
from windlass.evaluation.cases import Case, choose_cases, load_cases, make_id
from windlass.evaluation.checks import parse_check
from windlass.evaluation.evaluation_run import AT_ONCE, EvaluateOptions, check_evaluation_name
from windlass.evaluation.matrix import MatrixReport, evaluate_matrix
from windlass.evaluation.trials import AgentMaker
from windlass.project.journals import journal_name, open_journal

VARIED = ("agent", "base_url", "model", "system", "tools")
"""The settings that `--vary` may change."""


@click.command(
    epilog="""\b
Examples:
  windlass eval matrix cases.yaml app:small app:large --repeat 5 --budget 10
  windlass eval matrix cases.yaml --vary model=openai:a --vary model=openai:b \\
      --vary system=@short.txt --vary system=@long.txt --name prompts

\b
Exit codes:
  0  all trials were run
  1  a provider was not available, or a scorer failed
  3  trials wait for a person: windlass approve; then run it again
  4  the budget was used up first; run it again with a larger one"""
)
@click.argument("source", metavar="CASES")
@click.argument("targets", nargs=-1, metavar="[MODULE:NAME]...")
@click.option(
    "--vary",
    multiple=True,
    metavar="SETTING=VALUE",
    help="Settings of the folder's agent: model, system, tools, agent, base_url. All combinations.",
)
@click.option("--name", help="Of the evaluation. Reuse a name to continue after a crash.")
@click.option("--repeat", type=click.IntRange(1), default=1, show_default=True, help="Per case.")
@click.option("--at-once", type=click.IntRange(1), default=AT_ONCE, show_default=True)
@click.option("--only", multiple=True, metavar="WORD", help="Cases with this id or tag.")
@click.option("--check", "checks", multiple=True, metavar="SCORER[:VALUE]", help="For all cases.")
@click.option("--budget", metavar="USD", help="Cost limit of all variants together.")
@click.option("--budget-tokens", type=click.IntRange(1), metavar="N", help="The same in tokens.")
@click.option("--generalize", is_flag=True, help="Generalize to similar cases.")
@click.option("--json", "json_file", metavar="FILE", help="Write the result as JSON.")
@click.option("--journal", metavar="NAME", help="Where the trials are kept: a path or URL.")
@agent_options
def matrix(source: str, targets: tuple[str, ...], **given: Any) -> None:  # noqa: ANN401 - the flags of click
    """Try every case with several agents, and compare each with each.

    The variants are programs, MODULE:NAME, or the settings that --vary names. Each is an evaluation
    of its own, NAME@VARIANT.
    """
    if bool(targets) == bool(given["vary"]):
        raise ConfigError("give several MODULE:NAME, or --vary SETTING=VALUE several times")
    name = check_evaluation_name(given["name"] or choose_name(source))
    cases = choose_cases(load_cases(source), given["only"])
    variants: Mapping[str, AgentMaker]
    if targets:
        variants = {make_id(target): load_maker(target) for target in targets}
    else:
        variants = _vary_settings(given)
    found = asyncio.run(_run(name, cases, variants, given))
    if given["json_file"]:
        data = msgspec.json.format(msgspec.json.encode(found), indent=1)
        Path(given["json_file"]).write_bytes(data + b"\n")
    click.echo(str(found))
    sys.exit(_find_code(found))


def _vary_settings(given: Mapping[str, Any]) -> dict[str, AgentMaker]:
    """Return the project's agent with every combination of the settings."""
    choices: dict[str, list[str]] = {}
    for words in given["vary"]:
        key, _, value = words.partition("=")
        if key not in VARIED:
            raise ConfigError(f"--vary {words}: no setting {key!r}.{suggest_names(key, VARIED)}")
        choices.setdefault(key, []).append(value)
    makers: dict[str, AgentMaker] = {}
    for values in itertools.product(*choices.values()):
        settings = dict(zip(choices, values, strict=True))
        flags = collect_flags({**given, **settings})
        context = load_context(flags, trust=given["trust"]).with_chosen_model()
        shown = ".".join(f"{key}={value}" for key, value in settings.items())
        makers[make_id(shown)] = make_project_maker(context.agent)
    return makers


async def _run(
    name: str, cases: Sequence[Case], variants: Mapping[str, AgentMaker], given: Mapping[str, Any]
) -> MatrixReport:
    async with open_journal(journal_name(named=given["journal"])) as journal:
        options = EvaluateOptions(
            repeat=given["repeat"],
            at_once=given["at_once"],
            budget=make_cli_budget(name, given["budget"], given["budget_tokens"]),
            journal=journal,
            caller=find_login_name(),
        )
        scorers = [parse_check(check) for check in given["checks"]]
        return await evaluate_matrix(
            variants, cases, name=name, scorers=scorers, generalize=given["generalize"], **options
        )


def _find_code(found: MatrixReport) -> int:
    statuses = {trial.status for report in found.variants.values() for trial in report.trials}
    if statuses & {"error", "unscored"}:
        return FAILED
    if "waiting" in statuses:
        return WAITS
    return LIMIT if "not_run" in statuses else DONE
