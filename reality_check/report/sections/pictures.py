"""Pictures, which are no evidence: a map of each method, and samples with their neighbours."""

from __future__ import annotations

from functools import partial

from reality_check.config.metrics import Stage
from reality_check.report.figures.map_figure import map_figure, marked_classes
from reality_check.report.figures.plotting import ReportFigure
from reality_check.report.sections.blocks import Gallery, Note, Section
from reality_check.report.summary import Summary
from reality_check.report.text import file_name, listed
from reality_check.results import EmbeddingMap

_MAPS_NOTE = (
    "Only neighbourhood means something: distances between groups, their sizes and their "
    "densities are made by t-SNE, and so are the axes. A map is an illustration, not evidence: the "
    "tables are."
)
#: What all galleries have in common.
_GALLERIES_NOTE = (
    "Left, the query: the first {noun} of each of some evenly spaced test classes, the same for "
    "all methods. Right, its nearest neighbours among all other test {noun}s, nearest first: a "
    "solid green frame marks the query's class, a dashed red one another class. Embeddings of the "
    "ensemble of the first reproduction, in the method's own geometry. This illustrates, and is no "
    "evidence: the tables are."
)


def maps_section(summary: Summary) -> Section | None:
    """Return the section; ``None`` where no method has a map."""
    maps = {m.name: m.map for m in summary.results.methods if m.map is not None}
    if not maps:
        return None
    noun = summary.results.noun
    return Section("maps", f"Map of the test {noun}s", (_figure(maps, noun), Note(_MAPS_NOTE)))


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


def galleries_section(summary: Summary) -> Section | None:
    """Return the section, in the order of the methods; ``None`` where there are no galleries."""
    noun, names = summary.results.noun, [method.name for method in summary.results.methods]
    galleries = [
        Gallery(
            f"gallery_{file_name(method.name, names)}",
            method.name,
            f"Test {noun}s and their nearest neighbours by {method.name}, right and wrong marked.",
            method.gallery.read_bytes(),
        )
        for method in summary.results.methods
        if method.gallery is not None and method.gallery.exists()
    ]
    note = _GALLERIES_NOTE.format(noun=noun)
    return Section("galleries", "Nearest neighbours", (note, *galleries)) if galleries else None
