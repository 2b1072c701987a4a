"""A report as one HTML file: tables and plots, links to sessions, nothing that runs or is loaded.

Invariant: whatever a model or a tool wrote is escaped, and the file carries a policy that allows no
script, so that a report can be opened and sent around.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Literal
from urllib.parse import quote

from windlass.evaluation.comparison import (
    Comparison,
    describe_comparison,
    describe_unproven,
    format_measure,
    format_score,
)
from windlass.evaluation.judge_quality import describe_judge
from windlass.evaluation.plots import plot_differences, plot_rates, plot_values
from windlass.evaluation.reports import CaseReport, Report, TrialReport
from windlass.evaluation.statistics import Spread, wilson_interval
from windlass.evaluation.summaries import (
    GroupSummary,
    count_labels,
    group_cases,
    list_group_keys,
    summarize_scores,
)
from windlass.evaluation.wording import format_interval, format_rate, format_summary, format_usd

CASES_PLOTTED_MAX = 200
MEASURED: tuple[tuple[Literal["usd", "steps", "seconds", "tokens"], str], ...] = (
    ("usd", "$"),
    ("steps", ""),
    ("seconds", "s"),
    ("tokens", ""),
)
"""What is measured in each trial, and its unit."""
STYLE = """
:root { color-scheme: light dark; --fg: #1c1c1a; --dim: #6b6a66; --line: #dedcd5; --bg: #fbfaf7;
 --good: #2f7d4f; --bad: #b3402e; --blue: #2f5f9e }
@media (prefers-color-scheme: dark) { :root { --fg: #eceae4; --dim: #a3a099; --line: #3a3935;
 --bg: #1b1b19; --good: #6cc08b; --bad: #e58570; --blue: #86b2ea } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--fg); background: var(--bg);
 max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
p { margin: .4rem 0 } .dim, caption { color: var(--dim) } a { color: var(--blue) }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line);
 vertical-align: top } th { font-weight: 600; color: var(--dim) } td.n, th.n { text-align: right }
.passed, .better { color: var(--good) } .failed, .worse { color: var(--bad) }
.error, .waiting, .not_run, .unscored, .same { color: var(--dim) }
.big { font-size: 1.9rem; margin: .6rem 0 0 }
code, .session { font: 13px ui-monospace, monospace; overflow-wrap: anywhere }
details { margin: .2rem 0 } summary { cursor: pointer } pre { white-space: pre-wrap }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif } svg text { fill: var(--fg) }
svg .label { text-anchor: end } svg .mark { text-anchor: middle; fill: var(--dim) }
svg .grid { stroke: var(--line) } svg .interval { stroke: var(--dim); stroke-width: 2 }
svg .point, svg .dot { fill: var(--blue) } svg .dot { fill-opacity: .55 }
svg .better { stroke: var(--good); fill: var(--good) } svg .worse { stroke: var(--bad);
 fill: var(--bad) } svg .point { stroke: none }
