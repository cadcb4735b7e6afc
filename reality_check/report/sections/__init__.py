"""The parts of the report: computed once as plain data, shown as HTML and as Markdown."""

from __future__ import annotations

from reality_check.report.analysis import Analysis
from reality_check.report.sections.agreement import agreement_section
from reality_check.report.sections.blocks import Section
from reality_check.report.sections.budget import budget_section
from reality_check.report.sections.classes import classes_section
from reality_check.report.sections.comparison import comparison_section
from reality_check.report.sections.cost import cost_section
from reality_check.report.sections.deviations import deviations_section
from reality_check.report.sections.folders import folders_section
from reality_check.report.sections.galleries import galleries_section
from reality_check.report.sections.intervals import intervals_section
from reality_check.report.sections.maps import maps_section
from reality_check.report.sections.methods import methods_section
from reality_check.report.sections.overview import overview_section
from reality_check.report.sections.paired import paired_section
from reality_check.report.sections.parameters import parameters_section
from reality_check.report.sections.published import published_section
from reality_check.report.sections.ranks import ranks_section
from reality_check.report.sections.reproductions import reproductions_section
from reality_check.report.sections.search import search_section
from reality_check.report.sections.settings import reproduce_section, settings_section
from reality_check.report.sections.tuning import tuning_section
from reality_check.report.sections.untrained import baselines_section
from reality_check.report.sections.verdict import verdict_section

__all__ = ["report_sections"]


def report_sections(analysis: Analysis) -> list[Section]:
    """Return the sections that the results have data for, in the order of the report."""
    summary = analysis.summary
    sections = (
        overview_section(summary),
        tuning_section(analysis),
        deviations_section(summary),
        folders_section(summary),
        comparison_section(summary),
        published_section(summary),
        intervals_section(summary),
        verdict_section(summary),
        paired_section(analysis),
        classes_section(analysis),
        ranks_section(analysis),
        search_section(summary),
        budget_section(summary),
        parameters_section(summary),
        agreement_section(summary),
        methods_section(summary),
        maps_section(summary),
        cost_section(summary),
        galleries_section(summary),
        reproductions_section(summary),
        baselines_section(summary),
        settings_section(summary),
        reproduce_section(summary),
    )
    return [section for section in sections if section is not None]
