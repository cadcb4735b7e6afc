"""``report.md``: the report for a repository page or a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from reality_check.report.figures.galleries import NOTE
from reality_check.report.figures.overview import DrawnFigure
from reality_check.report.sections import Block, Bullets, Folded, Note, Section
from reality_check.report.sections.overview import (
    PlainTable,
    baseline_table,
    budget_table,
    config_text,
    deviation_box,
    facts_table,
    other_note,
    progress_lines,
    reproduce_lines,
    reproduction_table,
    search_note,
    winner_table,
)
from reality_check.report.sections.published import published_parts
from reality_check.report.sections.untrained import untrained_sentences
from reality_check.report.sections.verdict import (
    NOISE_NOTE,
    category_sentences,
    correction_note,
    headline,
)
from reality_check.report.summary import Summary
from reality_check.report.tables import (
    CLOSE_MARK,
    CLOSE_NOTE,
    Cell,
    ComparisonTable,
    comparison_table,
    comparison_tables,
    other_tables,
)
from reality_check.report.text import NOTHING


def escape(text: str) -> str:
    """Return ``text`` on one line, with everything harmless that Markdown or HTML would read."""
    return re.sub(r"([\\`*_{}\[\]<>|#~&$])", r"\\\1", " ".join(text.split()))


def report_md(summary: Summary, figures: dict[str, str], sections: Sequence[Section] = ()) -> str:
    """Return the whole page.

    Args:
        summary: the results.
        figures: for each figure's file stem, a sentence that says what it shows.
        sections: further sections, each after the part that it names.
    """
    blocks = [
        f"# {escape(summary.results.name)}",
        f"**{escape(headline(summary))}**",
        *_box(summary),
        *_further(sections, "box"),
        *_comparison(summary),
        *_published(summary),
        *_figures(figures, "intervals"),
        *_verdicts(summary),
        *_further(sections, "verdict"),
        "## Search and budget",
        escape(search_note(summary)),
        *_figures(figures, "search", "validation"),
        plain_table(budget_table(summary)),
        plain_table(winner_table(summary)),
        *_further(sections, "search"),
        *_galleries(figures),
        "## Every reproduction",
        plain_table(reproduction_table(summary)),
        "## Baselines",
        plain_table(baseline_table(summary)),
        *_bullets(untrained_sentences(summary)),
        "## How it was run",
        plain_table(facts_table(summary)),
        *_config(summary),
        "## How to reproduce",
        *_again(summary),
    ]
    return "\n\n".join(blocks) + "\n"


def _box(summary: Summary) -> list[str]:
    box = deviation_box(summary)
    lines = [
        f"- {'**Serious.** ' if serious else ''}**{escape(lead)}** {escape(rest)}"
        for serious, lead, rest in box.entries
    ]
    blocks = ["## What deviates from the protocol", escape(box.opening), "\n".join(lines)]
    missing = progress_lines(summary)
    if missing:
        blocks += ["## Not finished", *_bullets(missing)]
    return [block for block in blocks if block]


def _comparison(summary: Summary) -> list[str]:
    if not summary.results.rows:
        return ["## Comparison", "No results yet."]
    blocks = ["## Comparison", "Percent, mean ± half-width of the 95 % t-interval over n runs."]
    for table in comparison_tables(summary):
        blocks += [f"### {escape(table.category)}", markdown_table(table)]
    if others := other_tables(summary):
        blocks += ["### Other metrics", escape(other_note(summary))]
        for table in others:
            blocks += [f"{escape(table.category)}:", markdown_table(table)]
    blocks.append(f"**Bold**: best mean. {CLOSE_MARK}: {CLOSE_NOTE}.")
    if summary.other_geometries:
        blocks.append("### The other geometry")
        blocks.append("The same runs, measured on the geometry that a method does not use.")
        for category in summary.categories:
            table = comparison_table(summary, category, summary.other_geometries)
            blocks += [f"{escape(category)}:", markdown_table(table)]
    return blocks


def _published(summary: Summary) -> list[str]:
    blocks = []
    for one in published_parts(summary):
        blocks += [escape(one.caption), *([plain_table(one.table)] if one.table else [])]
        blocks += _bullets(one.notes)
    return ["## Published", *blocks] if blocks else []


def markdown_table(table: ComparisonTable) -> str:
    """Return one category's comparison table."""
    rows = [[escape(row.method), *map(_cell, row.cells), row.n] for row in table.rows]
    return _rows(["Method", *map(escape, table.metrics), "n"], rows, ("Method",))


def _cell(cell: Cell) -> str:
    if cell.interval is None:
        return NOTHING
    mean, sign, width = cell.text.partition(" ± ")
    mean = f"**{mean}**" if cell.best else mean
    return mean + (CLOSE_MARK if cell.close else "") + sign + width


def _verdicts(summary: Summary) -> list[str]:
    blocks = ["## Verdict", NOISE_NOTE]
    for category in summary.categories:
        lines = category_sentences(summary, category)
        lines += [note] if (note := correction_note(summary, category)) else []
        blocks += [f"### {escape(category)}", *_bullets(lines)]
    return blocks


def _bullets(lines: Sequence[str]) -> list[str]:
    """A list; nothing for no lines."""
    return ["\n".join(f"- {escape(line)}" for line in lines)] if lines else []


def _figures(figures: dict[str, str], *prefixes: str) -> list[str]:
    return [
        f"![{escape(text)}](figures/{stem}.png)"
        for stem, text in figures.items()
        if stem.startswith(prefixes)
    ]


def _further(sections: Sequence[Section], after: str) -> Iterator[str]:
    for section in sections:
        if section.after == after:
            yield f"## {escape(section.heading)}"
            yield from _blocks(section.blocks)


def _blocks(blocks: Sequence[Block]) -> Iterator[str]:
    for block in blocks:
        match block:
            case str():
                yield escape(block)
            case Note():
                yield escape(block.text)
            case Bullets():
                yield from _bullets(block.lines)
            case PlainTable():
                yield plain_table(block)
            case DrawnFigure():
                yield from _figures({block.stem: block.alt}, "")
            case Folded():
                yield f"### {escape(block.title)}"
                yield from _blocks(block.blocks)


def _galleries(figures: dict[str, str]) -> list[str]:
    shown = _figures(figures, "gallery_")
    return ["## Nearest neighbours", escape(NOTE), *shown] if shown else []


def _again(summary: Summary) -> list[str]:
    where, commands, more = reproduce_lines(summary)
    lines = "\n".join(commands)
    return [where, f"```sh\n{lines}\n```", escape(more)]


def _config(summary: Summary) -> list[str]:
    text = config_text(summary)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return ["The resolved experiment:", f"{fence}yaml\n{text}{fence}"] if text else []


def plain_table(table: PlainTable) -> str:
    """Return a table of texts."""
    if not table.rows:
        return "None recorded."
    rows = [[escape(text.replace("\n", ", ")) for text in row] for row in table.rows]
    return f"{escape(table.caption)}\n\n" + _rows(
        [escape(text) for text in table.header], rows, table.words
    )


def _rows(header: list[str], rows: list[list[str]], words: tuple[str, ...]) -> str:
    rule = ["---" if text in words else "---:" for text in header]
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, rule, *rows])
