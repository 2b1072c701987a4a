"""`windlass eval`: run an evaluation, compare two, show one, watch one.

Exit codes: 0 if the gate passes, 1 if it does not, a provider was not available or a scorer failed,
3 if trials wait for a person, 4 if the budget was used up before all trials were run.
"""

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from windlass.cli.command_context import load_context
from windlass.cli.eval.evaluated_agents import load_maker, make_project_maker
from windlass.cli.eval.evaluation_screen import TrialScreen, show_report, show_totals
from windlass.cli.eval.gate import (
    choose_name,
    find_report,
    is_report_file,
    judge_report,
    load_chosen_cases,
    make_cli_budget,
    write_files,
)
from windlass.cli.eval.matrix_command import matrix
from windlass.cli.exit_codes import DONE, FAILED
from windlass.cli.journal_option import journal_option, run_on_journal
from windlass.cli.options import agent_options, collect_flags
from windlass.cli.resource_commands import show_resources
from windlass.core.errors import ConfigError, NothingToDo
from windlass.core.verdicts import Allow, Deny
from windlass.environ import find_login_name
from windlass.evaluation.cases import Case, check_cases, choose_cases, load_cases
from windlass.evaluation.checks import parse_check
from windlass.evaluation.comparing import compare_reports
from windlass.evaluation.comparison import ALPHA
from windlass.evaluation.evaluating import evaluate, rescore
from windlass.evaluation.evaluation_run import AT_ONCE, EvaluateOptions, check_evaluation_name
from windlass.evaluation.forks import cases_from_sessions
from windlass.evaluation.reports import Report, load_report
from windlass.evaluation.stored_reports import (
    StoredEvaluation,
    list_evaluations,
    read_evaluation,
)
from windlass.evaluation.trials import AgentMaker, AnswerQuestion
from windlass.evaluation.wording import format_rate
from windlass.ports import Journal
from windlass.project.journals import OpenedJournal, journal_name, open_journal

WATCH_S = 1.0
"""How often an evaluation is looked at that another process runs."""
CHECK_HELP = (
    "A scorer for all cases: used:refund, steps_at_most:5. Without a value, output_contains and "
    "output_equals compare with the field `expected` of each case."
)
ANSWERS: Mapping[str, AnswerQuestion] = {
    "allow": lambda _question: Allow(),
    "deny": lambda _question: Deny("Nobody is here to allow it."),
}

output_options = (
    click.option("--json", "json_file", metavar="FILE", help="Write the report as JSON."),
    click.option("--html", "html_file", metavar="FILE", help="Write it as one HTML file."),
    click.option(
        "--sessions-url",
        metavar="URL",
        default="",
        help="The address of a service: sessions in the HTML link to its page.",
    ),
    click.option(
        "--alpha",
        type=click.FloatRange(0, 1, min_open=True, max_open=True),
        default=ALPHA,
        show_default=True,
        help="Chance of calling an unchanged agent worse.",
    ),
    click.option("--group-by", metavar="KEY", help="Group rates by tag, or by a metadata key."),
    click.option(
        "--generalize",
        is_flag=True,
        help="Generalize to similar cases, not only these.",
    ),
)


def _with_output(command: Any) -> Any:  # noqa: ANN401 - a function, as click decorates it
    for option in reversed(output_options):
        command = option(command)
    return command


@click.group(name="eval")
def eval_() -> None:
    """Find out whether a change made an agent better.

    Each trial is a session of the journal: eval/NAME/CASE/N. It can be shown, explained, replayed
    and forked like any other.
    """


eval_.add_command(matrix)


@eval_.command(
    epilog="""\b
Examples:
  windlass eval run cases.yaml --repeat 5 --check used:refund --budget 2
  windlass eval run cases.jsonl app:make_agent --baseline main.json --html report.html
  windlass eval run --from-sessions refund -m anthropic:claude-haiku-4-5 --name cheaper

\b
Exit codes:
  0  all trials were run; no gate, or the gate passes
  1  the gate does not pass, a provider was not available, or a scorer failed
  3  trials wait for a person: windlass approve; then run it again
  4  the budget was used up first; run it again with a larger one"""
)
@click.argument("source", required=False, metavar="[CASES]")
@click.argument("target", required=False, metavar="[MODULE:NAME]")
@click.option("--name", help="Of the evaluation. Reuse a name to continue after a crash.")
@click.option("--repeat", type=click.IntRange(1), default=1, show_default=True, help="Per case.")
@click.option(
    "--at-once",
    type=click.IntRange(1),
    default=AT_ONCE,
    show_default=True,
    help="Trials at a time.",
)
@click.option("--only", multiple=True, metavar="WORD", help="Cases with this id or tag.")
@click.option(
    "--sample",
    type=click.FloatRange(0, min_open=True),
    help="Sample this many cases, or a fraction.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Which ones --sample draws.")
