"""All files of a report: CSV, Markdown, LaTeX, figures and one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path

from reality_check.report.analysis import Analysis
from reality_check.report.render.html import report_html
from reality_check.report.render.latex import suite_tex, tables_tex
from reality_check.report.render.markdown import report_md
from reality_check.report.render.references import references_bib
from reality_check.report.render.report_files import remove_report
from reality_check.report.render.summary_json import finite, summary_data, summary_json
from reality_check.report.sections import report_sections
from reality_check.report.sections.across import across_sections, pair_records, suite_data
from reality_check.report.sections.verdict import PAIR_KEYS, comparison_records
from reality_check.report.suite_summary import SuiteSummary
from reality_check.report.summary import Summary
from reality_check.report.tables import COLUMNS, csv_of, results_csv, trials_csv
from reality_check.results import ExperimentResults, SuiteResults
from reality_check.utils.files import atomic_write
from reality_check.utils.own_names import own_path


def write_report(results: ExperimentResults, out_dir: Path) -> None:
    """Write the report's files into ``out_dir``; the experiment need not be finished.

    The files are ``results.csv``, ``trials.csv``, ``baselines.csv``, ``comparisons.csv``,
    ``figures/*`` (SVG and PDF), ``summary.json``, ``tables.tex``, ``references.bib``, ``report.md``
    and ``report.html``, each written atomically. The same results always give the same files. Files
    of an earlier report of several folders in ``out_dir`` are removed first.

    Args:
        results: the results to show.
        out_dir: the experiment's output folder, or a folder for the report of several experiments;
            it is created if missing.
    """
    remove_report(Path(out_dir))
    _write(results, Path(out_dir))


def pack_pages(results: ExperimentResults) -> dict[str, str]:
    """Return the files of a pack that people and other programs read, by name."""
    return {
        "summary.json": summary_json(summary_data(Analysis(Summary(results)))),
        "results.csv": results_csv(results),
        "trials.csv": trials_csv(results),
    }


def _write(results: ExperimentResults, out_dir: Path) -> None:
    """Write the files of one report."""

    def write(name: str, content: str | bytes) -> None:
        atomic_write(own_path(out_dir, name), content)

    analysis = Analysis(Summary(results))
    # Numbers are written first, so that they are on the disk if drawing fails.
    write("results.csv", results_csv(results))
    write("trials.csv", trials_csv(results))
    write("baselines.csv", csv_of(COLUMNS, (row.record().values() for row in results.baselines)))
    write("tables.tex", tables_tex(analysis.summary))
    pairs = (record.values() for record in comparison_records(analysis))
    write("comparisons.csv", csv_of(PAIR_KEYS, pairs))
    write("summary.json", summary_json(summary_data(analysis)))
    write("references.bib", references_bib(results))
    sections = report_sections(analysis)
    for section in sections:
        for figure in section.figures:
            for ending, content in figure.files.items():
                write(f"figures/{figure.stem}.{ending}", content)
        for gallery in section.galleries:
            write(f"figures/{gallery.stem}.png", gallery.png)
    write("report.md", report_md(results.name, sections))
    write("report.html", report_html(results.name, sections))


def write_suite_report(results: SuiteResults, out_dir: Path) -> None:
    """Write a report over several data sets; those of a suite have theirs in folders below it.

    The files are ``report.html``, ``report.md``, ``results.csv``, ``comparisons.csv``,
    ``summary.json``, ``tables.tex`` and ``figures/``.

    Raises:
        UsageError: the data sets differ in what must be the same for one verdict.
    """
    summary = SuiteSummary(results)
    remove_report(out_dir)
    has_folders = all((out_dir / name / "report.html").exists() for name in results.members)
    sections, data = across_sections(summary, has_folders), suite_data(summary)
    pairs = pair_records(summary)
    texts = {
        "results.csv": csv_of(COLUMNS, (record.values() for record in results.records())),
        "comparisons.csv": csv_of(pairs[0] if pairs else (), (pair.values() for pair in pairs)),
        "summary.json": summary_json(finite(data)),
        "tables.tex": suite_tex(summary),
        "report.md": report_md(results.name, sections),
        "report.html": report_html(results.name, sections),
    }
    for section in sections:
        for figure in section.figures:
            for ending, content in figure.files.items():
                atomic_write(own_path(out_dir, f"figures/{figure.stem}.{ending}"), content)
    for name, text in texts.items():
        atomic_write(own_path(out_dir, name), text)
