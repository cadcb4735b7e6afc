"""The sections of the report as plain data, which are shown as HTML and as Markdown."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from reality_check.report.analysis import Analysis
from reality_check.report.sections.agreement import agreement_section
from reality_check.report.sections.blocks import Folded, Section
from reality_check.report.sections.classes import classes_section
from reality_check.report.sections.comparison import comparison_section
from reality_check.report.sections.deviation_list import deviations_section
from reality_check.report.sections.groups import folders_section
from reality_check.report.sections.hours import cost_section
from reality_check.report.sections.methods import methods_section
from reality_check.report.sections.overview import overview_section
from reality_check.report.sections.paper_scores import published_section
from reality_check.report.sections.pictures import galleries_section
from reality_check.report.sections.search import parameters_section, search_section
from reality_check.report.sections.settings import reproduce_section, settings_section
from reality_check.report.sections.tuning import luck_section, tuning_section
from reality_check.report.sections.untrained import baselines_section
from reality_check.report.sections.verdict import NOISE_TEXTS, verdict_section

__all__ = ["report_sections"]


def report_sections(analysis: Analysis) -> list[Section]:
    """Return the sections for which there are data, in the order of the report.

    The verdict and its limitations come first; supporting details are folded. Before the
    experiment is finished, the sections with intervals and tests are left out.
    """
    summary = analysis.summary
    finished = summary.results.finished
    statistics = (
        verdict_section(analysis),
        classes_section(analysis) if summary.results.reference else None,
        luck_section(analysis),
        baselines_section(summary),
    )
    searches = (
        parameters_section(summary),
        agreement_section(summary) if finished else None,
    )
    cost = cost_section(summary)
    if cost is not None:  # Its first sentence stays visible.
        sentence, *details = cost.blocks
        folded = Folded("Hours of each method", tuple(details))
        cost = dataclasses.replace(cost, blocks=(sentence, folded))
    sections = (
        overview_section(summary),
        tuning_section(analysis),
        deviations_section(summary),
        folders_section(summary),
        comparison_section(summary),
        published_section(summary),
        _with_folds(
            Section("statistics", "Statistics", (NOISE_TEXTS[summary.evidence],)), statistics
        )
        if finished
        else None,
        _with_folds(search_section(summary), searches),
        methods_section(summary),
        galleries_section(summary),
        cost,
        settings_section(summary),
        reproduce_section(summary),
    )
    found = [section for section in sections if section is not None]
    if summary.results.reference:
        return found
    # Trials that were made elsewhere have no more to show.
    return [s for s in found if s.anchor in ("overview", "tuning", "box", "statistics")]


def _with_folds(section: Section, others: Sequence[Section | None]) -> Section:
    """Return a section with the blocks of other sections appended, each section folded."""
    folds = (
        Folded(other.heading, other.blocks, anchor=other.anchor) for other in filter(None, others)
    )
    return dataclasses.replace(section, blocks=(*section.blocks, *folds))
