"""``tables.tex``: the comparison tables for a paper (needs ``booktabs``)."""

from __future__ import annotations

import unicodedata

from reality_check.config.metrics import METRICS, PRIMARY
from reality_check.report.columns import BUILT_IN
from reality_check.report.sections.across import headline, suite_table
from reality_check.report.sections.comparison import other_metrics_text
from reality_check.report.sections.verdict import of_leader, range_text
from reality_check.report.suite_summary import SuiteSummary
from reality_check.report.summary import Summary
from reality_check.report.tables import (
    Cell,
    ComparisonTable,
    TableRow,
    close_text,
    comparison_tables,
    other_tables,
)
from reality_check.report.wording import NOTHING, counted, p_text, points
from reality_check.statistics import Comparison

#: Greek letters with a LaTeX command; the others look like Latin letters.
_GREEK = "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ"


def _greek(letter: str) -> str:
    """Return the command of a letter; Unicode spells lambda without b."""
    name = unicodedata.name(letter).rpartition(" ")[2].replace("LAMDA", "LAMBDA")
    return rf"$\{name.lower() if letter.islower() else name.capitalize()}$"


_ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",  # \textquotedbl is not in LaTeX's default font encoding
    "“": "``",
    "”": "''",
    "’": "'",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "«": r"$\ll$",
    "»": r"$\gg$",
    "→": r"$\to$",
    "←": r"$\leftarrow$",
    **{letter: _greek(letter) for letter in _GREEK},
    **{character: "\\" + character for character in "&%$#_{}"},
}
#: Last letter of the range (accented Latin letters) of which pdflatex knows most.
_LAST_LETTER = "\u017f"
#: Characters in that range that LaTeX's default font encoding (OT1) lacks; pdflatex fails on them.
_MISSING = {*"ÐÞðþĄąĐđĘęĦħĮįĸĿŀŉŊŋŦŧŲųſ", *map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0))}
#: Tables with at least this many columns get smaller letters.
_MANY_COLUMNS = 6

_MARKS_TEXT = r" Best means are bold; $\dagger$: "


def escape(text: str) -> str:
    """Return ``text`` on one line, with LaTeX's special characters escaped.

    Control characters and letters for which pdflatex needs more packages become question marks.
    """
    return "".join(
        _ESCAPES.get(c, c if c <= _LAST_LETTER and c not in _MISSING else "?")
        for c in " ".join(text.split())
    )


def tables_tex(summary: Summary) -> str:
    """Return the tables as ``table`` environments: results, other metrics, and comparisons."""
    lines = [
        f"% {' '.join(summary.results.name.split())}: written by reality-check.",
        r"% In the preamble: \usepackage{booktabs}",
        *_results_table(summary, _caption(summary), comparison_tables(summary)),
    ]
    if others := other_tables(summary):
        caption = (
            f"{summary.results.name}, other metrics: mean and 95 % interval over n "
            f"{summary.evidence.repeats}. {other_metrics_text(summary)}"
        )
        lines += ["", *_results_table(summary, caption, others)]
    return "\n".join([*lines, *_comparisons(summary), ""])


def suite_tex(summary: SuiteSummary) -> str:
    """Return a table for each category, with the metrics of each data set side by side."""
    names, titles = list(summary.members), list(METRICS.values())
    lines = [
        f"% {' '.join(summary.results.name.split())}: written by reality-check.",
        r"% In the preamble: \usepackage{booktabs}",
    ]
    for category, verdict in headline(summary).items():
        tables = {metric: suite_table(summary, category, metric) for metric in METRICS}
        heads = [rf"\multicolumn{{{len(titles)}}}{{c}}{{{escape(name)}}}" for name in names]
        rows = [" & ".join(["", *heads]) + r" \\"]
        rows += [" & ".join(["Method", *(escape(t) for _ in names for t in titles)]) + r" \\"]
        rows.append(r"\midrule")
        for index, method in enumerate(summary.methods):
            cells = [
                _cell(tables[metric].rows[index].cells[column])
                for column in range(len(names))
                for metric in METRICS
            ]
            rows.append(" & ".join([escape(method), *cells]) + r" \\")
        caption = f"{summary.results.name}, {category}, in percent: {verdict}."
        text = escape(caption) + _MARKS_TEXT + "not distinguishable from the best of its column."
        lines += ["", *_table(rf"\caption{{{text}}}", "l" + "r" * len(names) * len(titles), rows)]
    return "\n".join([*lines, ""])


