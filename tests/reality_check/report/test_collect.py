"""What becomes of records on their way into the report."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch

from reality_check.config import compose
from reality_check.evaluation.categories import _on_corrupted
from reality_check.evaluation.metrics import Metrics, evaluate_both_geometries
from reality_check.report.collect import _rows, _winner
from reality_check.results import MethodResults
from reality_check.studies.trial import StoredTrial, best_trial

ASKED = ["recall_at_2", "NMI", "separability", "binary_precision_at_1", "dropout_precision_at_1"]


class Scored:
    """The reproductions of one method: one was scored, one diverged."""

    name = "tiny/m/reproductions"

    def __init__(self, scores: Any) -> None:
        self._trials = {
            0: StoredTrial(0, 0, "complete", scores=scores),
            1: StoredTrial(1, 1, "complete", diverged="the loss became nan"),
        }

    def complete(self) -> dict[int, StoredTrial]:
        return self._trials


def scored(normalize: bool) -> dict[str, float]:
    """What scoring records of made-up embeddings."""
    embeddings = torch.randn(12, 8, generator=torch.Generator().manual_seed(0))
    labels = np.repeat(np.arange(3), 4)
    clean = evaluate_both_geometries(embeddings, labels, normalize, ASKED[:-1])
    changed = evaluate_both_geometries(embeddings, labels, normalize)
    return Metrics({**clean, **_on_corrupted(changed, "dropout", ["precision_at_1"])}, {})


@pytest.mark.parametrize("normalize", [True, False])
def test_a_diverged_run_counts_as_0_wherever_a_scored_one_has_a_value(normalize: bool) -> None:
    experiment = compose(
        {
            "name": "tiny",
            "dataset": "glyphs",
            "model": "conv4",
            "protocol": {"base": "quick", "final_metrics": ASKED, "categories": ["ensemble"]},
            "methods": ["contrastive"],
        }
    )
    method = MethodResults("m", "L", normalize_embeddings=normalize)
    study = Scored({"ensemble": scored(normalize)})
    rows = _rows(experiment, method, cast(Any, study))
    names = [{row.metric for row in rows if row.reproduction == run} for run in (0, 1)]
    assert names[0] == names[1]
    assert ("precision_at_1_raw" in names[1]) == normalize
    assert {row.value for row in rows if row.reproduction == 1} == {0.0}


class Searched:
    """A search of three trials, of which the best diverged later."""

    def __init__(self, finished: bool) -> None:
        self._finished = finished

    def best(self) -> StoredTrial | None:
        values = [(0.1, None), (0.3, None), (0.9, "the loss became nan")]
        return best_trial(
            {
                index: StoredTrial(
                    index, index, "complete", value, trial_index=index, diverged=diverged
                )
                for index, (value, diverged) in enumerate(values)
            }
        )

    def is_complete(self) -> bool:
        return self._finished


def test_a_search_has_a_winner_once_it_is_complete() -> None:
    assert _winner(cast(Any, Searched(True))) == 1
    assert _winner(cast(Any, Searched(False))) is None
    assert _winner(None) is None
