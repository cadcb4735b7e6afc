"""Galleries of samples with their nearest neighbours, as illustration rather than evidence."""

from __future__ import annotations

from reality_check.report.sections.blocks import Gallery, Section
from reality_check.report.summary import Summary
from reality_check.report.wording import file_name

#: Caption of all galleries.
_CAPTION = (
    "Left, the query: the first {noun} of each of some evenly spaced test classes, the same for "
    "all methods. Right, its nearest neighbours among all other test {noun}s, nearest first: a "
    "solid green frame marks the query's class, a dashed red one another class. Embeddings of the "
    "ensemble of the first reproduction, in the method's own geometry. This illustrates, and is no "
    "evidence: the tables are."
)


def galleries_section(summary: Summary) -> Section | None:
    """Return the section with galleries in the order of methods, or ``None`` without galleries."""
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
    caption = _CAPTION.format(noun=noun)
    return Section("galleries", "Nearest neighbours", (caption, *galleries)) if galleries else None