def _table(caption: str, alignments: str, rows: list[str]) -> list[str]:
    """Return a ``table*`` environment, which spans both columns of a two-column page.

    Tables of many columns get smaller letters and gaps to fit the width of the page.

    Args:
        caption: the caption as LaTeX, with its command.
        alignments: a letter for each column, e.g. ``"lrr"``.
        rows: the lines between the rules, with their ends.
    """
    size, gap = (r"\small", 4) if len(alignments) < _MANY_COLUMNS else (r"\footnotesize", 3)
    return [
        r"\begin{table*}",
        rf"  \centering{size}\setlength{{\tabcolsep}}{{{gap}pt}}",
        rf"  \setlength{{\belowcaptionskip}}{{4pt}}{caption}",
        rf"  \begin{{tabular}}{{{alignments}}}",
        r"    \toprule",
        *(f"    {row}" for row in rows),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table*}",
    ]


def _group_head(category: str, columns: int) -> str:
    """Return a row with the name of a category, which spans all columns."""
    return rf"\multicolumn{{{columns}}}{{l}}{{\emph{{{escape(category)}}}}} \\"


def _text(text: str) -> str:
    """Return the text of a cell, with a short dash for an empty one."""
    return "--" if text == NOTHING else escape(text)


def _comparisons(summary: Summary) -> list[str]:
    """Return a table of the best method of each category against the others.

    It is empty if no difference was tested.
    """
    rows = {
        category: [pair for pair in of_leader(summary, category) if pair.adjusted_p is not None]
        for category in summary.categories
    }
    if not any(rows.values()):
        return []
    caption = (
        f"{summary.results.name}: {METRICS[PRIMARY]} of the best method of each category minus "
        "that of the others, in points: difference, its 95 % interval, p-value after Holm's "
        "correction for all pairs, and the probability P that a run of the first is above one of "
        "the second."
    )
    lines = [r"First & Second & $\Delta$ & 95 \% & $p$ & $P$ \\"]
    for category, pairs in rows.items():
        if pairs:
            lines += [r"\midrule", _group_head(category, 6), *map(_pair_row, pairs)]
    return ["", *_table(rf"\caption{{{escape(caption)}}}", "llrrrr", lines)]


def _pair_row(pair: Comparison) -> str:
    """Return a comparison as a row of a table."""
    cells = (
        pair.better,
        pair.other,
        points(pair.difference.mean),
        range_text(pair.difference.low, pair.difference.high),
        p_text(pair.adjusted_p or 0.0).lstrip("p= "),  # "0.012" or "< 0.001"
        NOTHING if pair.improvement is None else f"{pair.improvement.value:.2f}",
    )
    return " & ".join(map(_text, cells)) + r" \\"


def _results_table(summary: Summary, caption: str, tables: list[ComparisonTable]) -> list[str]:
    """Return the table of means, with a group of rows for each category."""
    italics = " In italics: not trained." if summary.baselines else ""
    caption = escape(caption) + _MARKS_TEXT + escape(f"{close_text(summary)}.{italics}")
    titles = tables[0].metrics if tables else tuple(METRICS.values())
    extra = tables[0].columns[len(BUILT_IN) :] if tables else ()  # the user's own columns
    columns = len(titles) + 2 + len(extra)  # with the method and n
    head = ["Method", *map(escape, titles), "$n$", *map(escape, extra)]
    lines = [" & ".join(head) + r" \\"]
    for table in tables:
        lines += [r"\midrule", _group_head(table.category, columns), *map(_row, table.rows)]
    return _table(rf"\caption{{{caption}}}", "l" + "r" * (columns - 1), lines)


def _row(row: TableRow) -> str:
    """Return a row of the table of means; names of what was not trained are in italics."""
    name = escape(row.method) if row.trained else rf"\emph{{{escape(row.method)}}}"
    extra = row.columns[len(BUILT_IN) :]  # the user's own columns
    return " & ".join([name, *map(_cell, row.cells), _text(row.n), *map(_text, extra)]) + r" \\"


def _cell(cell: Cell) -> str:
    """Return a mean with its marks and the half-width of its interval."""
    if cell.interval is None:
        return "--"
    mean, _, width = cell.text.replace("-", "$-$").partition(" ± ")
    text = rf"\textbf{{{mean}}}" if cell.best else mean
    text += r"$^\dagger$" if cell.close else ""
    return text + (rf" $\pm$ {width}" if width else "")


def _caption(summary: Summary) -> str:
    """Return the caption of the table of results."""
    results = summary.results
    count = counted(len(results.deviations), "deviation")
    state = "" if results.finished else " Not finished, so without intervals and marks."
    return (
        f"{results.name}: mean and 95 % interval over n {summary.evidence.repeats}, in percent. "
        f"Protocol {results.protocol}, {count} from {results.reference}.{state}"
    )
