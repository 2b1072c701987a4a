"""What the commands of `windlass eval` share: names, budgets, reports, and the gate."""

import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from windlass.cli.exit_codes import DONE, FAILED, LIMIT, WAITS
from windlass.core.errors import ConfigError, NothingToDo
from windlass.core.limits import Budget
from windlass.core.suggestions import suggest_names
from windlass.evaluation.cases import (
    Case,
    choose_cases,
    load_cases,
    make_id,
    sample_cases,
)
from windlass.evaluation.comparison import Comparison
from windlass.evaluation.html_report import render_report
from windlass.evaluation.reports import Report, load_report, save_report
from windlass.evaluation.stored_reports import read_evaluation
from windlass.evaluation.summaries import summarize_scores
from windlass.evaluation.wording import format_rate
from windlass.ports import Journal

NAME_CHARS = 40
"""Of the name of a file in the name of its evaluation."""


def choose_name(source: str | None) -> str:
    """Return a name that was not used before: a file may be evaluated again and again."""
    stem = Path(source).stem if source else "sessions"
    now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return make_id(f"{stem[:NAME_CHARS]}-{now}-{secrets.token_hex(2)}")


def make_cli_budget(name: str, usd: str | None, tokens: int | None) -> Budget | None:
    if usd is None and tokens is None:
        return None
    try:
        return Budget(f"eval/{name}", usd=usd, tokens=tokens)
    except (ValueError, ArithmeticError) as error:
        raise ConfigError(f"--budget {usd}: {error}") from None


def load_chosen_cases(source: str, given: Mapping[str, Any]) -> list[Case]:
    """Return the cases of a file that the options choose."""
    named = dict(words.partition("=")[::2] for words in given["fields"])
    chosen = choose_cases(load_cases(source, fields=named or None), given["only"])
    return sample_cases(chosen, given["sample"], given["seed"]) if given["sample"] else chosen


async def find_report(named: str, journal: Journal) -> Report:
    """Return the report in a file, or of an evaluation of the journal."""
    if is_report_file(named):
        return load_report(Path(named))
    stored = await read_evaluation(journal, named)
    if stored is None or stored.report is None:
        raise NothingToDo(f"there is no report {named!r}, neither a file nor in the journal")
    return stored.report


def is_report_file(named: str) -> bool:
    return Path(named).is_file()


def write_files(report: Report, comparison: Comparison | None, given: Mapping[str, Any]) -> None:
    if given["json_file"]:
        save_report(report, Path(given["json_file"]))
    if given["html_file"]:
        page = render_report(report, comparison, sessions_url=given["sessions_url"])
        Path(given["html_file"]).write_text(page, "utf-8")


def judge_report(report: Report, comparison: Comparison | None, given: Mapping[str, Any]) -> int:
    """Show what the gate says, and return the exit code."""
    fail_under: float | None = given["fail_under"]
    code = DONE
    statuses = {trial.status for trial in report.trials}
    if "not_run" in statuses:
        code = LIMIT
    if "waiting" in statuses:
        code = WAITS
    if statuses & {"error", "unscored"}:
        code = FAILED
    if comparison is not None:
        click.echo(str(comparison))
        if comparison.verdict == "worse":
            code = FAILED
    if fail_under is not None and report.passes.rate < fail_under:
        click.echo(f"Fewer than {format_rate(fail_under)} passed.", err=True)
        code = FAILED
    return FAILED if _find_low_means(report, given["score_min"]) else code


def _find_low_means(report: Report, demanded: Sequence[str]) -> list[str]:
    """Show and return the graded scores that are too low on average."""
    means = {found.scorer: found.mean for found in summarize_scores(report.cases)}
    low: list[str] = []
    for words in demanded:
        name, _, least = words.rpartition("=")
        if name not in means:
            raise ConfigError(
                f"--score-min {words}: no score {name!r} has values.{suggest_names(name, means)}"
            )
        try:
            is_low = means[name] < float(least)
        except ValueError:
            raise ConfigError(f"--score-min {words}: {least!r} is not a number") from None
        if is_low:
            click.echo(f"The mean of {name} is {means[name]:.3g}, below {least}.", err=True)
            low.append(name)
    return low
