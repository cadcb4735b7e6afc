"""How much each mean varies with other test classes, compared with the training noise."""

from __future__ import annotations

import math

from reality_check.config.metrics import METRICS, PRIMARY
from reality_check.report.analysis import Analysis
from reality_check.report.sections.blocks import Block, Footnote, PlainTable, Section
from reality_check.report.wording import NOTHING, interval_text, listed, percent
from reality_check.statistics import Bounds

_FEW_CLASSES = 20
_FOOTNOTE = (
    "With other test classes every mean would be different, but mostly in the same direction for "
    "all methods: compare methods by their differences, not by whether these intervals overlap. "
    "Classes are resampled with all their queries (cluster bootstrap); what the queries "
    "search stays as it is. The design effect says how many times too small the variance would be "
    "if queries of a class counted as independent."
)


def classes_section(analysis: Analysis) -> Section | None:
    """Return the section, or ``None`` if nothing has been scored."""
    blocks: list[Block] = []
    if analysis.uncertainties:
        few = f" {analysis.test_classes} classes are few for a bootstrap."
        text = _FOOTNOTE + (few if analysis.test_classes < _FEW_CLASSES else "")
        blocks += [_table(analysis), Footnote(text)]
    if analysis.unscored:
        names = [f"{method} ({category})" for method, category in analysis.unscored]
        shown = names if len(names) <= 6 else [*names[:5], f"{len(names) - 5} more"]
        blocks.append(
            f"The scores of every query are missing or damaged for {listed(shown)}, which have no "
            "interval here."
        )
    return Section("classes", "Other test classes", tuple(blocks)) if blocks else None


def _table(analysis: Analysis) -> PlainTable:
    """Return the table of intervals."""
    header = (
        "Method", "Category", METRICS[PRIMARY],
        "Other classes", "Classes and training", "Design effect",
    )  # fmt: skip
    rows = tuple(
        (
            method,
            category,
            interval_text(uncertainty.training),
            _range(uncertainty.classes),
            _range(uncertainty.both),
            f"{uncertainty.design_effect:.1f}"
            if math.isfinite(uncertainty.design_effect)
            else NOTHING,
        )
        for (method, category), uncertainty in analysis.uncertainties.items()
    )
    caption = (
        f"{METRICS[PRIMARY]} in percent: the estimate with its interval on these classes, as in "
        "the summary, and 95 % bootstrap intervals."
    )
    return PlainTable(caption, header, rows, words=("Method", "Category"))


def _range(bounds: Bounds | None) -> str:
    return f"{percent(bounds.low)} to {percent(bounds.high)}" if bounds else NOTHING
