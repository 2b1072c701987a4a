"""An evaluation in the terminal: its trials as they end, then the report and what changed.

Progress is on standard error: a line for each trial, and a footer. The report is a table of cases
and the rates with their intervals.
"""

import sys
import time
from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from windlass.cli.screen import BAD, GOOD, QUIET, TROUBLE, Screen
from windlass.cli.session_table import show_columns
from windlass.core.phrases import format_count
from windlass.core.text_clip import clip_line, printable_chars
from windlass.evaluation.cases import Case
from windlass.evaluation.evaluation_run import EvaluationProgress
from windlass.evaluation.judge_quality import describe_judge
from windlass.evaluation.reports import CaseReport, Report, TrialReport
from windlass.evaluation.statistics import describe_spread, wilson_interval
from windlass.evaluation.stored_reports import StoredEvaluation
from windlass.evaluation.summaries import count_labels, group_cases, summarize_scores
from windlass.evaluation.wording import format_interval, format_rate, format_summary, format_usd

COLUMNS = ("CASE", "PASSED", "RATE", "95 %", "STEPS", "SECONDS", "NOTE")
NOTE_CHARS = 60
_STYLES = {"passed": GOOD, "failed": BAD}


class TrialScreen:
    """Shows trials as they end. On a terminal, a footer says how far the evaluation is."""

    def __init__(self) -> None:
        self._screen = Screen(sys.stderr)
        self._shown: set[str] = set()
        self._progress: EvaluationProgress | None = None

    def begin(self, name: str, cases: Sequence[Case], repeat: int) -> None:
        planned = (
            f"{format_count(len(cases), 'case')}, {format_count(len(cases) * repeat, 'trial')}"
        )
        self._screen.write_line(
            f"evaluation {name}: {planned}; to go on after a crash: --name {name}",
            QUIET,
            mark=self._screen.glyphs.progress,
        )

    def show_progress(self, progress: EvaluationProgress) -> None:
        """Show a trial that has ended, and how many are left."""
        self._progress = progress
        if progress.last is not None:
            self._show_trial(progress.last, was_recorded=progress.last_was_recorded)
        self._screen.show_footer(
            f"{progress.done} of {progress.total}: {progress.passed} passed, {progress.failed} "
            f"failed, {len(progress.running)} running, ${progress.usd:.4f}"
        )

    def show_stored(self, stored: StoredEvaluation) -> None:
        """Show what another process has done so far."""
        report = stored.report
        for trial in report.trials if report else ():
            self._show_trial(trial)
        passes = report.passes if report else None
        done = len(report.trials) if report else 0
        passed = passes.passed if passes else 0
        self._screen.show_footer(f"{done} of {stored.trials}: {passed} passed")

    def end(self) -> None:
        self._screen.clear_footer()

    def show_recorded(self) -> None:
        """Say how many trials were not run, since the journal had them already."""
        progress = self._progress
        if progress is None or not progress.recorded:
            return
        latest = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(progress.recorded_at))
        trials = format_count(progress.total, "trial")
        words = f"{progress.recorded} of {trials} were already on record (last at {latest})"
        if progress.recorded == progress.total:
            words += "; nothing was run"
        self._screen.write_line(
            f"{words}. For new trials choose another --name.",
            TROUBLE,
            mark=self._screen.glyphs.trouble,
        )

    def _show_trial(self, trial: TrialReport, *, was_recorded: bool = False) -> None:
        """Show a trial once."""
        if trial.session in self._shown:
            return
        self._shown.add(trial.session)
        self._screen.clear_footer()
        glyphs = self._screen.glyphs
        mark = {"passed": glyphs.yes, "failed": glyphs.no}.get(trial.status, glyphs.trouble)
        problem = f": {trial.problems[0]}" if trial.problems and trial.status != "passed" else ""
        if not problem and not trial.counts:
            problem = f": {trial.status.replace('_', ' ')}"
        took = f"{format_count(trial.steps, 'step')}, {trial.seconds:.1f} s"
        if was_recorded:
            took += ", recorded"
        words = f"{trial.session}  {took}{problem}"
        style = _STYLES.get(trial.status, TROUBLE)
        self._screen.write_line(words, "", mark=mark, mark_style=style)


def show_report(report: Report, group_by: str | None = None) -> None:
    """Print a report: a line for each case, then the totals, and the groups if asked for."""
    rows = [_case_row(case) for case in report.cases]
    if Screen().styled:
        _print_table(rows, report.cases)
    else:
        show_columns([COLUMNS, *rows])
    show_totals(report)
    if group_by:
        _show_groups(report, group_by)


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


def _show_groups(report: Report, by: str) -> None:
    """Print the rate and the means of each group of cases."""
    groups = group_cases(report, by)
    names = list(dict.fromkeys(score.scorer for group in groups for score in group.scores))
    rows = [(by.upper(), "CASES", "PASSED", "RATE", "95 %", *names)]
    for group in groups:
        means = {score.scorer: f"{score.mean:.3g}" for score in group.scores}
        passes = group.passes
        rows.append(
            (
                printable_chars(group.name),
                str(group.cases),
                f"{passes.passed}/{passes.trials}",
                format_rate(passes.rate) if passes.trials else "-",
                format_interval(group.interval) if passes.trials else "-",
                *(means.get(name, "-") for name in names),
            )
        )
    show_columns(rows)


def show_totals(report: Report) -> None:
    """Print the rate of all trials, and what they took."""
    passes = report.passes
    for warning in report.warnings:
        click.echo(f"Warning: {printable_chars(warning)}", err=True)
    for name, sessions in report.scorer_errors.items():
        words = f"The scorer {name} gave no verdict on {format_count(len(sessions), 'trial')}"
        click.echo(f"{printable_chars(words)}, which are left out of all rates.", err=True)
    if not passes.trials:
        click.echo("No trial was scored.")
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
    for summary in summarize_scores(report.cases):
        click.echo(format_summary(summary))
    for matrix in count_labels(report):
        click.echo(
            f"{printable_chars(matrix.scorer)}: the right label, and how often each was given"
        )
        rows = zip(matrix.labels, matrix.counts, strict=True)
        names = [printable_chars(label) for label in ("", *matrix.labels)]
        show_columns([names, *([printable_chars(right), *map(str, row)] for right, row in rows)])
    costs = f"It cost {format_usd(report.usd, report.unpriced)}"
    if report.judges:
        costs += f", and the judges {format_usd(report.judge_usd)}"
    click.echo(costs)
    for name in report.judges:
        if steadiness := describe_judge(report, name):
            click.echo(printable_chars(steadiness))
