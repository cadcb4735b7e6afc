"""What the report is made of, as plain data; Markdown and HTML each show it in their way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from reality_check.report.figures.plotting import ReportFigure
from reality_check.report.tables import ComparisonTable


class Strong(str):
    """Words that stand out from the others of their line."""

    __slots__ = ()


class Alarming(Strong):
    """Words that nobody is to read past."""

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
class Note:
    """A paragraph of small print."""

    text: Text


@dataclass(frozen=True)
class Verdict:
    """What is to be read first, in large print."""

    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Facts:
    """Names and what they are, in a few words each, where the page has room for them."""

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
    """What leaves out rows, columns and tables of a section's comparison, where a page can."""

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
    """A link to the report, of the same form, that lies in a folder below."""

    folder: str


@dataclass(frozen=True)
class Box:
    """What is set apart; its kind is ``serious``, ``minor`` or ``clean``."""

    kind: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Folded:
    """What a reader opens when wanted.

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
    | Note
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
