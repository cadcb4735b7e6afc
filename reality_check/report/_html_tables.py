"""The report's tables as HTML."""

from __future__ import annotations

from reality_check.report._elements import Html, breakable, element
from reality_check.report._sections import PlainTable
from reality_check.report._text import NOTHING
from reality_check.report.tables import CLOSE_MARK, Cell, ComparisonTable


def comparison(table: ComparisonTable) -> Html:
    """Return one category's comparison table."""
    head = [_column_head("Method", False), *(_column_head(m, True) for m in (*table.metrics, "n"))]
    rows = [
        element(
            "tr",
            element("th", breakable(row.method), scope="row"),
            *map(_cell, row.cells),
            element("td", row.n, class_="n"),
        )
        for row in table.rows
    ]
    return _table(table.category, head, rows)


def plain(table: PlainTable) -> Html:
    """Return a table of texts, or a line that says there is nothing."""
    if not table.rows:
        return element("p", f"{table.caption.rstrip('.')}: none recorded.")
    head = [_column_head(text, text not in table.words) for text in table.header]
    rows = [element("tr", *_plain_cells(table, row)) for row in table.rows]
    return _table(table.caption, head, rows)


def _plain_cells(table: PlainTable, row: tuple[str, ...]) -> list[Html]:
    kinds = ["words" if text in table.words else "number" for text in table.header]
    cells = [element("td", text, class_=kind) for text, kind in zip(row, kinds, strict=True)]
    return [element("th", breakable(row[0]), scope="row"), *cells[1:]]


def _column_head(text: str, number: bool) -> Html:
    return element("th", text, scope="col", class_="number" if number else "words")


def _cell(cell: Cell) -> Html:
    if cell.interval is None:
        return element("td", NOTHING, class_="number")
    mean, sign, width = cell.text.partition(" ± ")
    value = element("strong", mean) if cell.best else mean
    spread = element("span", f"±\N{NO-BREAK SPACE}{width}", class_="spread") if sign else ""
    mark = element("sup", CLOSE_MARK if cell.close else "", class_="mark")
    return element("td", value, mark, spread, class_="number")


def _table(caption: str, head: list[Html], rows: list[Html]) -> Html:
    table = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *head)),
        element("tbody", *rows),
    )
    return element("div", table, class_="scroll", tabindex="0", role="group", aria_label=caption)
