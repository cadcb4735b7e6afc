"""Ways to write a report without drawing every figure, which takes most of its time."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from reality_check.report.figures import plotting

#: What stands for a figure's file that nobody looks into.
BLANK = b'<svg><g><g id="cell_0_0_1_1"></g></g><defs></defs></svg>'
draw = plotting._save


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are files without content: for tests of a report's words and of its files."""
    monkeypatch.setattr(plotting, "_save", lambda *arguments: BLANK)


@pytest.fixture
def laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are laid out, which is where odd values would raise; their files have no content."""

    def save(figure: Figure, ending: str, metadata: dict[str, None]) -> bytes:
        if ending == "svg":  # of every figure the first
            figure.draw_without_rendering()
        return BLANK

    monkeypatch.setattr(plotting, "_save", save)


@pytest.fixture
def only_svg(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn for the page only."""

    def save(figure: Figure, ending: str, metadata: dict[str, None]) -> bytes:
        return draw(figure, ending, metadata) if ending == "svg" else BLANK

    monkeypatch.setattr(plotting, "_save", save)
