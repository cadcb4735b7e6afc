"""A section of the report as plain data; Markdown and HTML each show it in their way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from reality_check.report.figures.overview import DrawnFigure
from reality_check.report.sections.overview import PlainTable


@dataclass(frozen=True)
class Bullets:
    """Sentences, each on a line of its own."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Note:
    """A paragraph of small print."""

    text: str


@dataclass(frozen=True)
class Folded:
    """What a reader opens when wanted; ``title`` says what is in it."""

    title: str
    blocks: tuple[Block, ...]


Block = str | Bullets | Note | PlainTable | DrawnFigure | Folded


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it.

    Attributes:
        anchor: for links; no other section has it.
        heading: a few words.
        after: which part of the report it follows.
        blocks: paragraphs (texts), sentences, tables and figures.
    """

    anchor: str
    heading: str
    after: Literal["box", "verdict", "search"]
    blocks: tuple[Block, ...]

    @property
    def figures(self) -> list[DrawnFigure]:
        """All its figures, folded ones too."""
        return list(_figures(self.blocks))


def _figures(blocks: tuple[Block, ...]) -> Iterator[DrawnFigure]:
    for block in blocks:
        if isinstance(block, DrawnFigure):
            yield block
        elif isinstance(block, Folded):
            yield from _figures(block.blocks)
