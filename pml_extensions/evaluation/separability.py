"""Separability of classes, and distances of samples to their proxies."""

from __future__ import annotations

from typing import NamedTuple

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from pml_extensions._shared import checks
from pml_extensions.evaluation import _inputs
from pml_extensions.functional import directions, paired_distances

# Number of rows that are converted to float64 at a time.
CHUNK = 4096


class ClassSeparability(NamedTuple):
    """Result of :func:`class_separability`."""

    trace_between: float
    trace_within: float
    ratio: float


@torch.no_grad()
def class_separability(
    embeddings: Tensor | ArrayLike, labels: Tensor | ArrayLike, normalize: bool = False
) -> ClassSeparability:
    r"""Return the class separability criterion (CSC): between-class over within-class scatter.

    With class means :math:`\mu_i`, the mean of all :math:`\mu_0` and class sizes :math:`n_i`,

    .. math::
        tr\,S_b = \sum_i \tfrac{n_i}{n} |\mu_i - \mu_0|^2, \quad
        tr\,S_w = \tfrac1n \sum_i \sum_{x \in i} |x - \mu_i|^2, \quad
        CSC = tr\,S_b / tr\,S_w

    ("Stop-Gradient Softmax Loss for Deep Metric Learning", Eq. 9 and Table 5). Both traces grow
    with the squared length of the embeddings, the ratio does not. They are computed in float64 from
    class sums, with time and memory of O(N D).

    Args:
        embeddings: Shape (N, D).
        labels: Integer labels, shape (N,).
        normalize: Scale embeddings to unit length first; then the traces sum to at most 1. The
            paper does not mention scaling, and the values it prints are only possible without.

    Returns:
        Both traces and their ratio, which is infinite if all samples of each class are equal, and
        NaN if all samples are equal.

    Raises:
        ValueError: A shape or dtype is wrong, or an embedding is NaN or infinite.
    """
    x, y = _inputs.embeddings_and_labels(embeddings, labels)
    _, class_of, sizes = y.unique(return_inverse=True, return_counts=True)
    sums = x.new_zeros((len(sizes), x.shape[1]), dtype=torch.float64)
    # Sums are relative to one sample, so a common offset costs no precision and equal rows give 0.
    origin = _float64(x[:1], normalize)
    for rows in _chunks(x):
        sums.index_add_(0, class_of[rows], _float64(x[rows], normalize) - origin)
    centre, means = sums.sum(dim=0) / len(x), sums / sizes.unsqueeze(1)
    within = x.new_zeros((), dtype=torch.float64)
    for rows in _chunks(x):
        within += (_float64(x[rows], normalize) - origin - means[class_of[rows]]).square().sum()
    between = (sizes * (means - centre).square().sum(dim=1)).sum()
    traces = torch.stack((between, within)) / len(x)
    trace_between, trace_within = traces.tolist()
    # A ratio of tensors, because a division of Python floats by 0 raises an error.
    return ClassSeparability(trace_between, trace_within, float(traces[0] / traces[1]))


@torch.no_grad()
def average_distance_to_proxy(
    embeddings: Tensor | ArrayLike, labels: Tensor | ArrayLike, proxies: Tensor | ArrayLike
) -> float:
    r"""Return the average distance to proxy (AvgDTP), the mean over classes of class means.

    .. math::
        \frac1{|C|} \sum_{c \in C} \frac1{|P_c|} \sum_{e \in P_c} |e - p_c|

    ("Realigned Softmax Warping", Eq. 9), where :math:`P_c` are the embeddings of class c and
    :math:`p_c` is its proxy. The paper uses training images without augmentation, in eval mode.
    The computation is in float64.

    Args:
        embeddings: Shape (N, D), as the loss gets them.
        labels: Labels 0..C-1, which index the proxies, shape (N,). Classes without a sample are
            left out.
        proxies: Shape (C, D).

    Returns:
        The average distance.

    Raises:
        ValueError: A shape or dtype is wrong, a value is NaN or infinite, or a label has no proxy.
    """
    x, y = _inputs.embeddings_and_labels(embeddings, labels)
    p = _inputs.matrix(proxies, "proxies").to(x.device)
    if p.shape[1] != x.shape[1]:
        raise ValueError(f"embeddings have {x.shape[1]} dimensions, but proxies have {p.shape[1]}.")
    checks.class_labels(y, len(p), check=True)
    distances = [paired_distances(x[rows].double(), p[y[rows]].double()) for rows in _chunks(x)]
    sizes = y.bincount(minlength=len(p))
    sums = x.new_zeros(len(p), dtype=torch.float64).index_add_(0, y, torch.cat(distances))
    present = sizes > 0
    return float((sums[present] / sizes[present]).mean())


def _float64(x: Tensor, normalize: bool) -> Tensor:
    return directions(x.double()) if normalize else x.double()


def _chunks(x: Tensor) -> list[slice]:
    return [slice(start, start + CHUNK) for start in range(0, len(x), CHUNK)]
