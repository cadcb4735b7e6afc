"""Sections on statistics: computed once, shown in Markdown and HTML."""

from __future__ import annotations

from reality_check.report.analysis import Analysis
from reality_check.report.sections._section import Block, Bullets, Folded, Note, Section
from reality_check.report.sections.agreement import agreement_section
from reality_check.report.sections.budget import budget_section
from reality_check.report.sections.classes import classes_section
from reality_check.report.sections.cost import cost_section
from reality_check.report.sections.folders import folders_section
from reality_check.report.sections.maps import maps_section
from reality_check.report.sections.methods import methods_section
from reality_check.report.sections.paired import paired_section
from reality_check.report.sections.parameters import parameters_section
from reality_check.report.sections.ranks import ranks_section
from reality_check.report.summary import Summary

__all__ = ["Block", "Bullets", "Folded", "Note", "Section", "statistics_sections"]


def statistics_sections(summary: Summary, analysis: Analysis) -> list[Section]:
    """Return the sections that the results have data for, in their order."""
    found = (
        folders_section(summary),
        paired_section(analysis),
        classes_section(analysis),
        ranks_section(analysis),
        budget_section(summary),
        parameters_section(summary),
        agreement_section(summary),
        methods_section(summary),
        maps_section(summary),
        cost_section(summary),
    )
    return [section for section in found if section is not None]
