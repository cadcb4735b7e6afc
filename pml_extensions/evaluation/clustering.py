"""How well clusters agree with classes: k-means, NMI, AMI and pairwise F1.

scikit-learn, which takes half a second, is imported by the two functions that need it, and so is
faiss by the one.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from pml_extensions._shared import checks
from pml_extensions.evaluation import _inputs
from pml_extensions.functional import directions

#: The mean of the two entropies that a mutual information is divided by.
AverageMethod = Literal["geometric", "arithmetic", "min", "max"]
AVERAGES = ("geometric", "arithmetic", "min", "max")


class PairwiseF1(NamedTuple):
    """What :func:`pairwise_f1` returns."""

    precision: float
    recall: float
    f1: float


def kmeans_clusters(
    embeddings: Tensor | ArrayLike,
    num_clusters: int,
    seed: int = 0,
    niter: int = 20,
    nredo: int = 1,
) -> Tensor:
    """Return the k-means cluster of each embedding, found by faiss on the CPU in float32.

    The same arguments give the same clusters. faiss trains on at most 256 x num_clusters samples
    drawn at random and assigns all of them. PML clusters with niter=20, nredo=1, seed=1234;
    NormSoftmax with niter=300, nredo=10, seed=0 (its code), which takes 150 times as long.

    Args:
        embeddings: Shape (N, D). Not scaled to unit length.
        num_clusters: At most N; papers take the number of test classes.
        seed: Of the first centres, 0..2^31 - 1.
        niter: Iterations of each run.
        nredo: Runs, of which the one of the smallest squared error is kept.

    Returns:
        Clusters 0..num_clusters-1, int64, shape (N,), on the device of the embeddings.

    Raises:
        ValueError: ``embeddings`` is no matrix with finite squares, or a number is out of range.
    """
    x = _inputs.matrix(embeddings, "embeddings").float()
    checks.require_squares(x, "embeddings")
    num_clusters = checks.positive_integer("num_clusters", num_clusters)
    if num_clusters > len(x):
        raise ValueError(f"num_clusters={num_clusters}, but there are only {len(x)} embeddings.")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**31:
        raise ValueError(f"seed must be a whole number from 0 to 2^31 - 1, but got seed={seed!r}.")
    points = np.ascontiguousarray(x.cpu().numpy())
    kmeans = _inputs.import_faiss().Kmeans(
        points.shape[1],
        num_clusters,
        seed=seed,
        niter=checks.positive_integer("niter", niter),
        nredo=checks.positive_integer("nredo", nredo),
        # faiss would only warn below 39 a cluster; classes of this field have a handful.
        min_points_per_centroid=1,
    )
    kmeans.train(points)
    return torch.from_numpy(kmeans.assign(points)[1]).to(x.device)


def normalized_mutual_information(
    labels: Tensor | ArrayLike,
    clusters: Tensor | ArrayLike,
    average_method: AverageMethod = "geometric",
) -> float:
    """Return the mutual information of classes and clusters, divided by a mean of both entropies.

    The five papers and their baselines take the geometric mean, scikit-learn's default until 0.22;
    PML and scikit-learn now take the arithmetic one, which never gives a higher value.

    Args:
        labels: Integer classes, shape (N,).
        clusters: Integer clusters, shape (N,).
        average_method: The mean: ``"geometric"``, ``"arithmetic"``, ``"min"`` or ``"max"``.

    Returns:
        0 (independent) to 1 (the same partition).

    Raises:
        ValueError: Shapes or types do not fit, or there is no such mean.
    """
    from sklearn.metrics import normalized_mutual_info_score

    checks.one_of("average_method", average_method, AVERAGES)
    pair = _partitions(labels, clusters)
    return float(normalized_mutual_info_score(*pair, average_method=average_method))


def adjusted_mutual_information(
    labels: Tensor | ArrayLike,
    clusters: Tensor | ArrayLike,
    average_method: AverageMethod = "arithmetic",
) -> float:
    """Return the mutual information adjusted so that random clusters of the same sizes score 0.

    (MI - E) / (mean of both entropies - E), where E is its expectation over random clusters. Time
    grows with classes x clusters: half a minute for 11,316 of each.

    Args:
        labels: Integer classes, shape (N,).
        clusters: Integer clusters, shape (N,).
        average_method: The mean, as in :func:`normalized_mutual_information`; arithmetic is what
            PML and scikit-learn take.

    Returns:
        At most 1 (the same partition); random clusters give about 0.

    Raises:
        ValueError: Shapes or types do not fit, or there is no such mean.
    """
    from sklearn.metrics import adjusted_mutual_info_score

    checks.one_of("average_method", average_method, AVERAGES)
    pair = _partitions(labels, clusters)
    return float(adjusted_mutual_info_score(*pair, average_method=average_method))


def pairwise_f1(labels: Tensor | ArrayLike, clusters: Tensor | ArrayLike) -> PairwiseF1:
    """Return precision, recall and F1 of "same cluster" as a guess of "same class" over all pairs.

    With TP the pairs of one class and one cluster, precision = TP / pairs of one cluster,
    recall = TP / pairs of one class, F1 = 2 TP / (pairs of one cluster + pairs of one class):
    the F1 of GradML. Counted from the sizes of the groups, never pair by pair.

    Args:
        labels: Integer classes, shape (N,).
        clusters: Integer clusters, shape (N,).

    Returns:
        The three numbers, each 0 to 1; precision is 0 where no cluster has two samples.

    Raises:
        ValueError: Shapes or types do not fit, or no class has two samples.
    """
    classes, groups = (torch.from_numpy(part) for part in _partitions(labels, clusters))
    _, group_of = groups.unique(return_inverse=True)
    _, class_of = classes.unique(return_inverse=True)
    of_class, of_cluster = _pairs_within(class_of), _pairs_within(group_of)
    if of_class == 0:
        raise ValueError("no class has two samples, so there is no pair that clusters could find.")
    both = _pairs_within(class_of * (int(group_of.max()) + 1) + group_of)
    precision = both / of_cluster if of_cluster else 0.0
    return PairwiseF1(precision, both / of_class, 2 * both / (of_cluster + of_class))


def clustering_metrics(
    embeddings: Tensor | ArrayLike,
    labels: Tensor | ArrayLike,
    num_clusters: int | None = None,
    normalize: bool = True,
    nmi_average: AverageMethod = "geometric",
    ami_average: AverageMethod = "arithmetic",
    **kmeans: Any,
) -> dict[str, float]:
    """Cluster the embeddings by k-means and score the clusters.

    Args:
        embeddings: Shape (N, D).
        labels: Integer classes, shape (N,).
        num_clusters: None: the number of classes, as in the papers.
        normalize: Scale embeddings to unit length first, as PML's testers do; Realigned Softmax
            Warping and ProxyNCA++ cluster raw ones.
        nmi_average: The mean in NMI (papers: geometric, PML: arithmetic).
        ami_average: The mean in AMI (PML: arithmetic).
        **kmeans: ``seed``, ``niter`` and ``nredo`` of :func:`kmeans_clusters`.

    Returns:
        ``NMI``, ``AMI`` and ``F1``.

    Raises:
        ValueError: Shapes or types do not fit, an embedding is NaN or infinite, a number is out of
            range, or no class has two samples.
    """
    x, y = _inputs.embeddings_and_labels(embeddings, labels)
    if num_clusters is None:
        num_clusters = len(y.unique())
    clusters = kmeans_clusters(directions(x) if normalize else x, num_clusters, **kmeans)
    return {
        "NMI": normalized_mutual_information(y, clusters, nmi_average),
        "AMI": adjusted_mutual_information(y, clusters, ami_average),
        "F1": pairwise_f1(y, clusters).f1,
    }


def _partitions(labels: Tensor | ArrayLike, clusters: Tensor | ArrayLike) -> Any:
    """Return both as int64 arrays of the same length."""
    classes = _inputs.integers(labels, "labels")
    groups = _inputs.integers(clusters, "clusters")
    if len(classes) != len(groups):
        raise ValueError(
            f"clusters must have shape ({len(classes)},) like labels, but got {(len(groups),)}."
        )
    return classes.cpu().numpy(), groups.cpu().numpy()


def _pairs_within(groups: Tensor) -> int:
    """Return how many pairs of samples share a group."""
    sizes = groups.unique(return_counts=True)[1]
    return int((sizes * (sizes - 1) // 2).sum())
