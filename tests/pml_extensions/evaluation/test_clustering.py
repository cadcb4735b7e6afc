"""k-means against PML's, NMI and AMI against golden values and loops, F1 against a loop."""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import FaissKMeans
from sklearn.metrics.cluster import pair_confusion_matrix
from support import paths
from support.examples import examples

from pml_extensions.evaluation.clustering import (
    adjusted_mutual_information,
    clustering_metrics,
    kmeans_clusters,
    normalized_mutual_information,
    pairwise_f1,
)

GOLDEN = json.loads((paths.GOLDEN).read_text(encoding="utf-8"))["cases"]["metrics"]
LABELS = GOLDEN["inputs"]["labels"]
CLUSTERS = GOLDEN["inputs"]["cluster_assignment"]
partitions = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=40)


def blobs(classes: int = 6, size: int = 8, spread: float = 0.3) -> tuple[torch.Tensor, Any]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(classes).repeat(size)
    centres = torch.randn(classes, 5, generator=generator)
    return centres[labels] + spread * torch.randn(len(labels), 5, generator=generator), labels


def entropy(values: Any) -> float:
    return -sum(n / len(values) * math.log(n / len(values)) for n in Counter(values).values())


MEANS = {
    "geometric": lambda a, b: math.sqrt(a * b),
    "arithmetic": lambda a, b: (a + b) / 2,
    "min": min,
    "max": max,
}


class TestMutualInformation:
    @pytest.mark.parametrize("average", ["geometric", "arithmetic"])
    def test_golden(self, average: Any) -> None:
        value = normalized_mutual_information(LABELS, CLUSTERS, average)
        assert value == pytest.approx(GOLDEN["expected"]["nmi"][average], abs=1e-9)

    def test_geometric_unless_told_otherwise(self) -> None:
        value = normalized_mutual_information(LABELS, CLUSTERS)
        assert value == normalized_mutual_information(LABELS, CLUSTERS, "geometric")

    @given(pairs=partitions, average=st.sampled_from(sorted(MEANS)))
    @examples(60)
    def test_nmi_is_mutual_information_over_a_mean_entropy(self, pairs: Any, average: Any) -> None:
        y, c = zip(*pairs, strict=True)
        mean = MEANS[average](entropy(y), entropy(c))
        if mean < 1e-9:
            return
        mutual = entropy(y) + entropy(c) - entropy(pairs)
        value = normalized_mutual_information(y, c, average)
        assert value == pytest.approx(mutual / mean, abs=1e-9)

    @pytest.mark.parametrize("average", sorted(MEANS))
    def test_ami_is_adjusted_by_the_mean_over_all_shuffles(self, average: Any) -> None:
        y, c = (0, 0, 1, 1, 1), (0, 1, 1, 2, 2)
        expected = self.mean_over_shuffles(y, c)
        mutual = entropy(y) + entropy(c) - entropy(list(zip(y, c, strict=True)))
        value = (mutual - expected) / (MEANS[average](entropy(y), entropy(c)) - expected)
        assert adjusted_mutual_information(y, c, average) == pytest.approx(value, abs=1e-9)

    @staticmethod
    def mean_over_shuffles(y: Any, c: Any) -> float:
        values = [
            entropy(y) + entropy(c) - entropy(list(zip(y, p, strict=True))) for p in permutations(c)
        ]
        return sum(values) / len(values)

    def test_names_do_not_matter_and_may_be_any_integers(self) -> None:
        names = {0: -(2**60), 1: 2**60, 2: 2**60 + 1}
        renamed = np.array([names[label] for label in LABELS])
        for metric in (normalized_mutual_information, adjusted_mutual_information, pairwise_f1):
            assert metric(renamed, torch.tensor(CLUSTERS)) == metric(LABELS, CLUSTERS)

    def test_unknown_mean(self) -> None:
        with pytest.raises(ValueError, match="average_method must be one of 'geometric'"):
            normalized_mutual_information([0, 1], [0, 1], "harmonic")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="average_method must be one of 'geometric'"):
            adjusted_mutual_information([0, 1], [0, 1], "mean")  # type: ignore[arg-type]


class TestPairwiseF1:
    def test_golden(self) -> None:
        expected = GOLDEN["expected"]["pairwise_f1"]
        assert pairwise_f1(LABELS, CLUSTERS)._asdict() == pytest.approx(expected, abs=1e-9)

    @given(pairs=partitions)
    @examples(100)
    def test_equals_a_loop_over_all_pairs(self, pairs: Any) -> None:
        y, c = zip(*pairs, strict=True)
        hit = miss = wrong = 0
        for (y1, c1), (y2, c2) in combinations(pairs, 2):
            hit += y1 == y2 and c1 == c2
            miss += y1 == y2 and c1 != c2
            wrong += y1 != y2 and c1 == c2
        if hit + miss == 0:
            with pytest.raises(ValueError, match="no class has two samples"):
                pairwise_f1(y, c)
            return
        precision = hit / (hit + wrong) if hit + wrong else 0.0
        f1 = 2 * hit / (2 * hit + miss + wrong)
        assert pairwise_f1(y, c) == pytest.approx((precision, hit / (hit + miss), f1), abs=1e-12)

    def test_equals_scikit_learn_at_the_size_of_sop(self) -> None:
        rng = np.random.default_rng(0)
        y, c = rng.integers(0, 11_316, (2, 60_502))
        c[::2] = y[::2]
        (_, wrong), (miss, hit) = pair_confusion_matrix(y, c)
        values = hit / (hit + wrong), hit / (hit + miss), 2 * hit / (2 * hit + miss + wrong)
        assert pairwise_f1(y, c) == pytest.approx(values, abs=1e-12)

    def test_no_overflow_with_a_million_samples_of_one_class(self) -> None:
        y = torch.zeros(1_000_000, dtype=torch.int64)
        assert pairwise_f1(y, y) == (1.0, 1.0, 1.0)
        assert pairwise_f1(y, torch.arange(1_000_000)) == (0.0, 0.0, 0.0)


