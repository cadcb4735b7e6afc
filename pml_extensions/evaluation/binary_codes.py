"""Retrieval by Hamming distance between binary codes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from pml_extensions._shared import checks
from pml_extensions.evaluation import _inputs
from pml_extensions.evaluation._products import dot_products
from pml_extensions.evaluation._scores import Scores
from pml_extensions.evaluation.retrieval_metrics import METRICS
from pml_extensions.functional import without_autocast
from pml_extensions.modules import BinaryEmbedding

RECALL_AT = (1, 2, 4, 8)


@torch.no_grad()
def hamming_retrieval(
    embeddings: Tensor | ArrayLike,
    labels: Tensor | ArrayLike,
    ks: Sequence[int] = RECALL_AT,
    reference: Tensor | ArrayLike | None = None,
    reference_labels: Tensor | ArrayLike | None = None,
    chunk_size: int = 512,
) -> dict[str, float]:
    """Return the retrieval metrics of binary codes under Hamming distance.

    A bit is 1 if the value is above 0 ("Classification is a Strong Baseline for Deep Metric
    Learning", section 6.3). References at the same distance, which are frequent with short codes,
    rank by index; compare :func:`expected_hamming_recall`. Otherwise the definitions are those of
    ``RetrievalMetrics``: a query is not its own neighbour, and queries without a reference of their
    class do not count.

    Args:
        embeddings: Queries, shape (N, D): real values or booleans, or packed codes, uint8, from
            ``BinaryEmbedding(pack=True)``.
        labels: Integer label of each query, shape (N,).
        ks: The K of Recall@K, the fraction of queries with a reference of their class among the
            first K.
        reference: References, shape (M, D), in the same format; None: the queries themselves.
        reference_labels: Integer label of each reference, shape (M,).
        chunk_size: Number of queries ranked at a time; memory grows with chunk_size times the
            larger of K and R, the number of references of a query's class.

    Returns:
        ``precision_at_1``, ``r_precision``, ``mean_average_precision_at_r`` and ``recall_at_{k}``
        for each K, means over queries.

    Raises:
        ValueError: A shape or dtype is wrong, a value is NaN or infinite, a K is below 1, or no
            query has a reference of its class.
    """
    task = _Task.of(embeddings, labels, reference, reference_labels)
    ks, chunk_size = _checked_ks(ks), checks.positive_integer("chunk_size", chunk_size)
    index = _inputs.import_faiss().IndexBinaryFlat(8 * task.references.shape[1])
    index.add(task.references.cpu().numpy())
    queries = _scored_queries(task.num_relevant)
    # Sorted by R, because the largest R of a chunk determines the depth of its search.
    queries = queries[task.num_relevant[queries].argsort(stable=True)]
    # The last metrics of METRICS need all ranks.
    scores = Scores(
        (*METRICS[:3], *(f"recall_at_{k}" for k in ks)), ks, len(task.codes), queries.device
    )
    for rows in queries.split(chunk_size):
        num_relevant = task.num_relevant[rows]
        depth = min(max(int(num_relevant[-1]), *ks), task.num_candidates)
        matches = _matches(index, task, rows, depth)
        rank = torch.arange(1, depth + 1, device=rows.device)
        # Sorting puts the ranks of matches first; all others get a rank above every limit.
        ranks = rank.where(matches, torch.iinfo(rank.dtype).max).sort(dim=1).values
        scores.add(rows, ranks, num_relevant)
    means = scores.values[:, queries].mean(dim=1)
    return dict(zip(scores.names, means.tolist(), strict=True))


@torch.no_grad()
def expected_hamming_recall(
    embeddings: Tensor | ArrayLike,
    labels: Tensor | ArrayLike,
    ks: Sequence[int] = RECALL_AT,
    reference: Tensor | ArrayLike | None = None,
    reference_labels: Tensor | ArrayLike | None = None,
    chunk_size: int = 128,
) -> dict[str, float]:
    r"""Return the expected Recall@K under Hamming distance if ties are ordered at random.

    If b references are nearer to a query than its nearest hit, a reference of its class, and n
    references are at the same distance as this hit, m of them hits, then the recall of the query is

    .. math:: 1 - \binom{n-m}{s} / \binom{n}{s}, \quad s = \min(\max(K - b, 0), n).

    Arguments and errors are those of :func:`hamming_retrieval`. All pairs are compared by exact
    matrix products on the device of the embeddings, with memory of chunk_size x M.

    Returns:
        ``recall_at_{k}`` for each K, means over queries.
    """
    task = _Task.of(embeddings, labels, reference, reference_labels)
    ks, chunk_size = _checked_ks(ks), checks.positive_integer("chunk_size", chunk_size)
    signs = _signs(task.references)
    queries = _scored_queries(task.num_relevant)
    totals = torch.zeros(len(ks), dtype=torch.float64)
    for rows in queries.split(chunk_size):
        # The larger the product of signs, the smaller the Hamming distance.
        with without_autocast(signs):
            products = dot_products(_signs(task.codes[rows]), signs)
        if task.self_retrieval:
            products.scatter_(1, rows.unsqueeze(1), -torch.inf)
        same = task.reference_labels == task.labels[rows].unsqueeze(1)
        nearest = products.masked_fill(~same, -torch.inf).amax(dim=1, keepdim=True)
        tied = products == nearest
        # References nearer than the nearest hit, equally near ones, and hits among these.
        counts = (products > nearest).sum(1), tied.sum(1), (tied & same).sum(1)
        totals += torch.stack([_hit_probability(k, *counts).sum() for k in ks]).cpu()
    return {f"recall_at_{k}": float(t) for k, t in zip(ks, totals / len(queries), strict=True)}


class _Task(NamedTuple):
    """Packed codes and labels of queries and references; ``num_relevant`` is R of each query."""

    codes: Tensor
    labels: Tensor
    references: Tensor
    reference_labels: Tensor
    num_relevant: Tensor
    self_retrieval: bool

    @property
    def num_candidates(self) -> int:
        """Number of references that are ranked for a query."""
        return len(self.references) - int(self.self_retrieval)

    @classmethod
    def of(
        cls,
        embeddings: Tensor | ArrayLike,
        labels: Tensor | ArrayLike,
        reference: Tensor | ArrayLike | None,
        reference_labels: Tensor | ArrayLike | None,
    ) -> _Task:
        """Check the arguments of :func:`hamming_retrieval`, and pack codes that are not packed."""
        if (reference is None) != (reference_labels is None):
            raise ValueError("reference and reference_labels must be given together.")
        x = _inputs.matrix(embeddings, "embeddings")
        y = _inputs.labels_of(x, labels, "embeddings", "labels")
        if reference is None or reference_labels is None:
            codes = _pack(x)
            # The query itself is not relevant.
            return cls(codes, y, codes, y, _count_relevant(y, y) - 1, True)
        ref = _inputs.matrix(reference, "reference").to(x.device)
        ref_y = _inputs.labels_of(ref, reference_labels, "reference", "reference_labels")
        if _describe_width(x) != _describe_width(ref):
            raise ValueError(
                f"embeddings have {_describe_width(x)}, but reference has {_describe_width(ref)}."
            )
        return cls(_pack(x), y, _pack(ref), ref_y, _count_relevant(y, ref_y), False)


def _pack(x: Tensor) -> Tensor:
    return x.contiguous() if x.dtype == torch.uint8 else BinaryEmbedding(pack=True)(x)


def _describe_width(x: Tensor) -> str:
    return f"{x.shape[1]} {'bytes (uint8)' if x.dtype == torch.uint8 else 'dimensions'}"


def _signs(codes: Tensor) -> Tensor:
    """Return the bits of packed codes as 1 and -1, whose products are exact in float32."""
    shifts = torch.arange(8, dtype=torch.uint8, device=codes.device)
    bits = (codes.unsqueeze(2) >> shifts) & 1
    return bits.flatten(1).float().mul_(2).sub_(1)


def _count_relevant(labels: Tensor, reference_labels: Tensor) -> Tensor:
    """Return the number of references with the label of each query, shape (N,)."""
    classes, counts = reference_labels.unique(return_counts=True)
    index = torch.searchsorted(classes, labels).clamp(max=len(classes) - 1)
    return torch.where(classes[index] == labels, counts[index], 0)


def _scored_queries(num_relevant: Tensor) -> Tensor:
    """Return the queries with a reference of their class, or raise ValueError if there is none."""
    rows = num_relevant.nonzero().squeeze(1)
    if len(rows) == 0:
        raise ValueError(
            "no query has a reference of its class other than itself, so there is nothing to "
            "measure; each class needs at least two samples."
        )
    return rows


def _checked_ks(ks: Sequence[int]) -> list[int]:
    if not isinstance(ks, Sequence) or len(ks) == 0:
        raise ValueError(f"ks must be a list of at least one whole number, but got {ks=}.")
    return sorted({checks.positive_integer("each K of ks", k) for k in ks})


def _matches(index: Any, task: _Task, rows: Tensor, depth: int) -> Tensor:
    """Return which of the ``depth`` nearest references are of the query's class.

    References are ordered by distance and then by index.

    Returns:
        Booleans, shape (B, depth), nearest first.
    """
    # faiss returns distances and indices. This order of references is not documented; tests check
    # it.
    count = depth + int(task.self_retrieval)
    nearest = torch.from_numpy(index.search(task.codes[rows].cpu().numpy(), count)[1]).to(rows)
    if task.self_retrieval:
        is_self = nearest == rows.unsqueeze(1)
        # If duplicates displaced the query itself, the last reference is dropped instead.
        is_self[~is_self.any(dim=1), -1] = True
        nearest = nearest[~is_self].view(len(rows), depth)
    return task.reference_labels[nearest] == task.labels[rows].unsqueeze(1)


def _hit_probability(k: int, nearer: Tensor, tied: Tensor, hits: Tensor) -> Tensor:
    """Return the probability of a hit among the first ``k`` references of each query.

    First come ``nearer`` references without a hit, and then ``tied`` references in random order,
    of which ``hits`` are hits.
    """
    drawn = (k - nearer).clamp(min=0).minimum(tied)
    misses_left = (tied - hits - drawn).clamp(min=0)
    # binom(n - m, s) / binom(n, s) = (n - m)! (n - s)! / ((n - m - s)! n!), by logarithms, with n
    # tied references, m hits and s drawn. If all misses are drawn and more, a hit is certain.
    terms = (tied - hits, tied - drawn, misses_left, tied)
    a, b, c, d = ((n + 1).double().lgamma() for n in terms)
    return 1 - (a + b - c - d).exp() * (drawn <= tied - hits)