"""


def render_report(
    report: Report, comparison: Comparison | None = None, *, sessions_url: str = ""
) -> str:
    """Return a report as one HTML page.

    `sessions_url` is the address of a service: sessions then link to its page. Without it, the name
    of each session is shown, for `windlass sessions show`.
    """
    parts = [_render_head(report)]
    if comparison is not None:
        parts.append(_render_comparison(comparison))
    parts += [_render_cases(report), _render_scores(report), _render_groups(report)]
    parts += [_render_measures(report), _render_trials(report, sessions_url)]
    title = escape(f"{report.name}: {format_rate(report.passes.rate)}")
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head>\n<body>\n"
        f"{''.join(part for part in parts if part)}</body></html>\n"
    )


def _render_head(report: Report) -> str:
    passes = report.passes
    created = datetime.fromtimestamp(report.created, UTC).strftime("%Y-%m-%d %H:%M UTC")
    planned = f"{len(report.cases)} cases, {report.repeat} trials each"
    rate = (
        f"{passes.passed} of {passes.trials} trials passed; the true rate on these cases lies "
        f"within {format_interval(report.interval)} (95 %)."
    )
    lines = [
        f"<h1>{escape(report.name)}</h1>",
        f'<p class="dim">{escape(report.model)} · {planned} · {created}</p>',
        f'<p class="big">{format_rate(passes.rate)}</p>',
        f"<p>{rate}</p>",
    ]
    for k in sorted({1, report.repeat}):
        any_passes = report.pass_at(k)
        all_pass = report.pass_hat(k)
        if any_passes is not None and all_pass is not None and k > 1:
            lines.append(
                f"<p>pass@{k}: {format_rate(any_passes)}, at least one of {k} passes · "
                f"pass^{k}: {format_rate(all_pass)}, all {k} pass</p>"
            )
    if report.flaky_cases:
        lines.append(f"<p>Flaky: {escape(', '.join(report.flaky_cases))}</p>")
    if not report.is_complete:
        missing = len(report.trials) - len(report.counted)
        lines.append(
            f'<p class="failed">{missing} trials say nothing about the agent, and are left out of '
            "all rates: see their state below.</p>"
        )
    lines += [
        f'<p class="failed">The scorer {escape(name)} gave no verdict on {len(sessions)} of '
        "them.</p>"
        for name, sessions in report.scorer_errors.items()
    ]
    lines += [f'<p class="failed">{escape(warning)}</p>' for warning in report.warnings]
    return "\n".join([*lines, _render_costs(report)])


def _render_costs(report: Report) -> str:
    words = f"<p>The agent cost {escape(format_usd(report.usd, report.unpriced))}"
    if report.judges:
        words += f"; the judges {format_usd(report.judge_usd)}, {report.judge_tokens:,} tokens"
    if report.budget_usd is not None:
        words += f"; the budget was {format_usd(report.budget_usd)}"
    lines = [f"{words}.</p>"]
    for name in report.judges:
        steadiness = describe_judge(report, name)
        lines += [f"<p>{escape(steadiness)}.</p>"] if steadiness else []
    return "\n".join(lines)


def _render_comparison(comparison: Comparison) -> str:
    rows = [
        (
            "all cases",
            comparison.difference,
            comparison.interval,
            f"p {comparison.two_sided_chance:.3f}",
        )
    ]
    changes = "".join(
        _cells(
            escape(case.id),
            f"{case.before.passed} of {case.before.trials}",
            f"{case.after.passed} of {case.after.trials}",
            f"{case.two_sided_chance:.3f}",
        )
        for case in comparison.changed
    )
    table = _table(("case", "before", "after", "p"), changes) if changes else ""
    measures = "".join(f"<p>{escape(format_score(one))}</p>" for one in comparison.scores)
    measures += "".join(
        f"<p>{escape(format_measure(measure))}</p>"
        for measure in comparison.measures
        if measure.has_changed
    )
    left_out = ""
    if comparison.left_out:
        left_out = f'<p class="dim">Not compared: {escape(", ".join(comparison.left_out))}</p>'
    if comparison.expecting_anew:
        names = escape(", ".join(comparison.expecting_anew))
        left_out += f'<p class="failed">Of these, another answer is expected now: {names}</p>'
    unproven = ""
    if comparison.fallen_unproven:
        unproven = f'<p class="failed">{escape(describe_unproven(comparison))}</p>'
    return (
        f'<h2>Compared with {escape(comparison.before)}</h2><p class="{comparison.verdict}">'
        f"{escape(describe_comparison(comparison))}</p>{plot_differences(rows, 'Difference')}"
        f"{unproven}{measures}{table}{left_out}"
    )


def _render_cases(report: Report) -> str:
    rows = [
        (
            case.id,
            case.passes.rate,
            wilson_interval(case.passes.passed, case.passes.trials),
            f"{case.passes.passed} of {case.passes.trials}"
            + (" · flaky" if case.passes.is_flaky else ""),
        )
        for case in report.cases[:CASES_PLOTTED_MAX]
    ]
    left = len(report.cases) - len(rows)
    more = f'<p class="dim">{left} more cases are in the table only.</p>' if left else ""
    plot = plot_rates(rows, "Pass rate of each case with its 95 % interval")
    return f"<h2>Pass rates</h2>{plot}{more}"


def _render_scores(report: Report) -> str:
    """Return the means of graded scores, and the labels beside the right ones."""
    summaries = summarize_scores(report.cases)
    lines = "".join(f"<p>{escape(format_summary(summary))}</p>" for summary in summaries)
    for matrix in count_labels(report):
        rows = zip(matrix.labels, matrix.counts, strict=True)
        cells = "".join(_cells(escape(right), *map(str, row)) for right, row in rows)
        lines += (
            f"<h3>{escape(matrix.scorer)}</h3>{_table(('right, given', *matrix.labels), cells)}"
        )
    return f"<h2>Scores</h2>{lines}" if lines else ""


def _render_groups(report: Report) -> str:
    tables = ""
    for key in list_group_keys(report):
        groups = group_cases(report, key)
        names = list(dict.fromkeys(score.scorer for group in groups for score in group.scores))
        rows = "".join(_group_row(group, names) for group in groups)
        head = (key, "cases", "passed", "rate", "95 %", *names)
        tables += f"<h2>By {escape(key)}</h2>{_table(head, rows)}"
    return tables


def _group_row(group: GroupSummary, names: Sequence[str]) -> str:
    means = {score.scorer: f"{score.mean:.3g}" for score in group.scores}
    return _cells(
        escape(group.name),
        str(group.cases),
        f"{group.passes.passed} of {group.passes.trials}",
        format_rate(group.passes.rate),
        format_interval(group.interval),
        *(means.get(name, "") for name in names),
    )


def _render_measures(report: Report) -> str:
    rows = "".join(
        _spread_row(name, spread, unit)
        for name, unit in MEASURED
        if (spread := report.spread_of(name)) is not None
    )
    head = ("of each trial", "mean", "median", "deviation", "lowest", "highest")
    values = [
        (case.id, [float(trial.seconds) for trial in case.counted])
        for case in report.cases[:CASES_PLOTTED_MAX]
    ]
    plot = plot_values(values, "Seconds of each trial", "s")
    table = _table(head, rows) if rows else "<p>No trial has ended.</p>"
    return f"<h2>What it took</h2>{table}<h2>Seconds of each trial</h2>{plot}"


def _spread_row(name: str, spread: Spread, unit: str) -> str:
    numbers = (spread.mean, spread.median, spread.deviation, spread.low, spread.high)
    return _cells(f"{name}{f' ({unit})' if unit else ''}", *(f"{value:.4g}" for value in numbers))


def _render_trials(report: Report, sessions_url: str) -> str:
    rows = "".join(
        _trial_row(case, trial, sessions_url) for case in report.cases for trial in case.trials
    )
    head = ("case", "result", "session", "steps", "cost", "seconds")
    return f"<h2>Trials</h2>{_table(head, rows)}"


def _trial_row(case: CaseReport, trial: TrialReport, sessions_url: str) -> str:
    session = f'<span class="session">{escape(trial.session)}</span>'
    if sessions_url:
        address = f"{sessions_url.rstrip('/')}/#/run/{quote(trial.session, safe='')}"
        session = f'<a href="{escape(address)}">{session}</a>'
    status = f'<span class="{trial.status}">{trial.status.replace("_", " ")}</span>'
    graded = [
        f"{score.scorer}: {score.value:.3g}" for score in trial.scores if score.value is not None
    ]
    lines = trial.problems or ([f"{trial.outcome}: {trial.reason}"] if trial.reason else [])
    problems = "".join(f"<div>{escape(line)}</div>" for line in lines)
    if problems and trial.status != "passed":
        status += f"<details><summary>why</summary>{problems}</details>"
    status += "".join(f'<div class="dim">{escape(line)}</div>' for line in graded)
    cost = format_usd(trial.usd)
    return _cells(escape(case.id), status, session, str(trial.steps), cost, f"{trial.seconds:.1f}")


def _cells(*cells: str) -> str:
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _table(head: Sequence[str], rows: str | Iterable[str]) -> str:
    columns = "".join(f"<th>{escape(name)}</th>" for name in head)
    return f"<table><thead><tr>{columns}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