class TestKMeans:
    def test_equals_pml_with_its_seed(self) -> None:
        x, _ = blobs(spread=1.0)
        ours = kmeans_clusters(x, 6, seed=1234)
        assert torch.equal(ours, FaissKMeans(niter=20)(x, 6))

    def test_settings_reach_faiss(self) -> None:
        x, _ = blobs(20, 30, spread=1.0)

        def squared_error(**settings: int) -> float:
            clusters = kmeans_clusters(x, 20, **settings)
            groups = [x[clusters == c] for c in clusters.unique()]
            return float(sum((g - g.mean(dim=0)).square().sum() for g in groups))

        first, more = squared_error(seed=1, niter=1), squared_error(seed=1, niter=50)
        best = squared_error(seed=1, niter=50, nredo=10)
        assert best < more < first
        assert squared_error(seed=1) != squared_error(seed=2)

    def test_the_same_arguments_give_the_same_clusters(self) -> None:
        x, _ = blobs(spread=2.0)
        assert torch.equal(kmeans_clusters(x, 6), kmeans_clusters(x.numpy(), 6))

    def test_finds_what_is_apart(self) -> None:
        x, y = blobs(spread=0.01)
        clusters = kmeans_clusters(x, 6, nredo=20)
        assert pairwise_f1(y, clusters) == (1.0, 1.0, 1.0)
        assert clusters.dtype == torch.int64

    def test_one_cluster_a_sample(self) -> None:
        clusters = kmeans_clusters(torch.arange(5.0).unsqueeze(1), 5)
        assert sorted(clusters.tolist()) == [0, 1, 2, 3, 4]

    def test_fewer_different_samples_than_clusters(self) -> None:
        clusters = kmeans_clusters(torch.tensor([[0.0], [1.0]]).repeat(10, 1), 6)
        assert set(clusters[::2].tolist()).isdisjoint(clusters[1::2].tolist())

    def test_few_samples_a_cluster_give_no_warning(self, capfd: Any) -> None:
        kmeans_clusters(torch.randn(50, 3), 20)
        assert capfd.readouterr().err == ""

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"num_clusters": 49}, "num_clusters=49, but there are only 48 embeddings"),
            ({"num_clusters": 0}, "num_clusters must be a whole number"),
            ({"seed": -1}, "seed must be a whole number from 0"),
            ({"seed": 2**31}, "seed must be a whole number from 0"),
            ({"niter": 0}, "niter must be a whole number"),
            ({"nredo": 1.5}, "nredo must be a whole number"),
            ({"embeddings": [[math.nan]]}, "embeddings must be finite"),
        ],
    )
    def test_bad_arguments(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            kmeans_clusters(**{"embeddings": blobs()[0], "num_clusters": 3, **arguments})


class TestClusteringMetrics:
    def test_equals_pml_but_for_the_mean(self) -> None:
        x, y = blobs(spread=0.7)
        x = torch.nn.functional.normalize(x)
        calculator = AccuracyCalculator(include=("NMI", "AMI"), device=torch.device("cpu"))
        theirs = calculator.get_accuracy(x, y)
        ours = clustering_metrics(x, y, seed=1234, nmi_average="arithmetic", normalize=False)
        assert {"NMI": ours["NMI"], "AMI": ours["AMI"]} == pytest.approx(theirs, abs=1e-9)
        assert clustering_metrics(x, y, seed=1234)["NMI"] > theirs["NMI"]

    def test_length_counts_only_if_not_normalized(self) -> None:
        x, y = blobs(spread=0.01)
        stretched = x * torch.linspace(1, 1000, len(x)).unsqueeze(1)
        settings = {"nredo": 20}
        assert clustering_metrics(stretched, y, **settings) == pytest.approx(
            {"NMI": 1.0, "AMI": 1.0, "F1": 1.0}, abs=1e-9
        )
        assert clustering_metrics(stretched, y, normalize=False, **settings)["F1"] < 0.9

    def test_clusters_as_many_as_classes_unless_told_otherwise(self) -> None:
        x, y = blobs(spread=0.01)
        assert clustering_metrics(x, y, num_clusters=3, nredo=20)["F1"] < 1

    def test_bad_arguments(self) -> None:
        x, y = blobs()
        with pytest.raises(ValueError, match="labels must have shape"):
            clustering_metrics(x, y[1:])
        with pytest.raises(ValueError, match="clusters must have shape"):
            pairwise_f1(y, y[1:])
        with pytest.raises(ValueError, match="clusters must be integers"):
            normalized_mutual_information(y, y.float())


@pytest.mark.gpu
def test_cuda() -> None:
    x, y = blobs(spread=0.7)
    assert clustering_metrics(x.cuda(), y.cuda()) == clustering_metrics(x, y)
    assert kmeans_clusters(x.cuda(), 3).is_cuda


def test_without_faiss_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ModuleNotFoundError, match="pip install faiss-cpu"):
        kmeans_clusters(torch.eye(4), 2)
