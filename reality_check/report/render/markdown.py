"""``report.md``: the report for a repository page or a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from reality_check.report.figures.plotting import ReportFigure
from reality_check.report.sections import blocks as kinds
from reality_check.report.sections.blocks import Block, PlainTable, Section, Strong, Text
from reality_check.report.tables import CLOSE_MARK, Cell, ComparisonTable
from reality_check.report.wording import NOTHING


def report_md(title: str, sections: Sequence[Section]) -> str:
    """Return a page of sections; the title takes the place of the first section's heading."""
    blocks = [f"# {_escape(title)}"]
    for number, section in enumerate(sections):
        blocks += [f"## {_escape(section.heading)}"] if number else []
        blocks += _blocks(section.blocks)
    return "\n\n".join(blocks) + "\n"


def _escape(text: str) -> str:
    """Return ``text`` on one line, with the special characters of Markdown and HTML escaped."""
    return re.sub(r"([\\`*_{}\[\]<>|#~&$])", r"\\\1", re.sub(r"\s+", " ", text))


def _blocks(blocks: Sequence[Block]) -> Iterator[str]:
    for block in blocks:
        yield from _block(block)


def _block(block: Block) -> Iterator[str]:
    """Yield the paragraphs of a block."""
    match block:
        case kinds.Verdict():
            for part in block.blocks:
                yield from [f"**{_escape(part)}**"] if isinstance(part, str) else _block(part)
        case kinds.ComparisonTables():
            for table in block.tables:
                yield from (f"**{_escape(table.category)}**", _comparison_table(table))
        case kinds.Folded():
            if block.headed:
                yield f"### {_escape(block.title)}"
            for text in _blocks(block.blocks):  # headings within it are one level deeper
                yield f"#{text}" if block.headed and text.startswith("###") else text
        case kinds.Box():
            yield from _blocks(block.blocks)
        case _:
            if text := _paragraph(block):
                yield text


def _paragraph(block: Block) -> str:
    """Return a block that contains no other blocks; empty for blocks that only HTML shows."""
    match block:
        case str():
            return _escape(block)
        case kinds.Heading():
            return f"### {_escape(block.text)}"
        case kinds.Bullets():
            return "\n".join(f"- {_line(line)}" for line in block.lines)
        case kinds.Footnote():
            return _line(block.text)
        case kinds.PlainTable():
            return _plain_table(block)
        case kinds.Code():
            # Longer than any run of backticks in the text
            fence = "`" * max(3, 1 + max(map(len, re.findall("`+", block.text)), default=0))
            return f"{fence}{block.language}\n{block.text.rstrip()}\n{fence}"
        case ReportFigure():
            return f"![{_escape(block.alt)}]({block.folder}figures/{block.stem}.svg)"
        case kinds.Gallery():
            return f"![{_escape(block.alt)}](figures/{block.stem}.png)"
        case kinds.WholeReport():
            path = f"{block.folder}/report.md"
            return f"The whole report: [{path}]({path})."
    return ""


def _line(text: Text) -> str:
    """Return a text, or its pieces joined, some of which are bold."""
    pieces = (text,) if isinstance(text, str) else text
    return "".join(
        f"**{_escape(piece)}**" if isinstance(piece, Strong) else _escape(piece)
        for piece in pieces
    )  # fmt: skip


def _comparison_table(table: ComparisonTable) -> str:
    rows = []
    for row in table.rows:
        name = _escape(row.method) if row.trained else f"*{_escape(row.method)}*"
        rows.append([name, *map(_cell, row.cells), row.n, *row.columns])
    header = ["Method", *map(_escape, table.metrics), "n", *map(_escape, table.columns)]
    return _table_text(header, rows, ("Method",))


def _cell(cell: Cell) -> str:
    """Return a mean with its marks and the half-width of its interval."""
    if cell.interval is None:
        return NOTHING
    mean, plus_minus, width = cell.text.partition(" ± ")
    mean = f"**{mean}**" if cell.best else mean
    return mean + (CLOSE_MARK if cell.close else "") + plus_minus + width


def _plain_table(table: PlainTable) -> str:
    if not table.rows:
        return "None recorded."
    rows = [[_escape(text.replace("\n", ", ")) for text in row] for row in table.rows]
    header = [_escape(text) for text in table.header]
    return f"{_escape(table.caption)}\n\n{_table_text(header, rows, table.words)}"


def _table_text(header: list[str], rows: list[list[str]], words: tuple[str, ...]) -> str:
    """Return a table whose columns align right, but for those with headings in ``words``."""
    rule = ["---" if text in words else "---:" for text in header]
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, rule, *rows])
