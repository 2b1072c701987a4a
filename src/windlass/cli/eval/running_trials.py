"""The progress of an evaluation on standard error: a line for each trial, and a footer."""

import sys
import time
from collections.abc import Sequence

from windlass.cli.screen import BAD, GOOD, QUIET, TROUBLE, Screen
from windlass.core.phrases import format_count
from windlass.evaluation.cases import Case
from windlass.evaluation.evaluating import EvaluationProgress
from windlass.evaluation.reports import TrialReport
from windlass.evaluation.stored_reports import StoredEvaluation

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
