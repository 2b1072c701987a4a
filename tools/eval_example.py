"""Which of five prompts makes a small model call tools right more often? `make eval-example`.

Tries each prompt with the small local model, and writes what it found into
`docs/evaluation_example.md`, with a plot and the whole report beside it. The trials are kept in
`.cache/eval_example.db`: run it again, and it goes on where it was.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

from windlass import Agent, Limits, LoopPolicy, ModelInfo, tool
from windlass.evaluation import (
    Case,
    Comparison,
    EvaluationProgress,
    Report,
    Trial,
    compare_reports,
    evaluate,
    render_report,
    save_report,
)
from windlass.evaluation.comparison import describe_comparison
from windlass.evaluation.plots import plot_rates
from windlass.evaluation.wording import format_interval, format_rate
from windlass.journals import SqliteJournal
from windlass.models import ModelOptions, resolve_model

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
JOURNAL = ROOT / ".cache" / "eval_example.db"
MODEL = "local:smollm2"
"""Its weights are in the folder that `WINDLASS_LOCAL_WEIGHTS` names."""
WINDOW = 2_048
OUTPUT_MAX = 80
PROMPTS: Mapping[str, str] = {
    "plain": "You are a helpful assistant.",
    "told": "You are a helpful assistant. Use the tools to answer. Do not guess.",
    "ordered": "Always answer by calling get_weather with the city of the question.",
    "shown": (
        "You call tools. For the question 'What is the weather in Oslo?' call get_weather with "
        "the city Oslo. Do the same for every city: call get_weather with the city of the question."
    ),
    "forbidden": "Never answer in words. Every answer is a call of the tool get_weather.",
}
CITIES = ("Paris", "Tokyo", "Cairo", "Lima", "Toronto", "Madrid")
STYLE = """<style>
text { font: 13px sans-serif; fill: #444 } .label { text-anchor: end }
.mark { text-anchor: middle; fill: #888 } .grid { stroke: #ddd }
.interval { stroke: #888; stroke-width: 2 } .point { fill: #2f5f9e }
</style>"""


@tool(effect="read")
def get_weather(city: str) -> str:
    """The current weather in a city.

    Args:
        city: The name of the city.
    """
    return f"It is 18 degrees and sunny in {city}."


def make_cases() -> list[Case]:
    return [
        Case(
            id=city.lower(),
            prompt=f"What is the weather in {city}?",
            checks=({"used": {"tool": "get_weather", "with_arguments": {"city": city}}},),
        )
        for city in CITIES
    ]


def make_agent(prompt: str) -> Agent[str]:
    model = resolve_model(
        MODEL,
        # Some chance is wanted: at temperature 0, all trials of a case would be the same one.
        options=ModelOptions(temperature=0.8),
        info=ModelInfo(MODEL, window=WINDOW, output_max=OUTPUT_MAX),
    )
    return Agent(
        model,
        instructions=prompt,
        tools=[get_weather],
        rules=LoopPolicy(on_limit="stop"),
        limits=Limits(steps=1, seconds=60),
    )


def show_progress(progress: EvaluationProgress) -> None:
    sys.stderr.write(f"\r{progress.done} of {progress.total}: {progress.passed} passed ")


async def run_prompt(name: str, repeat: int, journal: SqliteJournal) -> Report:
    agent = make_agent(PROMPTS[name])

    def give_agent(_trial: Trial) -> Agent[str]:
        return agent

    report = await evaluate(
        give_agent,
        make_cases(),
        name=f"prompt-{name}",
        repeat=repeat,
        at_once=1,
        journal=journal,
        on_progress=show_progress,
    )
    sys.stderr.write(f"\n{name}: {report.passes.passed} of {report.passes.trials}\n")
    return report


def write_page(reports: Mapping[str, Report], comparisons: Mapping[str, Comparison]) -> None:
    first = next(iter(reports.values()))
    rows = [
        f"| {name} | {PROMPTS[name]} | {report.passes.passed} of {report.passes.trials} | "
        f"{format_rate(report.passes.rate)} | {format_interval(report.interval)} | "
        f"{format_rate(report.pass_hat(report.repeat) or 0)} | "
        f"{len(report.flaky_cases)} of {len(report.cases)} |"
        for name, report in reports.items()
    ]
    compared = [f"- **{name}**: {describe_comparison(one)}" for name, one in comparisons.items()]
    times = f"{first.repeat} times each"
    lines = [
        "<!-- Written by tools/eval_example.py (`make eval-example`); do not edit. -->",
        "",
        "# Which of five prompts?",
        "",
        "SmolLM2 has 135 million parameters and runs on any machine. It has one tool,",
        f"`get_weather`, and is asked for the weather in {len(CITIES)} cities, {times},",
        "at a temperature of 0.8. A trial passes if the tool ran with the city of the question.",
        "Nobody judges: the facts of each trial say what was called.",
        "",
        "![Pass rates with 95 % intervals](img/evaluation_prompts.svg)",
        "",
        f"| prompt | | passed | rate | 95 % | pass^{first.repeat} | flaky cases |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
        "Compared with the plain prompt, case by case (5 of 100 may be false alarms):",
        "",
        *compared,
        "",
        "The [whole report](evaluation_report.html) of the best of the others, compared with the",
        "plain one, is one HTML file, as `windlass eval run` writes with `--html`.",
        "`make eval-example` makes this page with `tools/eval_example.py`.",
    ]
    (DOCS / "evaluation_example.md").write_text("\n".join(lines) + "\n", "utf-8")
    plot = plot_rates(
        [
            (name, report.passes.rate, report.interval, f"{report.passes.passed} passed")
            for name, report in reports.items()
        ],
        "Pass rates of the prompts",
    )
    svg = plot.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    svg = svg.replace(">", f">{STYLE}", 1)
    (DOCS / "img" / "evaluation_prompts.svg").write_text(f"{svg}\n", "utf-8")
    best = max(comparisons, key=lambda name: reports[name].passes.rate)
    page = render_report(reports[best], comparisons[best])
    (DOCS / "evaluation_report.html").write_text(page, "utf-8")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=8)
    given = parser.parse_args()
    JOURNAL.parent.mkdir(parents=True, exist_ok=True)
    journal = SqliteJournal(JOURNAL)
    try:
        reports = {name: await run_prompt(name, given.repeat, journal) for name in PROMPTS}
    finally:
        journal.close()
    for name, report in reports.items():
        save_report(report, ROOT / ".cache" / f"eval_{name}.json")
    base = reports["plain"]
    comparisons = {
        name: compare_reports(base, report) for name, report in reports.items() if name != "plain"
    }
    write_page(reports, comparisons)


if __name__ == "__main__":
    asyncio.run(main())
