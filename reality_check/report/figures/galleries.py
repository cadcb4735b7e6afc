"""The galleries that the workers drew, with what they show."""

from __future__ import annotations

from dataclasses import dataclass

from reality_check.report.summary import Summary
from reality_check.report.text import file_name

#: What all galleries have in common.
NOTE = (
    "Left, the query: the first image of each of some evenly spaced test classes, the same for all "
    "methods. Right, its nearest neighbours among all other test images, nearest first: a solid "
    "green frame marks the query's class, a dashed red one another class. Embeddings of the "
    "ensemble of the first reproduction, in the method's own geometry. A few images are an "
    "illustration, not evidence: the tables are."
)


@dataclass(frozen=True)
class Gallery:
    """One method's gallery: the file's stem in ``figures/``, whose it is, a sentence, the PNG."""

    stem: str
    method: str
    alt: str
    png: bytes


def galleries(summary: Summary) -> list[Gallery]:
    """Return the galleries that are there, in the order of the methods."""
    return [
        Gallery(
            f"gallery_{file_name(method.name)}",
            method.name,
            f"Test images and their nearest neighbours by {method.name}, right and wrong marked.",
            method.gallery.read_bytes(),
        )
        for method in summary.results.methods
        if method.gallery is not None and method.gallery.exists()
    ]
