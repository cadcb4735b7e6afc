"""``tables.tex``: the comparison tables for a paper (needs ``booktabs``)."""

from __future__ import annotations

from reality_check.report._analysis import Analysis, Pair, of_the_best
from reality_check.report._sections import PlainTable, deviation_box, other_note
from reality_check.report._summary import Summary
from reality_check.report._text import NOTHING, counted, p_text, points
from reality_check.report.published import published_parts
from reality_check.report.tables import (
    Cell,
    ComparisonTable,
    comparison_tables,
    other_tables,
)
from reality_check.results import METRICS, PRIMARY

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    **{character: "\\" + character for character in "&%$#_{}"},
}

_MARKS = (
    r" Best means are bold; $\dagger$: cannot be told from the best "
    r"(Welch test, Holm-corrected)."
)


def escape(text: str) -> str:
    """Return ``text`` with LaTeX's special characters made harmless, on one line."""
    return "".join(_ESCAPES.get(character, character) for character in " ".join(text.split()))


def tables_tex(summary: Summary) -> str:
    """Return a ``table`` environment, and one more where further metrics were asked for."""
    lines = [
        f"% {' '.join(summary.results.name.split())}: written by reality-check.",
        r"% In the preamble: \usepackage{booktabs}",
        *_environment(_caption(summary), list(METRICS.values()), comparison_tables(summary)),
    ]
    if others := other_tables(summary):
        titles = list(summary.final_metrics.values())
        lines += ["", *_environment(_other_caption(summary), titles, others)]
    for part in published_parts(summary):
        if part.table is not None:
            lines += ["", *_plain_environment(part.table, part.caption)]
    return "\n".join([*lines, ""])


def _plain_environment(table: PlainTable, caption: str) -> list[str]:
    """One ``table`` of texts."""
    columns = "".join("l" if text in table.words else "r" for text in table.header)
    rows = [" & ".join(map(_text, row)) + r" \\" for row in table.rows]
    return [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{_text(caption)}}}",
        rf"  \begin{{tabular}}{{{columns}}}",
        r"    \toprule",
        "    " + " & ".join(map(escape, table.header)) + r" \\",
        r"    \midrule",
        *(f"    {row}" for row in rows),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]


def _text(text: str) -> str:
    return escape(text).replace(NOTHING, "--").replace("±", r"$\pm$").replace("−", "$-$")


def paired_tex(analysis: Analysis) -> str:
    """Return a ``table`` of the best method of each category against the others, seed by seed.

    Empty where no pair has an interval.
    """
    rows = {
        category: [pair for pair in of_the_best(pairs) if pair.adjusted_p is not None]
        for category, pairs in analysis.pairs.items()
        if pairs
    }
    if not any(rows.values()):
        return ""
    caption = (
        f"{analysis.summary.results.name}: {METRICS[PRIMARY]} of the best method of each category "
        "minus that of the others, in points, on common seeds: paired 95 % t-interval, p-value "
        "after Holm's correction for all pairs, Cohen's d_z, and the probability P that a run of "
        "the first is above one of the second."
    )
    lines = [
        "",
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{escape(caption)}}}",
        r"  \begin{tabular}{llrrrrr}",
        r"    \toprule",
        r"    First & Second & $\Delta$ & 95 \% & $p$ & $d_z$ & $P$ \\",
    ]
    for category, pairs in rows.items():
        if pairs:
            head = rf"\multicolumn{{7}}{{l}}{{\emph{{{escape(category)}}}}} \\"
            lines += [r"    \midrule", f"    {head}"]
            lines += ["    " + _paired_row(pair) for pair in pairs]
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}", ""])


def _paired_row(pair: Pair) -> str:
    mean, half = pair.difference.mean, pair.difference.half_width or 0.0
    p_value = p_text(pair.adjusted_p or 0.0).removeprefix("p = ").removeprefix("p ")
    numbers = [
        points(mean),
        f"{points(mean - half)} to {points(mean + half)}",
        p_value.replace("<", "$<$"),
        f"{pair.effect.value:.2f}" if pair.effect else "--",
        f"{pair.improvement.value:.2f}" if pair.improvement else "--",
    ]
    minus = [number.replace("−", "$-$") for number in numbers]
    return " & ".join([escape(pair.better), escape(pair.other), *minus]) + r" \\"


def _environment(caption: str, titles: list[str], tables: list[ComparisonTable]) -> list[str]:
    """One ``table``: a group of rows for each category."""
    columns = len(titles) + 2
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{caption}}}",
        rf"  \begin{{tabular}}{{l{'r' * (columns - 1)}}}",
        r"    \toprule",
        "    " + " & ".join(["Method", *map(escape, titles), "$n$"]) + r" \\",
    ]
    for table in tables:
        lines += ["    " + line for line in _group(table, columns)]
    return [*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}"]


def _group(table: ComparisonTable, columns: int) -> list[str]:
    head = rf"\multicolumn{{{columns}}}{{l}}{{\emph{{{escape(table.category)}}}}} \\"
    rows = [
        " & ".join([escape(row.method), *map(_cell, row.cells), escape(row.n)]) + r" \\"
        for row in table.rows
    ]
    return [r"\midrule", head, *(row.replace(NOTHING, "--") for row in rows)]


def _cell(cell: Cell) -> str:
    if cell.interval is None:
        return "--"
    mean, _, width = cell.text.partition(" ± ")
    text = rf"\textbf{{{mean}}}" if cell.best else mean
    text += r"$^\dagger$" if cell.close else ""
    return text + (rf" $\pm$ {width}" if width else "")


def _caption(summary: Summary) -> str:
    results = summary.results
    count = len(deviation_box(summary).entries)
    protocol = f"Protocol {results.protocol}, {counted(count, 'deviation')} from "
    state = "" if results.finished else " Preliminary: the experiment is not finished."
    text = (
        f"{results.name}: mean and 95 % t-interval over n reproductions, in percent. "
        f"{protocol}{results.reference}.{state}"
    )
    return escape(text) + _MARKS


def _other_caption(summary: Summary) -> str:
    text = (
        f"{summary.results.name}, other metrics: mean and 95 % t-interval over n reproductions. "
        f"{other_note(summary)}"
    )
    return escape(text) + _MARKS
