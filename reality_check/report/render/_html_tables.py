"""The report's tables as HTML; a script on the page sorts them, by what each cell says it is."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from reality_check.report.render._elements import Html, breakable, element
from reality_check.report.sections.blocks import PlainTable
from reality_check.report.tables import CLOSE_MARK, Cell, ComparisonTable
from reality_check.report.text import NOTHING

_SECONDS = {"d": 86400.0, "h": 3600.0, "min": 60.0, "s": 1.0}


def comparison(table: ComparisonTable, origins: Mapping[str, str] | None = None) -> Html:
    """Return one category's comparison table.

    Args:
        table: methods by metrics.
        origins: by method, the output folder that it comes from, where there are several.
    """
    head = [_column_head("Method", False)]
    head += [_column_head(m, True, data_metric=m) for m in table.metrics]
    head += [_column_head(text, True) for text in ("n", *table.effort)]
    rows = [
        element(
            "tr",
            _method_head(row.method, (origins or {}).get(row.method, "")),
            *map(_cell, row.cells),
            *(
                element("td", text, class_="n", **_sort_key(text.replace(",", "")))
                for text in (row.n, *row.effort)
            ),
            **({} if row.trained else {"class_": "untrained"}),
        )
        for row in table.rows
    ]
    return _table(table.category, head, rows, data_category=table.category)


def plain(table: PlainTable) -> Html:
    """Return a table of texts, or a line that says there is nothing."""
    if not table.rows:
        return element("p", f"{table.caption.rstrip('.')}: none recorded.")
    head = [_column_head(text, text not in table.words) for text in table.header]
    rows = [element("tr", *_plain_cells(table, row)) for row in table.rows]
    return _table(table.caption, head, rows)


def sort_value(text: str) -> float | None:
    """The number that a cell is sorted by: its first one; a duration in seconds.

    ``"1 h 7 min"`` is 4020, ``"25.25 ± 0.13"`` 25.25, ``"−0.50 to 1.20"`` -0.5, ``"< 0.001"`` just
    below 0.001.

    Returns:
        ``None`` where there is no number.
    """
    units = re.fullmatch(r"(?:[\d.]+ (?:d|h|min|s) ?)+", text)
    if units:
        parts = re.findall(r"([\d.]+) (d|h|min|s)", text)
        return sum(float(count) * _SECONDS[unit] for count, unit in parts)
    number = re.match(r"(<?) ?([-−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?)", text)
    if number is None:
        return None
    value = float(number[2].replace("−", "-"))
    return math.nextafter(value, -math.inf) if number[1] else value


def _sort_key(text: str) -> dict[str, str]:
    value = sort_value(text)
    return {} if value is None else {"data_value": repr(value)}


def _method_head(method: str, origin: str) -> Html:
    told = not origin or method.endswith(f"({origin})")
    where = "" if told else element("span", origin, class_="origin")
    return element("th", breakable(method), where, scope="row")


def _plain_cells(table: PlainTable, row: tuple[str, ...]) -> list[Html]:
    cells = []
    for title, text in zip(table.header[1:], row[1:], strict=True):
        words = title in table.words
        key = {} if words else _sort_key(text)
        shown = breakable(text) if words else text
        cells.append(element("td", shown, class_="words" if words else "number", **key))
    return [element("th", breakable(row[0]), scope="row"), *cells]


def _column_head(text: str, number: bool, **attributes: str) -> Html:
    kind = "number" if number else "words"
    return element("th", text, scope="col", class_=kind, **attributes)


def _cell(cell: Cell) -> Html:
    if cell.interval is None:
        return element("td", NOTHING, class_="number")
    mean, sign, width = cell.text.partition(" ± ")
    value = element("strong", mean) if cell.best else mean
    spread = element("span", f"±\N{NO-BREAK SPACE}{width}" if sign else "", class_="spread")
    mark = element("sup", CLOSE_MARK if cell.close else "", class_="mark")
    exact = cell.interval.mean
    key = {"data_value": repr(float(exact))} if math.isfinite(exact) else {}
    return element("td", value, mark, spread, class_="number", **key)


def _table(caption: str, head: list[Html], rows: list[Html], **attributes: str) -> Html:
    table = element(
        "table",
        element("caption", element("span", caption)),
        element("thead", element("tr", *head)),
        element("tbody", *rows),
        **attributes,
    )
    return element("div", table, class_="scroll", tabindex="0", role="group", aria_label=caption)
