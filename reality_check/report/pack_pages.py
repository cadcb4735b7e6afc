"""What a pack holds for people and other programs, beside its records."""

from __future__ import annotations

from reality_check.report.analysis import Analysis
from reality_check.report.render.summary_json import summary_data, summary_json
from reality_check.report.summary import Summary
from reality_check.report.tables import csv_text, trials_csv
from reality_check.results import ExperimentResults


def pack_pages(results: ExperimentResults) -> dict[str, str]:
    """Return the content of ``summary.json``, ``results.csv`` and ``trials.csv``."""
    summary = Summary(results)
    return {
        "summary.json": summary_json(summary_data(summary, Analysis(summary))),
        "results.csv": csv_text(results.rows),
        "trials.csv": trials_csv(results),
    }
