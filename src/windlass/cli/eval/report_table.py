"""A report in the terminal: a table of cases, the rates with their intervals, what changed."""

from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from windlass.cli.screen import BAD, GOOD, TROUBLE, Screen
from windlass.cli.session_table import show_columns
from windlass.core.text_clip import clip_line, printable_chars
from windlass.evaluation.comparison import Comparison
from windlass.evaluation.reports import CaseReport, Report
from windlass.evaluation.statistics import describe_spread, wilson_interval
from windlass.evaluation.wording import format_interval, format_rate, format_usd

COLUMNS = ("CASE", "PASSED", "RATE", "95 %", "STEPS", "SECONDS", "NOTE")
NOTE_CHARS = 60


def show_report(report: Report) -> None:
    """Print a report: a line for each case, then the totals."""
    rows = [_case_row(case) for case in report.cases]
    if Screen().styled:
        _print_table(rows, report.cases)
    else:
        show_columns([COLUMNS, *rows])
    show_totals(report)


def _case_row(case: CaseReport) -> tuple[str, ...]:
    passes = case.passes
    steps = describe_spread([float(trial.steps) for trial in case.counted])
    seconds = describe_spread([trial.seconds for trial in case.counted])
    interval = wilson_interval(passes.passed, passes.trials)
    return (
        printable_chars(case.id),
        f"{passes.passed}/{passes.trials}",
        format_rate(passes.rate) if passes.trials else "-",
        format_interval(interval) if passes.trials else "-",
        f"{steps.mean:.1f}" if steps else "-",
        f"{seconds.mean:.1f}" if seconds else "-",
        _note(case),
    )


def _note(case: CaseReport) -> str:
    """Return what a person should look at: flaky, not run, or the first thing that went wrong."""
    left = [trial.status.replace("_", " ") for trial in case.trials if not trial.counts]
    words = [f"{left.count(status)} {status}" for status in dict.fromkeys(left)]
    if case.passes.is_flaky:
        words.insert(0, "flaky")
    problems = [problem for trial in case.counted for problem in trial.problems]
    words += problems[:1]
    return clip_line(printable_chars("; ".join(words)), NOTE_CHARS)


def _print_table(rows: Sequence[tuple[str, ...]], cases: Sequence[CaseReport]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in ("CASE", "NOTE") else "right")
    for row, case in zip(rows, cases, strict=True):
        cells = [Text(cell) for cell in row]
        passes = case.passes
        if not passes.trials or passes.is_flaky:
            style = TROUBLE
        else:
            style = GOOD if passes.passed else BAD
        cells[1].stylize(style)
        table.add_row(*cells)
    Console(highlight=False).print(table)


def show_totals(report: Report) -> None:
    """Print the rate of all trials, and what they took."""
    passes = report.passes
    for warning in report.warnings:
        click.echo(f"Warning: {printable_chars(warning)}", err=True)
    if not passes.trials:
        click.echo("No trial has ended.")
        return
    click.echo(
        f"{passes.passed} of {passes.trials} trials passed: {format_rate(passes.rate)} "
        f"({format_interval(report.interval)})"
    )
    k = report.repeat
    any_passes = report.pass_at(k)
    all_pass = report.pass_hat(k)
    if k > 1 and any_passes is not None and all_pass is not None:
        click.echo(f"pass@{k} {format_rate(any_passes)}, pass^{k} {format_rate(all_pass)}")
    costs = f"It cost {format_usd(report.usd, report.unpriced)}"
    if report.judges:
        costs += f", and the judges {format_usd(report.judge_usd)}"
    click.echo(costs)
    for name in report.judges:
        kappa = report.judge_agreement(name)
        if kappa is not None:
            click.echo(f"{name} agrees with itself: Fleiss' kappa {kappa:.2f}")


def show_comparison(comparison: Comparison) -> None:
    """Print what changed from one report to another."""
    click.echo(str(comparison))
