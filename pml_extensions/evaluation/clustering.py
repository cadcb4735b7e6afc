"""Agreement of clusters with classes: k-means, NMI, AMI and pairwise F1.

scikit-learn and faiss are imported within the functions that need them, because their import is
slow.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from pml_extensions._shared import checks
from pml_extensions.evaluation import _inputs
from pml_extensions.functional import directions

#: The mean of both entropies by which mutual information is normalised.
AverageMethod = Literal["geometric", "arithmetic", "min", "max"]
AVERAGES = get_args(AverageMethod)


class PairwiseF1(NamedTuple):
    """Result of :func:`pairwise_f1`."""

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
    """Return the k-means cluster of each embedding, computed by faiss on the CPU in float32.

    The same arguments give the same clusters. faiss trains on a random sample of at most
    256 x num_clusters embeddings and assigns all of them. PML uses niter=20, nredo=1, seed=1234;
    the code of NormSoftmax niter=300, nredo=10, seed=0, which takes 150 times as long.

    Args:
        embeddings: Shape (N, D); they are not normalised.
        num_clusters: At most N; the papers use the number of test classes.
        seed: Seed of the initial centres, 0..2^31 - 1.
        niter: Number of iterations of each run.
        nredo: Number of runs; the one with the smallest squared error is used.

    Returns:
        Clusters 0..num_clusters-1, int64, shape (N,), on the device of the embeddings.

    Raises:
        ValueError: The shape of the embeddings is wrong, their squares are not finite, or a number
            is out of range.
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
        # Suppresses a warning of faiss for fewer than 39 samples per cluster.
        min_points_per_centroid=1,
    )
    kmeans.train(points)
    # ``assign`` returns squared distances and clusters.
    return torch.from_numpy(kmeans.assign(points)[1]).to(x.device)


def normalized_mutual_information(
    labels: Tensor | ArrayLike,
    clusters: Tensor | ArrayLike,
    average_method: AverageMethod = "geometric",
) -> float:
    """Return the mutual information of labels and clusters, divided by a mean of both entropies.

    The papers of this package and their baselines use the geometric mean, scikit-learn's default
    until 0.22; PML and scikit-learn now use the arithmetic mean, which never gives a higher value.

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
    """Return the mutual information, adjusted so that random clusters of the same sizes score 0.

    It is (MI - E) / (mean of both entropies - E), where E is the expectation of MI over random
    clusters. Time grows with classes x clusters: half a minute for 11,316 of each.

    Args:
        labels: Integer classes, shape (N,).
        clusters: Integer clusters, shape (N,).
        average_method: The mean, as in :func:`normalized_mutual_information`; PML and scikit-learn
            use ``"arithmetic"``.

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
    """Return precision, recall and F1 over all pairs, with "same cluster" predicting "same class".

    With TP the number of pairs in the same class and the same cluster,
    precision = TP / pairs in the same cluster, recall = TP / pairs in the same class and
    F1 = 2 TP / (pairs in the same cluster + pairs in the same class), as in GradML. All three are
    computed from the sizes of classes and clusters, without a loop over pairs.

    Args:
        labels: Integer labels, shape (N,).
        clusters: Integer clusters, shape (N,).

    Returns:
        Precision, recall and F1, each 0 to 1; precision is 0 if no cluster has two samples.

    Raises:
        ValueError: A shape or dtype is wrong, or no class has two samples.
    """
    classes, groups = (torch.from_numpy(part) for part in _partitions(labels, clusters))
    _, cluster_of = groups.unique(return_inverse=True)
    _, class_of = classes.unique(return_inverse=True)
    class_pairs, cluster_pairs = _pairs_within(class_of), _pairs_within(cluster_of)
    if class_pairs == 0:
        raise ValueError("no class has two samples, so recall is undefined.")
    # One number for each pair of a class and a cluster.
    true_pairs = _pairs_within(class_of * (int(cluster_of.max()) + 1) + cluster_of)
    precision = true_pairs / cluster_pairs if cluster_pairs else 0.0
    f1 = 2 * true_pairs / (cluster_pairs + class_pairs)
    return PairwiseF1(precision, true_pairs / class_pairs, f1)


def clustering_metrics(
    embeddings: Tensor | ArrayLike,
    labels: Tensor | ArrayLike,
    num_clusters: int | None = None,
    normalize: bool = True,
    nmi_average: AverageMethod = "geometric",
    ami_average: AverageMethod = "arithmetic",
    **kmeans: Any,
) -> dict[str, float]:
    """Cluster the embeddings by k-means and return the metrics of the clusters.

    Args:
        embeddings: Shape (N, D).
        labels: Integer classes, shape (N,).
        num_clusters: None: the number of classes, as in the papers.
        normalize: Scale embeddings to unit length first, as PML's testers do; Realigned Softmax
            Warping and ProxyNCA++ cluster raw embeddings.
        nmi_average: The mean in NMI (papers: geometric, PML: arithmetic).
        ami_average: The mean in AMI (PML: arithmetic).
        **kmeans: ``seed``, ``niter`` and ``nredo`` of :func:`kmeans_clusters`.

    Returns:
        ``NMI``, ``AMI`` and ``F1``.

    Raises:
        ValueError: A shape or dtype is wrong, an embedding is NaN or infinite, a number is out of
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
    """Check labels and clusters, and return them as int64 arrays of the same length."""
    classes = _inputs.integers(labels, "labels")
    groups = _inputs.integers(clusters, "clusters")
    if len(classes) != len(groups):
        raise ValueError(
            f"clusters must have shape ({len(classes)},) like labels, but got {(len(groups),)}."
        )
    return classes.cpu().numpy(), groups.cpu().numpy()


def _pairs_within(groups: Tensor) -> int:
    """Return the number of pairs of samples in the same group."""
    sizes = groups.unique(return_counts=True)[1]
    return int((sizes * (sizes - 1) // 2).sum())
