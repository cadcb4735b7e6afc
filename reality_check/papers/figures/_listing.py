"""All figures by name. Their modules, which need torch and matplotlib, are imported when drawn."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from reality_check.papers.figures._figure import PaperFigure
from reality_check.utils.errors import UsageError
from reality_check.utils.text import nearest


def _of_module(name: str, source: str, shows: str, needs: str = "") -> PaperFigure:
    """The figure that the module of that name computes and draws."""

    def module() -> Any:
        return import_module(f"reality_check.papers.figures.{name}")

    return PaperFigure(
        name, source, shows, needs, lambda s: module().compute(s), lambda data: module().draw(data)
    )


#: Paper by paper.
FIGURES: dict[str, PaperFigure] = {
    figure.name: figure
    for figure in (
        _of_module(
            "stop_gradient_softmax_sphere",
            "Stop-Gradient Softmax Loss, Fig. 3",
            "3-d features on the sphere with and without SGSL",
            "Fashion-MNIST or MNIST",
        ),
        _of_module(
            "normalized_softmax_dimensions",
            "NormSoftmax, Fig. 2",
            "Recall@1 against the embedding's dimension, real and binary",
            "Omniglot",
        ),
        _of_module(
            "normalized_softmax_class_sampling",
            "NormSoftmax, Fig. 4",
            "Recall@K against the share of classes sampled in each step",
            "Omniglot",
        ),
        _of_module(
            "grad_ml_update",
            "GradML, Fig. 1",
            "one update of four points under triplet, DR-triplet, lifted structure and GradML",
        ),
        _of_module(
            "heated_up_softmax_gradients",
            "Heated-Up Softmax Embedding, Fig. 2",
            "gradient length against alpha for hard and easy samples",
            "MNIST",
        ),
        _of_module(
            "heated_up_softmax_embeddings",
            "Heated-Up Softmax Embedding, Fig. 3",
            "2-d embeddings of digits for alpha 0.25 to 64 and heated up",
            "MNIST",
        ),
        _of_module(
            "heated_up_softmax_norms",
            "Heated-Up Softmax Embedding, Fig. 4",
            "embeddings of a plain softmax, raw and normalised, and gradient against length",
            "MNIST",
        ),
        _of_module(
            "warped_softmax_landscape",
            "Realigned Softmax Warping, Fig. 3",
            "loss of an embedding between two proxies under t, t², √t and the warp",
        ),
        _of_module(
            "warped_softmax_four_proxies",
            "Realigned Softmax Warping, Fig. 5",
            "landscapes of proxy pairs and of four proxies together",
        ),
        _of_module(
            "warped_softmax_distances",
            "Realigned Softmax Warping, Fig. 9",
            "mean distance to the own proxy over training, for the functions of Table III",
            "Omniglot",
        ),
        _of_module(
            "warped_softmax_embeddings",
            "Realigned Softmax Warping, Fig. 10",
            "2-d embeddings under the plain Euclidean softmax and under the warp",
            "Fashion-MNIST or MNIST",
        ),
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
