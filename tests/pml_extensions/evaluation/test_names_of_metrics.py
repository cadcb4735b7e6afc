"""What the page on other frameworks says of their metrics is so."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from support.paths import DOCS
from torch import Tensor

from pml_extensions.evaluation import RetrievalMetrics
from pml_extensions.evaluation.retrieval_metrics import METRICS

pytestmark = [pytest.mark.xdist_group("integrations"), pytest.mark.slow]
PAGE = (DOCS / "integrations.md").read_text(encoding="utf-8")
EMBEDDINGS = torch.nn.functional.normalize(
    torch.randn(30, 4, generator=torch.Generator().manual_seed(1))
)
UNEQUAL = torch.arange(4).repeat_interleave(torch.tensor([3, 6, 9, 12]))
EQUAL = torch.arange(30) % 5  # five relevant references for each query
OTHERS = ~torch.eye(30, dtype=torch.bool)
SIMILARITIES = EMBEDDINGS @ EMBEDDINGS.T


def ours(labels: Tensor) -> dict[str, float]:
    return RetrievalMetrics(metrics=METRICS, recall_at=(5,))(EMBEDDINGS, labels)


def is_told(value: float) -> bool:
    return f"{value:.3f}" in PAGE


def test_names_of_metrics_of_pml() -> None:
    theirs = AccuracyCalculator(include=METRICS, k=29, device=torch.device("cpu"))
    values = theirs.get_accuracy(EMBEDDINGS, UNEQUAL)
    for name in METRICS:
        assert values[name] == pytest.approx(ours(UNEQUAL)[name])


def test_names_of_metrics_of_torchmetrics() -> None:
    retrieval = pytest.importorskip("torchmetrics.retrieval", reason="torchmetrics is missing")

    def score(metric: Any, shift: float = 1.0) -> Any:
        queries = torch.arange(30)[:, None].expand(30, 30)[OTHERS]
        relevant = (UNEQUAL[:, None] == UNEQUAL)[OTHERS]
        value = metric(SIMILARITIES[OTHERS] + shift, relevant, indexes=queries)
        return pytest.approx(float(value), abs=1e-6)

    expected = ours(UNEQUAL)
    assert expected["precision_at_1"] == score(retrieval.RetrievalPrecision(top_k=1))
    assert expected["recall_at_5"] == score(retrieval.RetrievalHitRate(top_k=5))
    assert expected["r_precision"] == score(retrieval.RetrievalRPrecision())
    assert expected["r_precision"] == score(retrieval.RetrievalRPrecision(), 0.0)
    assert expected["mean_average_precision"] == score(retrieval.RetrievalMAP())
    assert expected["mean_reciprocal_rank"] == score(retrieval.RetrievalMRR())

    # False friends.
    average = retrieval.RetrievalMAP()
    of_cosines = float(score(average, 0.0).expected)
    assert of_cosines > expected["mean_average_precision"] + 0.01
    assert is_told(of_cosines)
    assert is_told(expected["mean_average_precision"])
    share = float(score(retrieval.RetrievalRecall(top_k=5)).expected)
    assert share < expected["recall_at_5"] / 2
    assert is_told(share)
    assert is_told(expected["recall_at_5"])
    at_r = []
    for query in range(30):
        relevant = (UNEQUAL[query] == UNEQUAL)[OTHERS[query]]
        metric = retrieval.RetrievalMAP(top_k=int(relevant.sum()))
        scores = SIMILARITIES[query][OTHERS[query]] + 1
        at_r.append(float(metric(scores, relevant, torch.zeros(29, dtype=torch.int64))))
    assert is_told(sum(at_r) / 30)
    assert is_told(expected["mean_average_precision_at_r"])


@pytest.mark.parametrize("labels", [EQUAL, UNEQUAL], ids=["equal R", "unequal R"])
def test_names_of_metrics_of_sentence_transformers(labels: Tensor) -> None:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    names = [str(number) for number in range(30)]
    others = [[other for other in range(30) if other != query] for query in range(30)]
    evaluator = InformationRetrievalEvaluator(
        {name: name for name in names},
        {name: name for name in names},
        {
            names[query]: {names[o] for o in others[query] if labels[o] == labels[query]}
            for query in range(30)
        },
        accuracy_at_k=[1, 5],
        precision_recall_at_k=[1, 5],
        mrr_at_k=[29],
        map_at_k=[5, 29],
    )
    hits = [
        [{"corpus_id": names[o], "score": float(SIMILARITIES[query, o])} for o in others[query]]
        for query in range(30)
    ]
    theirs, expected = evaluator.compute_metrics(hits), ours(labels)
    assert theirs["accuracy@k"][1] == pytest.approx(expected["precision_at_1"])
    assert theirs["precision@k"][1] == pytest.approx(expected["precision_at_1"])
    assert theirs["accuracy@k"][5] == pytest.approx(expected["recall_at_5"])
    assert theirs["map@k"][29] == pytest.approx(expected["mean_average_precision"])
    assert theirs["mrr@k"][29] == pytest.approx(expected["mean_reciprocal_rank"])
    is_equal = labels is EQUAL
    at_r = pytest.approx(expected["mean_average_precision_at_r"])
    assert (float(theirs["map@k"][5]) == at_r) is is_equal
    precision = pytest.approx(expected["r_precision"])
    assert (float(theirs["precision@k"][5]) == precision) is is_equal
    if not is_equal:
        assert is_told(theirs["recall@k"][5])
