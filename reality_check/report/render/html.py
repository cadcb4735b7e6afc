"""``report.html``: one page with everything in it; it asks for nothing from any network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources

from reality_check.report.figures.galleries import Gallery
from reality_check.report.figures.overview import DrawnFigure
from reality_check.report.render._elements import Html, element, escape, join
from reality_check.report.render._html_blocks import (
    Part,
    bullets,
    contents,
    figure,
    folded,
    galleries,
    part,
    section,
)
from reality_check.report.render._html_tables import comparison, plain
from reality_check.report.sections import Section
from reality_check.report.sections.overview import (
    baseline_table,
    budget_table,
    config_text,
    deviation_box,
    facts_table,
    other_note,
    overview_facts,
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
    cautions,
    correction_note,
    headline,
    leaders,
)
from reality_check.report.summary import Summary
from reality_check.report.tables import (
    CLOSE_MARK,
    CLOSE_NOTE,
    ComparisonTable,
    comparison_table,
    comparison_tables,
    other_tables,
)
from reality_check.report.text import counted, listed

#: The page may use its own styles, its one script and images inside itself, nothing else.
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{}'; "
    "form-action 'none'; base-uri 'none'"
)

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
        shown: the galleries, set into the page as PNG or WebP.
        sections: further sections, each after the part that it names.
    """
    parts = [
        overview(summary),
        box(summary),
        *_further(sections, "box"),
        _comparison(summary),
        *_published(summary),
        *_intervals(figures),
        _verdicts(summary),
        *_further(sections, "verdict"),
        _search(summary, figures),
        *_further(sections, "search"),
        *galleries(shown),
        part("reproductions", "Every reproduction", _reproductions(summary)),
        part(
            "baselines",
            "Baselines",
            plain(baseline_table(summary)),
            bullets(untrained_sentences(summary)),
        ),
        part("facts", "How it was run", plain(facts_table(summary)), _config(summary)),
        part("again", "How to reproduce", _again(summary)),
    ]
    return page(summary.results.name, parts)


def page(title: str, parts: Sequence[Part]) -> str:
    """Return a page of sections under a title, with links to them."""
    tools = element(
        "p",
        element("button", "Unfold all", type="button", id="folds", hidden=""),
        element("button", "Dark theme", type="button", id="theme", hidden=""),
        class_="tools",
    )
    body = element(
        "body",
        element("a", "Skip to the report", href="#main", class_="skip"),
        element("header", element("h1", title), tools),
        contents(parts),
        element("main", *(part.html for part in parts), id="main", tabindex="-1"),
        element(
            "footer", element("p", "Written by reality-check. This file is all there is to it.")
        ),
    )
    return "<!DOCTYPE html>\n" + element("html", _head(title), body, lang="en") + "\n"


