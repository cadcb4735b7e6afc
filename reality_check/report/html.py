"""``report.html``: one page with everything in it; it asks for nothing from any network."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from importlib import resources

from reality_check.report._elements import Html, element, escape, join
from reality_check.report._html_tables import comparison, plain
from reality_check.report._plotting import inline_svg
from reality_check.report._sections import (
    COMMAND,
    PlainTable,
    baseline_table,
    budget_table,
    config_text,
    deviation_box,
    facts_table,
    other_note,
    progress_lines,
    reproduction_table,
    search_note,
    winner_table,
)
from reality_check.report._summary import Summary
from reality_check.report._text import counted
from reality_check.report.figures import DrawnFigure
from reality_check.report.galleries import NOTE, Gallery
from reality_check.report.published import published_lines, published_table
from reality_check.report.sections import Block, Bullets, Folded, Note, Section
from reality_check.report.tables import (
    CLOSE_MARK,
    CLOSE_NOTE,
    comparison_table,
    comparison_tables,
    other_tables,
)
from reality_check.report.verdict import (
    NOISE_NOTE,
    category_sentences,
    correction_note,
    headline,
)

#: The page may use its own styles and images inside itself, nothing else.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

#: More deviations, or sentences, than this are folded away; serious deviations never are.
_DEVIATIONS_SHOWN = 6
_SENTENCES_SHOWN = 3


def report_html(
    summary: Summary,
    figures: list[DrawnFigure],
    shown: Sequence[Gallery] = (),
    sections: Sequence[Section] = (),
) -> str:
    """Return the whole page.

    Args:
        summary: the results.
        figures: drawn figures, set into the page as SVG.
        shown: the galleries, set into the page as PNG.
        sections: further sections, each after the part that it names.
    """
    body = element(
        "main",
        element("h1", summary.results.name),
        element("p", headline(summary), class_="verdict"),
        _box(summary),
        _comparison(summary),
        _published(summary),
        _intervals(figures),
        _verdicts(summary),
        *_further(sections, "verdict"),
        _search(summary, figures),
        *_further(sections, "search"),
        _galleries(shown),
        _section("reproductions", "Every reproduction", _reproductions(summary)),
        _section("baselines", "Baselines", plain(baseline_table(summary))),
        _section("facts", "How it was run", plain(facts_table(summary)), _config(summary)),
        _section("again", "How to reproduce", _again()),
    )
    return "<!DOCTYPE html>\n" + element("html", _head(summary), element("body", body), lang="en")


def _head(summary: Summary) -> Html:
    style = resources.files("reality_check.report").joinpath("style.css").read_text("utf-8")
    return join(
        Html('<head><meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        element("title", f"{summary.results.name} – reality check"),
        element("style", Html(style)),
        Html("</head>\n"),
    )


def _section(anchor: str, heading: str, *children: str) -> Html:
    identifier = f"{anchor}-heading"
    head = element("h2", heading, id=identifier)
    return element("section", head, *children, id=anchor, aria_labelledby=identifier)


def _bullets(lines: list[str]) -> Html:
    return element("ul", *(element("li", line) for line in lines)) if lines else Html("")


def _folded(summary_line: str, *children: str) -> Html:
    return element("details", element("summary", summary_line), *children)


def _box(summary: Summary) -> Html:
    box = deviation_box(summary)
    items = [
        element(
            "li",
            element("strong", "Serious – " if serious else "", lead),
            " ",
            rest,
            class_="serious" if serious else "minor",
        )
        for serious, lead, rest in box.entries
    ]
    children = [element("p", box.opening)] if box.opening else []
    shown = max(_DEVIATIONS_SHOWN, sum(serious for serious, _, _ in box.entries))
    children += [element("ul", *items[:shown])] if items else []
    if rest_of_items := items[shown:]:
        text = counted(len(rest_of_items), "further deviation")
        children.append(_folded(text, element("ul", *rest_of_items)))
    missing = progress_lines(summary)
    if missing:
        children += [element("h3", "Not finished"), _bullets(missing)]
    kind = "clean"
    if box.entries or missing or summary.results.protocol != summary.results.reference:
        kind = "serious" if any(serious for serious, _, _ in box.entries) else "minor"
    head = element("h2", "What deviates from the protocol", id="box-heading")
    return element(
        "section", head, *children, class_=f"box {kind}", id="box", aria_labelledby="box-heading"
    )


def _comparison(summary: Summary) -> Html:
    tables = [comparison(table) for table in comparison_tables(summary)]
    if not summary.results.rows:
        return _section("comparison", "Comparison", element("p", "No results yet."))
    legend = element(
        "p",
        "Percent, mean ± half-width of the 95 % t-interval over n reproductions. ",
        element("strong", "Bold"),
        f": best mean of its column. {CLOSE_MARK}: {CLOSE_NOTE}.",
        class_="note",
    )
    children = [element("div", *tables, class_="tables"), legend]
    if others := [comparison(table) for table in other_tables(summary)]:
        children += [
            element("h3", "Other metrics"),
            element("p", other_note(summary)),
            element("div", *others, class_="tables"),
        ]
    if summary.other_geometries:
        others = [
            comparison(comparison_table(summary, category, summary.other_geometries))
            for category in summary.categories
        ]
        text = "The same runs, measured on the geometry that a method does not use"
        children.append(_folded(text, *others))
    return _section("comparison", "Comparison", *children)


def _published(summary: Summary) -> Html:
    lines = published_lines(summary)
    if not lines:
        return Html("")
    table = published_table(summary)
    children = [element("p", lines[0]), *([plain(table)] if table else [])]
    return _section("published", "Published", *children, _bullets(lines[1:]))


def _intervals(figures: list[DrawnFigure]) -> Html:
    shown = [_figure(figure) for figure in figures if figure.stem.startswith("intervals_")]
    if not shown:
        return Html("")
    more = [_folded("The same figure for the other metrics", *shown[1:])] if shown[1:] else []
    return _section("intervals", "Intervals", shown[0], *more)


def _figure(figure: DrawnFigure) -> Html:
    prefix = "".join(c for c in figure.stem if c.isalnum()) + "-"
    picture = Html(inline_svg(figure.files["svg"], prefix, escape(figure.alt)))
    return element(
        "figure",
        element("div", picture, class_="scroll", tabindex="0", role="group", aria_label="figure"),
        element("figcaption", figure.caption),
    )


def _verdicts(summary: Summary) -> Html:
    blocks = []
    for category in summary.categories:
        sentences = category_sentences(summary, category)
        shown, folded = sentences[:_SENTENCES_SHOWN], sentences[_SENTENCES_SHOWN:]
        blocks += [element("h3", category), _bullets(shown)]
        if folded:
            blocks.append(_folded(f"{counted(len(folded), 'further sentence')}", _bullets(folded)))
        if note := correction_note(summary, category):
            blocks.append(element("p", note, class_="note"))
    return _section("verdict", "Verdict", element("p", NOISE_NOTE), *blocks)


def _search(summary: Summary, figures: list[DrawnFigure]) -> Html:
    drawn = {figure.stem: figure for figure in figures}
    pictures = [
        _figure(drawn[stem]) for stem in ("search_history", "validation_curves") if stem in drawn
    ]
    return _section(
        "search",
        "Search and budget",
        element("p", search_note(summary)),
        *pictures[:1],
        plain(budget_table(summary)),
        plain(winner_table(summary)),
        *pictures[1:],
    )


def _further(sections: Sequence[Section], after: str) -> list[Html]:
    return [
        _section(section.anchor, section.heading, *map(_block, section.blocks))
        for section in sections
        if section.after == after
    ]


def _block(block: Block) -> Html:
    match block:
        case str():
            return element("p", block)
        case Note():
            return element("p", block.text, class_="note")
        case Bullets():
            return _bullets(list(block.lines))
        case PlainTable():
            return plain(block)
        case DrawnFigure():
            return _figure(block)
        case Folded():
            return _folded(block.title, *map(_block, block.blocks))


def _galleries(shown: Sequence[Gallery]) -> Html:
    if not shown:
        return Html("")
    pictures = [
        element(
            "figure",
            Html(
                f'<img src="data:image/png;base64,{base64.b64encode(gallery.png).decode()}" '
                f'alt="{escape(gallery.alt)}">'
            ),
            element("figcaption", gallery.method),
        )
        for gallery in shown
    ]
    return _section("galleries", "Nearest neighbours", element("p", NOTE), *pictures)


def _reproductions(summary: Summary) -> Html:
    table = reproduction_table(summary)
    if not table.rows:
        return element("p", "No reproduction has been scored yet.")
    return _folded(f"{len(table.rows)} rows, as in results.csv", plain(table))


def _config(summary: Summary) -> Html:
    text = config_text(summary)
    if not text:
        return Html("")
    return _folded("The resolved experiment (experiment.yaml)", element("pre", text, tabindex="0"))


def _again() -> Html:
    return join(
        element("p", "In the folder of this report:"),
        element("pre", COMMAND),
        element(
            "p",
            "experiment.yaml holds every setting and seed; results.csv holds every number at full "
            "precision; tables.tex and figures/ are ready for a paper.",
        ),
    )
