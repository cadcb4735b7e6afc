"""The results of :mod:`reality_check.papers.gains` as sentences, plain data and a figure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reality_check.papers.gains import RETRAININGS, Gain, Noise
from reality_check.papers.printed_tables import PrintedTable
from reality_check.report.wording import counted, p_text, true_minus
from reality_check.statistics import Simultaneous
from reality_check.utils.files import atomic_write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Explanations of the outcomes and of the number of searches.
_LEGEND = {
    "distinguishable": "distinguishable: larger than the luck of seeds and searches.",
    "the settings only": (
        "the settings only: they retrain apart, but luck of the searches may be why."
    ),
    "searches": (
        f"searches: of each method, with {RETRAININGS} retrainings of each winner, to find a true "
        "difference of that size in 4 of 5 cases."
    ),
}


def sentences(
    table: PrintedTable,
    noise: Noise,
    gains: Sequence[Gain],
    correction: Simultaneous,
    proposed: str | None = None,
) -> Iterator[str]:
    """Yield the lines of the text that ``reality-check claim`` prints."""
    yield (
        f"{table.source}, {table.rows[0].metric} in points: {counted(len(gains), 'comparison')}, "
        f"p-values and intervals corrected together ({correction})."
    )
    if proposed and correction == "Tukey":
        yield (
            f"{proposed} has the highest mean of the table, as the luckiest of equal methods "
            "would: the correction covers every pair."
        )
    yield f"Training one network has an sd of {noise.network.sd:.2f} ({noise.network.source})."
    if not any("networks" in row.model_fields_set for row in table.rows):
        yield "Each retraining counts as one network; if it has folds, fill in the column networks."
    yield f"A search of hyper-parameters has one of {noise.search.sd:.2f} ({noise.search.source})."
    if noise.classes:
        yield f"Other test classes move a difference by {math.sqrt(noise.classes):.2f} (sd)."
    if any(row.selected_on == "test" for row in table.rows):
        yield (
            "Epochs or values were chosen on the test classes: up to "
            f"{noise.selection:.1f} points of a gain may come from that, and are not counted."
        )
    yield from (_sentence(gain) for gain in gains)
    counts = Counter[str](gain.outcome for gain in gains)
    yield (
        f"{counts['distinguishable']} of {counted(len(gains), 'difference')} distinguishable from "
        f"luck, {counts['the settings only']} of the settings only."
    )
    counts["searches"] = sum(gain.searches_needed is not None for gain in gains)
    yield from (text for key, text in _LEGEND.items() if counts[key])


def _sentence(gain: Gain) -> str:
    """Return the line of a comparison."""
    needed = f"; {gain.searches_needed or 'over 1,000'} searches"
    if gain.outcome == "distinguishable":
        needed = ""
    return (
        f"  {gain.first.method} − {gain.second.method}: {true_minus(gain.difference, plus=True)} "
        f"(± {gain.half_width_seeds:.2f} by seeds, ± {gain.half_width:.2f} in all), "
        f"{p_text(gain.corrected_p)}: {gain.outcome}{needed}"
    )


def plain(
    table: PrintedTable, noise: Noise, gains: Sequence[Gain], correction: Simultaneous
) -> dict[str, Any]:
    """Return the comparisons and the noise as plain data (``--json``)."""
    return {
        "source": table.source,
        "metric": table.rows[0].metric,
        "correction": correction,
        "noise": {
            "network_sd": noise.network.sd,
            "network_source": noise.network.source,
            "search_sd": noise.search.sd,
            "selection_on_test": noise.selection,
            "classes_sd": math.sqrt(noise.classes),
        },
        "gains": [
            {**vars(gain), "first": gain.first.method, "second": gain.second.method}
            for gain in gains
        ],
    }


def write_figure(path: Path, table: PrintedTable, gains: Sequence[Gain]) -> None:
    """Draw each difference with both intervals; the suffix of the path sets the format."""
    from reality_check.report.figures.plotting import render

    ending = path.suffix.removeprefix(".")
    atomic_write(path, render(lambda: _figure(table, gains), (ending,))[ending])


def _figure(table: PrintedTable, gains: Sequence[Gain]) -> Figure:
    from reality_check.report.figures.plotting import (
        COLOURS,
        FAINT,
        SMALL,
        WIDTH,
        dress,
        label_x,
        new_figure,
    )

    figure = new_figure(WIDTH, 0.7 + 0.24 * len(gains))
    axes = figure.add_subplot()
    dress(axes, SMALL)
    heights = list(range(len(gains), 0, -1))
    colours = [COLOURS[0] if gain.outcome == "distinguishable" else FAINT for gain in gains]
    differences = [gain.difference for gain in gains]
    for width, attribute in ((1.2, "half_width"), (4, "half_width_seeds")):
        halves = [getattr(gain, attribute) for gain in gains]
        axes.errorbar(
            differences, heights, xerr=halves, fmt="none", ecolor=colours, elinewidth=width
        )
    axes.scatter(differences, heights, c=colours, marker="D", s=25, zorder=3)
    axes.axvline(0, color=FAINT, linewidth=1)
    axes.set_yticks(heights, [f"{gain.first.method} − {gain.second.method}" for gain in gains])
    label_x(
        axes, f"{table.rows[0].metric}, points: thick by seeds, thin in all (95 %, all together)"
    )
    return figure
