"""All files of a report: CSV, Markdown, LaTeX, figures and one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reality_check.report.analysis import Analysis
from reality_check.report.render.html import report_html
from reality_check.report.render.latex import tables_tex
from reality_check.report.render.markdown import report_md
from reality_check.report.render.references import references_bib
from reality_check.report.render.report_files import check_no_output_folder, remove_report
from reality_check.report.render.summary_json import summary_data, summary_json
from reality_check.report.sections import report_sections
from reality_check.report.sections.groups import groups_sections
from reality_check.report.sections.verdict import PAIR_KEYS, comparison_records
from reality_check.report.summary import Summary
from reality_check.report.tables import COLUMNS, csv_of, results_csv, trials_csv
from reality_check.results import ExperimentResults
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


def write_grouped_report(
    groups: Sequence[ExperimentResults], keys: Sequence[str], out_dir: Path
) -> None:
    """Write a report of groups of results; only results within a group are comparable.

    The files are ``report.html`` and ``report.md``; the report of each group is in ``group_1/``,
    ... Files of an earlier report in ``out_dir`` are removed first.

    Args:
        groups: the combined results of each group, at least two.
        keys: dotted keys of the settings in which groups differ.
        out_dir: folder of the report; it is created if missing.

    Raises:
        UsageError: the folder of a group is the output folder of an experiment.
    """
    targets = [out_dir / f"group_{number}" for number in range(1, len(groups) + 1)]
    check_no_output_folder(targets)
    remove_report(out_dir)
    for target, results in zip(targets, groups, strict=True):
        _write(results, target)
    title = " | ".join(results.name for results in groups)
    sections = groups_sections([Summary(results) for results in groups], keys)
    atomic_write(own_path(out_dir, "report.md"), report_md(title, sections))
    atomic_write(own_path(out_dir, "report.html"), report_html(title, sections))
