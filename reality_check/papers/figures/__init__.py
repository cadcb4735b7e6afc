"""Figures of the papers behind the losses, drawn again from formulas or from trainings.

Each module that is listed gets its numbers first (``compute``) and draws from them alone
(``draw``); ``reality-check figure FIGURE`` writes picture, numbers and caption.
"""

from reality_check.papers.figures._figure import FigureData, PaperFigure, Settings, write_figure
from reality_check.papers.figures._listing import FIGURES, find_figure

__all__ = ["FIGURES", "FigureData", "PaperFigure", "Settings", "find_figure", "write_figure"]