@click.option(
    "--field", "fields", multiple=True, metavar="FIELD=COLUMN", help="Where a dataset has a field."
)
@click.option("--check", "checks", multiple=True, metavar="SCORER[:VALUE]", help=CHECK_HELP)
@click.option("--budget", metavar="USD", help="Cost limit of all trials together.")
@click.option("--budget-tokens", type=click.IntRange(1), metavar="N", help="The same in tokens.")
@click.option(
    "--baseline", metavar="REPORT", help="A report to compare with: fail if the result is worse."
)
@click.option(
    "--fail-under",
    type=click.FloatRange(0, 1),
    metavar="RATE",
    help="Fail if fewer trials pass, such as 0.9.",
)
@click.option(
    "--score-min",
    multiple=True,
    metavar="SCORER=MEAN",
    help="Fail if the mean of a graded score is lower, such as similar()=0.7.",
)
@click.option("--answer", type=click.Choice(tuple(ANSWERS)), help="What questions are answered.")
@click.option("--no-drive", is_flag=True, help="Leave the trials to workers of this journal.")
@click.option("--from-sessions", metavar="WORDS", help="Recorded sessions as cases; - for all.")
@click.option("--at", type=click.IntRange(1), metavar="RECORD", help="Fork each session there.")
@click.option(
    "--fork-tools",
    type=click.Choice(("replay", "live", "refuse")),
    default="replay",
    show_default=True,
    help="Source of a fork's tool results; live: run tools that only read.",
)
@click.option("--workspace", metavar="FOLDER", help="The folder of live forks; each gets a copy.")
@click.option("--allow", multiple=True, metavar="TOOL", help="Allow changes in a live fork.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Sessions.")
@click.option("--journal", metavar="NAME", help="Where the trials are kept: a path or URL.")
@_with_output
@agent_options
def run(source: str | None, target: str | None, **given: Any) -> None:  # noqa: ANN401 - the flags of click
    """Try every case of a file with an agent, and score it.

    CASES is a .jsonl, .json, .yaml, .csv, .parquet or .py file, or a folder of them. The agent is
    that of this folder's settings, or MODULE:NAME: an agent, or a function that makes the agent of
    a trial.
    """
    if given["from_sessions"] is not None and source is not None and target is None:
        # Without a file of cases, the agent is the only word that is left.
        source, target = None, source
    if (source is None) == (given["from_sessions"] is None):
        raise ConfigError("give a file of cases, or --from-sessions")
    name = check_evaluation_name(given["name"] or choose_name(source))
    cases = load_chosen_cases(source, given) if source else []
    if target is not None:
        opened = open_journal(journal_name(named=given["journal"]))
        maker = load_maker(target)
    else:
        context = load_context(collect_flags(given), trust=given["trust"]).with_chosen_model()
        opened = context.open_journal()
        maker = make_project_maker(context.agent)
    sys.exit(asyncio.run(_evaluate(opened, maker, cases, name, given)))


async def _evaluate(
    opened: OpenedJournal,
    maker: AgentMaker,
    cases: Sequence[Case],
    name: str,
    given: Mapping[str, Any],
) -> int:
    """Run the evaluation, show it, and return the exit code of its gate."""
    scorers = [parse_check(check) for check in given["checks"]]
    screen = TrialScreen()
    async with opened as journal:
        # Found first: a baseline that is missing is said before anything is paid for.
        before = await find_report(given["baseline"], journal) if given["baseline"] else None
        found = cases or await _find_cases(journal, given)
        screen.begin(name, found, given["repeat"])
        options = EvaluateOptions(
            repeat=given["repeat"],
            at_once=given["at_once"],
            budget=make_cli_budget(name, given["budget"], given["budget_tokens"]),
            journal=journal,
            answer=ANSWERS.get(given["answer"] or ""),
            drive=not given["no_drive"],
            caller=find_login_name(),
            on_progress=screen.show_progress,
        )
        try:
            report = await evaluate(maker, found, name=name, scorers=scorers, **options)
        finally:
            screen.end()
    # Kept and shown first: the report is worth having also if it cannot be compared.
    write_files(report, None, given)
    show_report(report, given["group_by"])
    screen.show_recorded()
    comparison = None
    if before is not None:
        comparison = compare_reports(
            before, report, alpha=given["alpha"], generalize=given["generalize"]
        )
        write_files(report, comparison, given)
    return judge_report(report, comparison, given)


