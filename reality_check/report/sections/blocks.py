"""The parts of a report as plain data, which Markdown and HTML each render."""

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


#: A line of text, or its pieces, some of which may stand out.
Text = str | tuple[str, ...]


@dataclass(frozen=True)
class Heading:
    """A heading within a section."""

    text: str


@dataclass(frozen=True)
class Bullets:
    """Sentences, each on a line of its own."""

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
    """Pairs of a name and a few words, beside the text where the page has room."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class PlainTable:
    """A table of texts; the columns named in ``words`` hold words, the others numbers."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: tuple[str, ...] = ("Method",)


@dataclass(frozen=True)
class ComparisonTables:
    """Tables of methods by metrics, side by side where there is room.

    Attributes:
        tables: one for each category.
        origins: by method, the output folder that it comes from, where there are several.
    """

    tables: tuple[ComparisonTable, ...]
    origins: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Filter:
    """Controls that hide rows, columns and tables of a section's comparison, in HTML."""

    tables: tuple[ComparisonTable, ...]


@dataclass(frozen=True)
class Code:
    """Commands or settings, letter by letter; ``language`` is ``sh`` or ``yaml``."""

    text: str
    language: str


@dataclass(frozen=True)
class Gallery:
    """One method's gallery: the file's stem in ``figures/``, whose it is, a sentence, the PNG."""

    stem: str
    method: str
    alt: str
    png: bytes


@dataclass(frozen=True)
class WholeReport:
    """A link to the whole report, which is in a subfolder."""

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
        title: what is in it.
        blocks: the content.
        headed: whether the title is a heading where nothing can be folded.
        anchor: for links; empty for none.
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
    """A heading and what stands below it.

    Attributes:
        anchor: for links; no other section has it.
        heading: a few words.
        blocks: paragraphs (texts), sentences, tables, figures, ...
        kind: that of a :class:`Box` around all of it; empty for none.
    """

    anchor: str
    heading: str
    blocks: tuple[Block, ...]
    kind: str = ""

    @property
    def figures(self) -> list[ReportFigure]:
        """All its figures, folded ones too."""
        return [block for block in _every(self.blocks) if isinstance(block, ReportFigure)]

    @property
    def galleries(self) -> list[Gallery]:
        """All its galleries."""
        return [block for block in _every(self.blocks) if isinstance(block, Gallery)]


def _every(blocks: tuple[Block, ...]) -> Iterator[Block]:
    for block in blocks:
        yield block
        if isinstance(block, Folded | Box | Verdict):
            yield from _every(block.blocks)