def _head(title: str) -> Html:
    files = resources.files("reality_check.report.render")
    style = files.joinpath("style.css").read_text("utf-8")
    script = files.joinpath("script.js").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return join(
        Html('<head><meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY.format(digest)}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        element("title", f"{title} – reality check"),
        element("style", Html(style)),
        element("script", Html(script)),
        Html("</head>\n"),
    )


def overview(summary: Summary) -> Part:
    """Return the verdict, and in a few lines what was compared, how."""
    return part("overview", "Overview", *overview_content(summary))


def overview_content(summary: Summary) -> list[Html]:
    """Return the verdict and the facts of the overview."""
    pairs = [
        element("div", element("dt", name), element("dd", text))
        for name, text in overview_facts(summary)
    ]
    return [_verdict(summary), *([element("dl", *pairs, class_="facts")] if pairs else [])]


def _verdict(summary: Summary) -> Html:
    """Who leads: in a sentence, or in a line for each of several."""
    found = leaders(summary)
    if len(found) < 2:
        return element("p", headline(summary), class_="verdict")
    lines = [
        element("li", element("strong", f"{listed(where)}:"), f" {text}")
        for text, where in found.items()
    ]
    preliminary = "" if summary.results.finished else element("p", "Preliminary:")
    after = [element("p", sentence) for sentence in cautions(summary)]
    return element("div", preliminary, element("ul", *lines), *after, class_="verdict")


def box(summary: Summary) -> Part:
    """Return what deviates from the protocol."""
    kind, children = box_content(summary)
    return part("box", "What deviates from the protocol", *children, kind=kind)


def box_content(summary: Summary) -> tuple[str, list[Html]]:
    """Return the class of the box, and what is in it."""
    shown = deviation_box(summary)
    items = [
        element(
            "li",
            element("strong", "Serious – " if serious else "", lead),
            " ",
            rest,
            class_="serious" if serious else "minor",
        )
        for serious, lead, rest in shown.entries
    ]
    serious = sum(found for found, _, _ in shown.entries)
    children = [element("p", shown.opening)] if shown.opening else []
    first = max(_DEVIATIONS_SHOWN, serious)
    children += [element("ul", *items[:first])] if items else []
    if further := items[first:]:
        children.append(folded(counted(len(further), "further deviation"), element("ul", *further)))
    missing = progress_lines(summary)
    if missing:
        children += [element("h3", "Not finished"), bullets(missing)]
    kind = "clean"
    if shown.entries or missing or summary.results.protocol != summary.results.reference:
        kind = "serious" if serious else "minor"
    return f"box {kind}", children


def _comparison(summary: Summary) -> Part:
    if not summary.results.rows:
        return part("comparison", "Comparison", element("p", "No results yet."))
    tables, others = comparison_tables(summary), other_tables(summary)
    geometries = []
    if summary.other_geometries:
        geometries = [
            comparison_table(summary, category, summary.other_geometries)
            for category in summary.categories
        ]
    children = [
        _filter([*tables, *others]),
        comparison_grid(summary, tables),
        legend_note(),
    ]
    if others:
        children += [
            element("h3", "Other metrics"),
            element("p", other_note(summary)),
            comparison_grid(summary, others),
        ]
    if geometries:
        text = "The same runs, measured on the geometry that a method does not use"
        children.append(folded(text, *map(comparison, geometries)))
    return part("comparison", "Comparison", *children)


def comparison_grid(summary: Summary, tables: Sequence[ComparisonTable]) -> Html:
    """Return the tables side by side where there is room."""
    origins = summary.origins
    return element("div", *(comparison(table, origins) for table in tables), class_="tables")


def legend_note() -> Html:
    """Return what the numbers and marks of a comparison table mean."""
    return element(
        "p",
        "Percent, mean ± half-width of the 95 % t-interval over n reproductions. ",
        element("strong", "Bold"),
        f": best mean of its column. {CLOSE_MARK}: {CLOSE_NOTE}.",
        class_="note",
    )


def _filter(tables: Sequence[ComparisonTable]) -> Html:
    """Return the controls of the comparison, which a script shows: without it they do nothing."""
    categories = list(dict.fromkeys(table.category for table in tables))
    metrics = list(dict.fromkeys(metric for table in tables for metric in table.metrics))
    search = element(
        "label",
        "Methods whose name contains ",
        Html('<input type="search" name="method" autocomplete="off" spellcheck="false">'),
    )
    return element(
        "form",
        search,
        _ticks("Categories", "category", categories),
        _ticks("Metrics", "metric", metrics),
        element("button", "Show all", type="reset"),
        element("output", aria_live="polite"),
        class_="filter",
        aria_label="Filter the comparison",
        hidden="",
    )


def _ticks(legend: str, name: str, values: Sequence[str]) -> Html:
    boxes = [
        element(
            "label",
            Html(f'<input type="checkbox" name="{name}" value="{escape(value)}" checked> '),
            value,
        )
        for value in values
    ]
    return element("fieldset", element("legend", legend), *boxes)


def _published(summary: Summary) -> list[Part]:
    children = []
    for one in published_parts(summary):
        children += [element("p", one.caption), *([plain(one.table)] if one.table else [])]
        children.append(bullets(one.notes))
    return [part("published", "Published", *children)] if children else []


def _intervals(figures: list[DrawnFigure]) -> list[Part]:
    shown = [figure(drawn) for drawn in figures if drawn.stem.startswith("intervals_")]
    if not shown:
        return []
    more = [folded("The same figure for the other metrics", *shown[1:])] if shown[1:] else []
    return [part("intervals", "Intervals", shown[0], *more)]


def _verdicts(summary: Summary) -> Part:
    blocks = []
    for category in summary.categories:
        sentences = category_sentences(summary, category)
        shown, further = sentences[:_SENTENCES_SHOWN], sentences[_SENTENCES_SHOWN:]
        blocks += [element("h3", category), bullets(shown)]
        if further:
            blocks.append(folded(counted(len(further), "further sentence"), bullets(further)))
        if note := correction_note(summary, category):
            blocks.append(element("p", note, class_="note"))
    return part("verdict", "Verdict", element("p", NOISE_NOTE), *blocks)


def _search(summary: Summary, figures: list[DrawnFigure]) -> Part:
    drawn = {found.stem: found for found in figures}
    pictures = [
        figure(drawn[stem]) for stem in ("search_history", "validation_curves") if stem in drawn
    ]
    return part(
        "search",
        "Search and budget",
        element("p", search_note(summary)),
        *pictures[:1],
        plain(budget_table(summary)),
        plain(winner_table(summary)),
        *pictures[1:],
    )


def _further(sections: Sequence[Section], after: str) -> list[Part]:
    return [section(shown) for shown in sections if shown.after == after]


def _reproductions(summary: Summary) -> Html:
    table = reproduction_table(summary)
    if not table.rows:
        return element("p", "No reproduction has been scored yet.")
    return folded(f"{len(table.rows)} rows, as in results.csv", plain(table))


def _config(summary: Summary) -> Html:
    text = config_text(summary)
    if not text:
        return Html("")
    title = "The resolved experiment (experiment.yaml)"
    if len(summary.results.folders) > 1:
        title = "The settings that the folders have in common, and all methods"
    return folded(title, element("pre", text, tabindex="0"))


def _again(summary: Summary) -> Html:
    where, commands, more = reproduce_lines(summary)
    shown = element("pre", "\n".join(commands), tabindex="0")
    return join(element("p", where), shown, element("p", more))
