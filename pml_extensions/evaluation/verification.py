"""Face verification: whether two images show the same person, by k-fold cross-validation."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from pml_extensions._shared import checks
from pml_extensions._shared.numerics import at_least_float32
from pml_extensions.evaluation import _inputs
from pml_extensions.functional import directions

#: How pairs are compared: as in the insightface package, or as in Realigned Softmax Warping.
Convention = Literal["insightface", "paper004"]
#: Candidate thresholds of each convention. Squared distances of unit vectors are at most 4.
THRESHOLDS = {"insightface": np.arange(0, 4, 0.01), "paper004": np.arange(0, 100, 0.01)}


class Verification(NamedTuple):
    """Result of :func:`pair_verification`.

    Attributes:
        accuracy: Mean over folds.
        std: Population standard deviation over folds.
        fold_accuracies: Accuracy of each fold.
        fold_thresholds: Threshold of each fold.
    """

    accuracy: float
    std: float
    fold_accuracies: tuple[float, ...]
    fold_thresholds: tuple[float, ...]


@torch.no_grad()
def merge_mirrored(
    embeddings: Tensor | ArrayLike,
    mirrored: Tensor | ArrayLike,
    convention: Convention = "insightface",
) -> Tensor:
    """Merge the embeddings of each image and its mirror image.

    Args:
        embeddings: Embeddings of the images, shape (N, D).
        mirrored: Embeddings of the same images flipped left to right, shape (N, D).
        convention: ``"insightface"``: the sum scaled to unit length. ``"paper004"`` (Realigned
            Softmax Warping): the mean.

    Returns:
        Shape (N, D), float64 if the embeddings are and float32 otherwise.

    Raises:
        ValueError: Shapes differ, a value is NaN or infinite, or there is no such convention.
    """
    _check_convention(convention)
    x, y = _two_matrices(embeddings, mirrored, "embeddings", "mirrored")
    mean = x / 2 + y / 2  # a sum of large numbers may be infinite
    return directions(mean) if convention == "insightface" else mean


@torch.no_grad()
def pair_verification(
    embeddings_a: Tensor | ArrayLike,
    embeddings_b: Tensor | ArrayLike,
    same: Tensor | ArrayLike,
    folds: int = 10,
    convention: Convention = "insightface",
) -> Verification:
    """Return the k-fold accuracy of classifying pairs as same person or different persons.

    Args:
        embeddings_a: Embedding of the first image of each pair, shape (P, D); see
            :func:`merge_mirrored`.
        embeddings_b: Embedding of the second image of each pair, shape (P, D).
        same: Whether a pair shows the same person, booleans or 0 and 1, shape (P,).
        folds: Number of contiguous folds; the pair lists of LFW and similar data sets have ten.
        convention: ``"insightface"``: squared distance of unit-length embeddings, thresholds 0,
            0.01, ..., 3.99. ``"paper004"`` (Realigned Softmax Warping): Euclidean distance of raw
            embeddings, thresholds 0, 0.01, ..., 99.99.

    Returns:
        Mean accuracy, its standard deviation, and accuracy and threshold of each fold, see
        :func:`verification_accuracy`.

    Raises:
        ValueError: Shapes differ, a value is NaN or infinite, there is no such convention, there
            are fewer pairs than folds, or all pairs are the same or all are different.
    """
    _check_convention(convention)
    a, b = _two_matrices(embeddings_a, embeddings_b, "embeddings_a", "embeddings_b")
    a, b = a.double(), b.double()
    if convention == "insightface":
        distances = (directions(a) - directions(b)).square().sum(dim=1)
    else:
        distances = (a - b).square().sum(dim=1).sqrt()
    return verification_accuracy(distances, same, THRESHOLDS[convention], folds)


def verification_accuracy(
    distances: Tensor | ArrayLike,
    same: Tensor | ArrayLike,
    thresholds: ArrayLike,
    folds: int = 10,
) -> Verification:
    """Return the k-fold accuracy of the rule "same if distance < threshold".

    Pairs are split into contiguous folds without shuffling; if sizes differ, the first folds are
    longer by one. Each fold is scored with the threshold that is most accurate on all other folds
    (the smallest of equally accurate ones).

    Args:
        distances: Shape (P,).
        same: Whether a pair shows the same person, booleans or 0 and 1, shape (P,).
        thresholds: Candidate thresholds, ascending, shape (T,).
        folds: Number of folds, at least 2 and at most P.

    Returns:
        Mean accuracy, its population standard deviation, accuracy and threshold of each fold.

    Raises:
        ValueError: A shape or dtype is wrong, a distance is NaN or infinite, there are fewer pairs
            than folds, or all pairs are the same or all are different.
    """
    d = _vector(distances, "distances")
    is_same = _checked_same(same, len(d))
    limits = _vector(thresholds, "thresholds")
    if (np.diff(limits) <= 0).any():
        raise ValueError("thresholds must ascend, each larger than the one before.")
    folds = checks.positive_integer("folds", folds)
    if not 2 <= folds <= len(d):
        raise ValueError(f"folds must be 2 to {len(d)}, the number of pairs, but got {folds=}.")
    # A pair is predicted to be the same by the first threshold above its distance and all larger.
    first = np.searchsorted(limits, d, side="right")
    fold_pairs = np.array_split(np.arange(len(d)), folds)
    gains = np.stack([_gains(first[rows], is_same[rows], len(limits)) for rows in fold_pairs])
    # Chosen on all other folds; argmax returns the first of equal values.
    best = (gains.sum(axis=0) - gains).argmax(axis=1)
    # Predicting "different" for all pairs is right for the pairs that are not the same.
    correct = gains[np.arange(folds), best] + [np.sum(~is_same[rows]) for rows in fold_pairs]
    accuracies = correct / [len(rows) for rows in fold_pairs]
    return Verification(
        float(accuracies.mean()),
        float(accuracies.std()),
        tuple(accuracies.tolist()),
        tuple(limits[best].tolist()),
    )


def _gains(
    first: NDArray[np.int64], is_same: NDArray[np.bool_], num_thresholds: int
) -> NDArray[np.int64]:
    """Return how many more pairs each threshold gets right than predicting "different" for all.

    ``first`` is the index of the smallest threshold that predicts "same" for each pair.
    """
    # The last entry is for pairs that no threshold predicts as "same".
    gains = np.zeros(num_thresholds + 1, dtype=np.int64)
    np.add.at(gains, first, np.where(is_same, 1, -1))
    return gains[:num_thresholds].cumsum()


def _check_convention(convention: str) -> None:
    checks.one_of("convention", convention, tuple(THRESHOLDS))


def _two_matrices(
    a: Tensor | ArrayLike, b: Tensor | ArrayLike, a_name: str, b_name: str
) -> tuple[Tensor, Tensor]:
    """Return both arguments as float32 or float64 matrices of one shape on one device."""
    x = at_least_float32(_inputs.matrix(a, a_name))
    y = at_least_float32(_inputs.matrix(b, b_name))
    if x.shape != y.shape:
        raise ValueError(
            f"{b_name} must have shape {tuple(x.shape)} like {a_name}, but got {tuple(y.shape)}."
        )
    return x, y.to(x.device)


def _vector(values: Tensor | ArrayLike, name: str) -> NDArray[np.float64]:
    """Return ``values`` as a finite float64 array of shape (N,)."""
    x = _inputs.tensor(values, name)
    if x.ndim != 1 or len(x) == 0:
        raise ValueError(f"{name} must have shape (N,) with N > 0, but got {tuple(x.shape)}.")
    return _inputs.matrix(x.unsqueeze(1), name).squeeze(1).double().cpu().numpy()


def _checked_same(same: Tensor | ArrayLike, num_pairs: int) -> NDArray[np.bool_]:
    """Check ``same`` and return it as booleans, shape (P,)."""
    values = _inputs.integers(same, "same").cpu().numpy()
    if len(values) != num_pairs:
        raise ValueError(
            f"same must have shape ({num_pairs},), one a pair, but got {values.shape}."
        )
    unique = set(np.unique(values).tolist())
    if not unique <= {0, 1}:
        raise ValueError(f"same must be booleans or 0 and 1, but holds {min(unique - {0, 1})}.")
    if len(unique) == 1:
        raise ValueError(
            "same must hold both kinds of pairs, because with one kind a constant prediction is "
            "perfect."
        )
    return values.astype(bool)