async def _find_cases(journal: Journal, given: Mapping[str, Any]) -> list[Case]:
    words = given["from_sessions"]
    found = await cases_from_sessions(
        journal,
        query=None if words == "-" else words,
        limit=given["limit"],
        at=given["at"],
        tools=given["fork_tools"],
        allow=given["allow"],
    )
    if given["workspace"]:
        found = [_with_workspace(case, given["workspace"]) for case in found]
    return choose_cases(check_cases(found), given["only"])


def _with_workspace(case: Case, folder: str) -> Case:
    return replace(case, workspace=str(Path(folder).absolute()))


@eval_.command(
    epilog="""\b
Exit codes:
  0  no worse
  1  worse beyond chance"""
)
@click.argument("before")
@click.argument("after")
@journal_option
@_with_output
def compare(before: str, after: str, place: str, alpha: float, **given: Any) -> None:  # noqa: ANN401 - the flags of click
    """Compare two reports case by case: files, or names of evaluations in the journal."""

    async def find(journal: Journal) -> tuple[Report, Report]:
        return await find_report(before, journal), await find_report(after, journal)

    if is_report_file(before) and is_report_file(after):
        first, second = load_report(Path(before)), load_report(Path(after))
    else:
        first, second = run_on_journal(place, find)
    comparison = compare_reports(first, second, alpha=alpha, generalize=given["generalize"])
    click.echo(str(comparison))
    write_files(second, comparison, given)
    sys.exit(FAILED if comparison.verdict == "worse" else DONE)


@eval_.command()
@click.argument("named", metavar="REPORT")
@click.option("--cases", "source", metavar="FILE", help="Score the recorded trials again.")
@click.option("--check", "checks", multiple=True, metavar="SCORER[:VALUE]", help=CHECK_HELP)
@journal_option
@_with_output
def report(
    named: str,
    source: str | None,
    checks: tuple[str, ...],
    place: str,
    **given: Any,  # noqa: ANN401 - the flags of click
) -> None:
    """Show a report again, or score its recorded trials again, without asking a model.

    REPORT is a file, or the name of an evaluation in the journal.
    """

    async def find(journal: Journal) -> Report:
        if source is None:
            return await find_report(named, journal)
        scorers = [parse_check(check) for check in checks]
        return await rescore(journal, load_cases(source), name=named, scorers=scorers)

    if source is None and checks:
        raise ConfigError("--check needs --cases: the trials are scored again")
    if source is None and is_report_file(named):
        found = load_report(Path(named))
    else:
        found = run_on_journal(place, find)
    write_files(found, None, given)
    show_report(found, given["group_by"])


@eval_.command(name="list")
@journal_option
def list_(place: str) -> None:
    """List the evaluations of a journal, the latest first."""
    found = run_on_journal(place, list_evaluations)
    columns = ("EVALUATION", "UPDATED", "TRIALS", "PASSED", "MODEL")
    show_resources("evaluation", columns, list(map(_describe_stored, found)))


def _describe_stored(stored: StoredEvaluation) -> tuple[str, ...]:
    found = stored.report
    updated = time.strftime("%Y-%m-%d %H:%M", time.localtime(stored.updated))
    done = len(found.trials) if found else 0
    rate = format_rate(found.passes.rate) if found and found.passes.trials else "-"
    return (stored.name, updated, f"{done} of {stored.trials}", rate, found.model if found else "")


@eval_.command()
@click.argument("name")
@journal_option
def watch(name: str, place: str) -> None:
    """Watch an evaluation that another process runs, until all of its trials have ended."""

    async def follow(journal: Journal) -> Report:
        screen = TrialScreen()
        try:
            while True:
                stored = await read_evaluation(journal, name)
                if stored is None:
                    raise NothingToDo(f"there is no evaluation {name!r} in the journal")
                screen.show_stored(stored)
                if stored.report and len(stored.report.trials) >= stored.trials:
                    return stored.report
                await asyncio.sleep(WATCH_S)
        finally:
            screen.end()

    found = run_on_journal(place, follow)
    show_report(found)
    show_totals(found)
