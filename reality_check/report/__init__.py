"""The report of an experiment: CSV, Markdown, LaTeX, figures and one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reality_check.files import atomic_write
from reality_check.report._analysis import Analysis
from reality_check.report._summary import Summary
from reality_check.report.comparisons import comparisons_csv
from reality_check.report.figures import draw_figures
from reality_check.report.galleries import galleries
from reality_check.report.grouped import Group, grouped_html, grouped_md
from reality_check.report.html import report_html
from reality_check.report.latex import paired_tex, tables_tex
from reality_check.report.markdown import report_md
from reality_check.report.references import references_bib
from reality_check.report.sections import statistics_sections
from reality_check.report.statistics import Comparison, Difference, Interval, t_interval
from reality_check.report.summary_json import summary_data, summary_json
from reality_check.report.tables import csv_text
from reality_check.results import ExperimentResults, Folder

__all__ = [
    "Comparison",
    "Difference",
    "Interval",
    "t_interval",
    "write_grouped_report",
    "write_report",
]


def write_report(results: ExperimentResults, out_dir: Path) -> None:
    """Write the report's files into ``out_dir``; an unfinished experiment gives an honest one.

    Writes ``results.csv``, ``baselines.csv``, ``comparisons.csv``, ``figures/*`` (PNG and PDF),
    ``summary.json``, ``tables.tex``, ``references.bib``, ``report.md`` and ``report.html``, each
    whole or not at all. The same results always give the same files.

    Args:
        results: everything that is shown.
        out_dir: the experiment's output folder; made where missing.
    """
    out_dir = Path(out_dir)
    summary = Summary(results)
    analysis = Analysis(summary)
    # The numbers first: whatever goes wrong in drawing, they are on the disk.
    atomic_write(out_dir / "results.csv", csv_text(results.rows))
    atomic_write(out_dir / "baselines.csv", csv_text(results.baselines))
    atomic_write(out_dir / "tables.tex", tables_tex(summary) + paired_tex(analysis))
    atomic_write(out_dir / "comparisons.csv", comparisons_csv(analysis))
    atomic_write(out_dir / "summary.json", summary_json(summary_data(summary, analysis)))
    atomic_write(out_dir / "references.bib", references_bib(results))
    sections = statistics_sections(summary, analysis)
    figures = draw_figures(summary)
    further = [figure for section in sections for figure in section.figures]
    for figure in (*figures, *further):
        for ending in ("png", "pdf"):
            atomic_write(out_dir / "figures" / f"{figure.stem}.{ending}", figure.files[ending])
    shown = galleries(summary)
    for gallery in shown:
        atomic_write(out_dir / "figures" / f"{gallery.stem}.png", gallery.png)
    alternatives = {figure.stem: figure.alt for figure in figures}
    alternatives |= {gallery.stem: gallery.alt for gallery in shown}
    atomic_write(out_dir / "report.md", report_md(summary, alternatives, sections))
    atomic_write(out_dir / "report.html", report_html(summary, figures, shown, sections))


def write_grouped_report(
    groups: Sequence[tuple[ExperimentResults, tuple[Folder, ...]]],
    keys: Sequence[str],
    out_dir: Path,
) -> None:
    """Write a report of results that are not comparable: side by side, each group whole in itself.

    Writes ``report.html`` and ``report.md``, and the report of each group into ``group_1/``, ...

    Args:
        groups: at least two: results that stand in one table, and the folders they come from.
        keys: the dotted names of the settings in which groups differ.
        out_dir: made where missing.
    """
    shown = []
    for number, (results, folders) in enumerate(groups, 1):
        write_report(results, out_dir / f"group_{number}")
        summary = Summary(results)
        drawn = [d for d in draw_figures(summary) if d.stem.startswith("intervals_")]
        shown.append(Group(summary, folders, drawn[0] if drawn else None))
    atomic_write(out_dir / "report.md", grouped_md(shown, keys))
    atomic_write(out_dir / "report.html", grouped_html(shown, keys))
