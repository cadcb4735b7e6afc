"""All figures by name."""

from __future__ import annotations

from reality_check.papers.figures import (
    grad_ml_update,
    heated_up_softmax_embeddings,
    heated_up_softmax_gradients,
    heated_up_softmax_norms,
    normalized_softmax_class_sampling,
    normalized_softmax_dimensions,
    stop_gradient_softmax_sphere,
    warped_softmax_distances,
    warped_softmax_embeddings,
    warped_softmax_four_proxies,
    warped_softmax_landscape,
)
from reality_check.papers.figures._figure import PaperFigure
from reality_check.utils.errors import UsageError
from reality_check.utils.text import nearest

#: Paper by paper.
FIGURES: dict[str, PaperFigure] = {
    module.FIGURE.name: module.FIGURE
    for module in (
        stop_gradient_softmax_sphere,
        normalized_softmax_dimensions,
        normalized_softmax_class_sampling,
        grad_ml_update,
        heated_up_softmax_gradients,
        heated_up_softmax_embeddings,
        heated_up_softmax_norms,
        warped_softmax_landscape,
        warped_softmax_four_proxies,
        warped_softmax_distances,
        warped_softmax_embeddings,
    )
}


def find_figure(name: str) -> PaperFigure:
    """Return the figure of that name.

    Raises:
        UsageError: there is none.
    """
    if name not in FIGURES:
        raise UsageError(
            f"there is no figure {name!r}; the figures are {', '.join(FIGURES)}."
            f"{nearest(name, FIGURES)}"
        )
    return FIGURES[name]
