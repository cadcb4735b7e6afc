"""Batches of one process or of two give the values of the whole data set."""

from __future__ import annotations

import datetime
import importlib
import json
import multiprocessing
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.pace import slowness
from torch.utils.data import DistributedSampler

from pml_extensions.evaluation import RetrievalMetrics
from pml_extensions.evaluation.retrieval_metrics import METRICS

SAMPLES = 13  # an odd number, which DistributedSampler pads
EMBEDDINGS = torch.randn(SAMPLES, 3, generator=torch.Generator().manual_seed(4))
LABELS = torch.arange(SAMPLES) % 3
SCORE = RetrievalMetrics(metrics=METRICS, recall_at=(2,))


#: Importing torchmetrics takes seconds, in one process of the tests only.
pytestmark = pytest.mark.xdist_group("integrations")
INSTALLED = pytest.param("with torchmetrics", marks=pytest.mark.slow)


@pytest.fixture(params=[INSTALLED, "without"])
def cls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The class, with either of its bases."""
    if request.param == "without":
        monkeypatch.setitem(sys.modules, "torchmetrics", None)
    else:
        pytest.importorskip("torchmetrics", reason="torchmetrics is not installed")
    # Not at the top of this file: every process that collects tests would import torchmetrics.
    name = "pml_extensions.evaluation.streaming"
    monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module(name).StreamingRetrievalMetrics
    sys.modules.pop(name)


def test_batches_give_the_value_of_the_whole(cls: Any) -> None:
    metric = cls(SCORE)
    for part in torch.arange(SAMPLES).split(5):
        assert metric(EMBEDDINGS[part], LABELS[part]) is None
        metric.compute()  # so far
    assert metric.compute() == SCORE(EMBEDDINGS, LABELS)
    metric.reset()
    levels = torch.stack([LABELS, LABELS % 2], dim=1)[:6]
    metric.update(EMBEDDINGS[:6], levels)
    assert metric.compute() == SCORE(EMBEDDINGS[:6], levels)


def test_each_index_counts_once_and_in_order(cls: Any) -> None:
    metric = cls()
    for positions in ([5, 3, 4, 12], [0, 1, 2, 3, 5], [11, 10, 9, 8, 7, 6]):
        metric.update(EMBEDDINGS[positions], LABELS[positions], torch.tensor(positions))
    assert metric.compute() == RetrievalMetrics()(EMBEDDINGS, LABELS)


@pytest.mark.parametrize("cls", [INSTALLED], indirect=True)
def test_torchmetrics_takes_it_as_one_of_its_own(cls: Any) -> None:
    collection = sys.modules["torchmetrics"].MetricCollection([cls()])
    collection.update(EMBEDDINGS, LABELS)
    assert collection.compute() == RetrievalMetrics()(EMBEDDINGS, LABELS)


@pytest.mark.filterwarnings("ignore:The ``compute`` method of metric")
def test_what_cannot_be_scored_is_refused(cls: Any) -> None:
    metric = cls()
    with pytest.raises(ValueError, match="no samples; call update"):
        metric.compute()
    with pytest.raises(ValueError, match="13 embeddings have 12 labels"):
        metric.update(EMBEDDINGS, LABELS[1:])
    metric.update(EMBEDDINGS, LABELS)
    metric.update(EMBEDDINGS, LABELS, torch.arange(SAMPLES))
    with pytest.raises(ValueError, match="Some batches have indices and others not"):
        metric.compute()


def values_of(metric: Any, positions: list[int], with_indices: bool) -> tuple[Any, str]:
    """The values, where this rank has these samples, and the warnings that there were."""
    for batch in torch.tensor(positions, dtype=torch.int64).split(4):
        if len(batch):
            metric.update(EMBEDDINGS[batch], LABELS[batch], batch if with_indices else None)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        return metric.compute(), " ".join(str(warning.message) for warning in said)


def be_rank(rank: int, cls: Any, folder: Path) -> None:
    """Write what this rank of two computes."""
    torch.distributed.init_process_group(
        "gloo",
        init_method=(folder / "rendezvous").as_uri(),
        rank=rank,
        world_size=2,
        timeout=datetime.timedelta(seconds=60),
    )
    everything = range(SAMPLES)
    sampler = DistributedSampler(everything, 2, rank, shuffle=True, seed=3)  # type: ignore[arg-type]
    dealt, own = list(sampler), list(everything[rank::2])
    cases = {
        "padded, indices": values_of(cls(SCORE), dealt, True),
        "padded": values_of(cls(SCORE), dealt, False),
        "unequal": values_of(cls(SCORE), own, False),
        "on one rank": values_of(cls(SCORE), list(everything) if rank else [], False),
    }
    (folder / f"rank{rank}.json").write_text(json.dumps(cases), encoding="utf-8")
    torch.distributed.barrier()
    # Gloo's threads may abort the interpreter while it shuts down (PyTorch's issue 190489).
    os._exit(0)


# Processes that are forked have imported torchmetrics already. From Python 3.12 on that warns where
# there are threads, as pytest-xdist's; what is forked waits for none of them.
@pytest.mark.filterwarnings("ignore:.*use of fork")
def test_two_processes_get_the_value_of_the_whole(
    cls: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=be_rank, args=(rank, cls, tmp_path)) for rank in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(60 * slowness())
        process.kill()
    whole = SCORE(EMBEDDINGS, LABELS)
    assert SCORE(EMBEDDINGS[::2], LABELS[::2]) != whole  # what a rank would log of its own part
    for rank in range(2):
        cases = json.loads((tmp_path / f"rank{rank}.json").read_text(encoding="utf-8"))
        assert len(cases) == 4
        for name, (values, said) in cases.items():
            assert values == pytest.approx(whole, abs=1e-12), name
            assert ("padding" in said) == (name == "padded"), name
