"""Trials as HTML: lines through axes that lie below one another, so that a telephone has room."""

from __future__ import annotations

from reality_check.report.render._elements import Html, element
from reality_check.report.render._html_tables import plain
from reality_check.report.sections.blocks import Trials

#: In the picture's own unit, about a pixel.
_WIDTH, _STEP, _EDGE, _TOP = 380.0, 54.0, 8.0, 24.0


def trials(block: Trials) -> Html:
    """Return the lines, and the table whose rows a script joins with them."""
    scores, lines, texts = block.axes[-1].places, [], []
    for row in range(len(block.table.rows)):
        shade = 0.15 + 0.6 * (scores[row] or 0.0)
        best = ' class="best"' if row == block.best else ""
        lines.append(Html(f'<path{best} d="{_line(block, row)}" opacity="{shade:.2f}"/>'))
    for number, axis in enumerate(block.axes):
        y = _TOP + _STEP * number
        ends = {"x": f"{_WIDTH - _EDGE}", "y": f"{y + 15}"}
        texts += [
            Html(f'<path class="axis" d="M{_EDGE} {y}H{_WIDTH - _EDGE}"/>'),
            element("text", axis.name, x=f"{_EDGE}", y=f"{y - 8}"),
            element("text", axis.low, class_="end", **{**ends, "x": f"{_EDGE}"}),
            element("text", axis.high, class_="end last", **ends),
        ]
    height = _TOP + _STEP * (len(block.axes) - 1) + 22
    names = ", ".join(axis.name for axis in block.axes)
    picture = element(
        "svg", *lines, *texts, viewBox=f"0 0 {_WIDTH:g} {height:g}", role="img",
        aria_label=f"Each trial as a line through {names}; the table has the numbers.",
    )  # fmt: skip
    how = "A line is a trial, the stronger the better; the winner is marked, and what you point at."
    return element(
        "div", element("figure", picture, element("figcaption", how)), plain(block.table),
        class_="trials",
    )  # fmt: skip


def _line(block: Trials, row: int) -> str:
    """Empty for a trial that has no value yet."""
    places = [axis.places[row] for axis in block.axes]
    if None in places:
        return ""
    spots = (
        f"{_EDGE + (_WIDTH - 2 * _EDGE) * (place or 0.0):.1f} {_TOP + _STEP * number:g}"
        for number, place in enumerate(places)
    )
    return "M" + "L".join(spots)
