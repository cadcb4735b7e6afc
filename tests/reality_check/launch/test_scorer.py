from __future__ import annotations

from typing import Any

import pytest
import torch
from simulated_cuda import Device
from support.spied import Made

from reality_check.config.metrics import Stage
from reality_check.evaluation import baselines
from reality_check.launch import scorer as scorers
from reality_check.models.network import build_network


def test_baselines_see_the_test_images_through_one_pipeline(
    make: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU each pipeline holds a copy of the images."""
    recorded = make()
    scorer, built = recorded.runner.scorer, []
    build = baselines.build_pipeline

    def count(images: Any, *arguments: Any) -> Any:
        built.append(images)
        return build(images, *arguments)

    monkeypatch.setattr(baselines, "build_pipeline", count)
    first, second = scorer.score_baselines(0), scorer.score_baselines(1)
    assert len(built) == 1, "that of the images whose components are fitted"
    assert len(scorer._pipelines) == 1
    assert {"raw pixels", "untrained trunk"} <= set(first)
    assert "raw pixels" not in second


#: Of four networks: whether embeddings are finite, and the scores in both geometries, also of the
#: ensemble. The baselines are those without embedder too.
WAITS = {"reproduction": 10 + 10, "baselines": 8 + 8}


@pytest.mark.gpu
@pytest.mark.parametrize("what", WAITS)
def test_samples_leave_a_gpu_that_is_full(
    what: str,
    make: Made,
    simulated_gpu: Device,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is scored is scored once more; without samples there the error is the caller's."""
    recorded = make(device="cuda")
    scorer, method = recorded.runner.scorer, recorded.runner.prepared.method("contrastive")
    shape = recorded.runner.prepared.input_shape("contrastive")
    monkeypatch.setattr(
        scorers, "load_kept", lambda *which: build_network(method.model, shape, 4, seed=0)
    )

    def scored() -> Any:
        if what == "baselines":
            return scorer.score_baselines(1)
        return scorer.score(method, Stage.REPRODUCTIONS, 0)[0]["ensemble"]

    expected = scored()
    simulated_gpu.reset()
    scored()
    waits = simulated_gpu.waits
    to_gpu = sum(count for (why, _), count in waits.items() if why == "blocking copy to the GPU")
    tensors = len(build_network(method.model, shape, 4, seed=0).state_dict())
    assert to_gpu == 4 * tensors, "the networks, and nothing else"
    assert waits.total() - to_gpu == WAITS[what], waits
    simulated_gpu.memory[0].fail_in(15)
    found = scored()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value), name
    assert "cuda is full, so its samples move to main memory; continuing" in capsys.readouterr().out
    assert not any(images.store.resident for images in scorer._pipelines.values())
    simulated_gpu.memory[0].fail_in(15)
    with pytest.raises(torch.OutOfMemoryError):
        scored()
