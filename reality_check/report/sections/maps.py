"""Maps of test samples: a t-SNE of each method, where one was asked for."""

from __future__ import annotations

from functools import partial

from reality_check.config.metrics import Stage
from reality_check.report.figures.map_figure import map_figure, marked_classes
from reality_check.report.figures.plotting import ReportFigure
from reality_check.report.sections.blocks import Note, Section
from reality_check.report.summary import Summary
from reality_check.report.text import listed
from reality_check.results import EmbeddingMap

_NOTE = (
    "Only neighbourhood means something: distances between groups, their sizes and their "
    "densities are made by t-SNE, and so are the axes. A map is an illustration, not evidence: the "
    "tables are."
)


def maps_section(summary: Summary) -> Section | None:
    """Return the section; ``None`` where no method has a map."""
    maps = {m.name: m.map for m in summary.results.methods if m.map is not None}
    if not maps:
        return None
    noun = summary.results.noun
    return Section("maps", f"Map of the test {noun}s", (_figure(maps, noun), Note(_NOTE)))


def _figure(maps: dict[str, EmbeddingMap], noun: str) -> ReportFigure:
    shown = next(iter(maps.values()))
    names = [shown.class_names[label] for label in marked_classes(shown.labels)]
    what = "ensemble" if shown.stage == Stage.REPRODUCTIONS else "complete network"
    caption = (
        f"t-SNE (perplexity {shown.perplexity:g}) of {len(shown.points)} test {noun}s, in the "
        f"method's own geometry: embeddings of the {what} of one reproduction. The same "
        f"{len(names)} classes are marked in every panel; grey: all others."
    )
    alt = (
        f"A map of {len(shown.points)} test {noun}s for each of {listed(list(maps))}; marked: "
        f"{listed(names)}. What it shows in numbers are the scores of the comparison."
    )
    return ReportFigure("maps", caption, alt, partial(map_figure, maps))
