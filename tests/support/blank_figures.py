"""Reports whose figures are not drawn, or drawn but not written, for tests that see none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import pytest
from matplotlib.figure import Figure

from reality_check.report.figures.plotting import panel_grid, render


@cache
def rendered() -> dict[str, bytes]:
    return render(lambda: panel_grid(1, 1, 1.0)[0], ("png", "pdf", "svg"))


def blank(draw: Callable[[], Figure], endings: Sequence[str]) -> dict[str, bytes]:
    """In place of ``plotting.render``, which takes some seconds of computing for a whole report."""
    return {ending: rendered()[ending] for ending in endings}


class BlankFiles:
    """In place of ``ReportFigure.files``, which draws; one that processes can send each other."""

    def __get__(self, figure: Any, owner: type) -> Any:
        if figure is None:  # asked for by whoever replaces it once more
            return self
        return blank(figure.draw, ("svg", "pdf") if figure.paper else ("svg",))


@contextlib.contextmanager
def blank_figures() -> Iterator[None]:
    """Reports that this process writes have blank figures."""
    with pytest.MonkeyPatch.context() as patch:
        owner = "reality_check.report.figures.plotting.ReportFigure"
        patch.setattr(f"{owner}.files", BlankFiles())
        yield
