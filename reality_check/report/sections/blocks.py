"""The blocks of a report as plain data, which are rendered as Markdown and as HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from reality_check.report.figures.plotting import ReportFigure
from reality_check.report.tables import ComparisonTable


class Strong(str):
    """Words in bold."""

    __slots__ = ()


class Alarming(Strong):
    """Words in bold and in the colour of a warning."""

    __slots__ = ()


#: A line of text, or its pieces, some of which may be :class:`Strong`.
Text = str | tuple[str, ...]


@dataclass(frozen=True)
class Heading:
    """A heading within a section."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """A list of sentences, each on its own line."""

    lines: tuple[Text, ...]


@dataclass(frozen=True)
class Footnote:
    """A paragraph of small print."""

    text: Text


@dataclass(frozen=True)
class Verdict:
    """The verdict, in large print."""

    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Facts:
    """Facts, each a name and a few words, next to the text where the page has room."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class PlainTable:
    """A table of texts; ``words`` are the headings of columns of words, the others have numbers."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: tuple[str, ...] = ("Method",)


@dataclass(frozen=True)
class ComparisonTables:
    """Tables of methods by metrics, side by side where there is room.

    Attributes:
        tables: one table for each category.
        origins: output folder of each method; empty if there is only one folder.
    """

    tables: tuple[ComparisonTable, ...]
    origins: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Filter:
    """Controls that hide rows, columns and tables of a section's comparison, in HTML."""

    tables: tuple[ComparisonTable, ...]


@dataclass(frozen=True)
class Code:
    """Commands or settings as code; ``language`` is ``sh`` or ``yaml``."""

    text: str
    language: str


@dataclass(frozen=True)
class Gallery:
    """The gallery of a method.

    Attributes:
        stem: name of the file in ``figures/`` without suffix.
        method: name of the method.
        alt: description for readers who cannot see it.
        png: content of the file.
    """

    stem: str
    method: str
    alt: str
    png: bytes


@dataclass(frozen=True)
class WholeReport:
    """A link to the whole report in a subfolder."""

    folder: str


@dataclass(frozen=True)
class Box:
    """Blocks in a coloured box; its kind is ``serious``, ``minor`` or ``clean``."""

    kind: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Folded:
    """Blocks that a reader can open and close.

    Attributes:
        title: the title, which stays visible.
        blocks: the folded blocks.
        headed: whether formats without folding show the title as a heading.
        anchor: anchor for links; empty for none.
    """

    title: str
    blocks: tuple[Block, ...]
    headed: bool = True
    anchor: str = ""


Block = (
    str
    | Heading
    | Bullets
    | Footnote
    | Verdict
    | Facts
    | PlainTable
    | ComparisonTables
    | Filter
    | Code
    | ReportFigure
    | Gallery
    | WholeReport
    | Box
    | Folded
)


@dataclass(frozen=True)
class Section:
    """A heading with the blocks below it.

    Attributes:
        anchor: unique anchor for links.
        heading: the heading, a few words.
        blocks: paragraphs (texts), sentences, tables, figures, ...
        kind: kind of the :class:`Box` around the section; empty for none.
    """

    anchor: str
    heading: str
    blocks: tuple[Block, ...]
    kind: str = ""

    @property
    def figures(self) -> list[ReportFigure]:
        """All figures of the section, including folded ones."""
        return [block for block in _all_blocks(self.blocks) if isinstance(block, ReportFigure)]

    @property
    def galleries(self) -> list[Gallery]:
        """All galleries of the section, including folded ones."""
        return [block for block in _all_blocks(self.blocks) if isinstance(block, Gallery)]


def _all_blocks(blocks: tuple[Block, ...]) -> Iterator[Block]:
    """Yield all blocks, including those within other blocks."""
    for block in blocks:
        yield block
        if isinstance(block, Folded | Box | Verdict):
            yield from _all_blocks(block.blocks)
