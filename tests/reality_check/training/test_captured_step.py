"""Steps by a CUDA graph are the plain ones, or are given up with a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import simulated_cuda
import torch
from simulated_cuda import Device
from support.gpu_folds import built, vectors

from reality_check.config.method import ValueSchedule
from reality_check.training import captured_step
from reality_check.training.captured_step import CHECKS, WARM_UP, _Watch
from reality_check.training.methods import FilledSecondPhase
from reality_check.training.trainer import Trainer

pytestmark = pytest.mark.gpu
STEPS = WARM_UP + CHECKS + 3
PLAIN = {"cuda_graph": False}
GRAPH = {"cuda_graph": "auto"}

#: Each loss by itself: tests/pml_extensions/losses/test_gpu_graphs.py.
LOSSES: dict[str, dict[str, Any]] = {
    "normalized": {"loss": "NormalizedSoftmaxLoss"},
    "ccl": {"loss": "reality_check.baseline_losses.CenterContrastiveLoss"},
    "pfml": {"loss": "reality_check.baseline_losses.PotentialFieldLoss"},
    "linear": {"loss": "reality_check.baseline_losses.LinearSoftmaxLoss"},
    "a buffer": {"loss": "support.graph_losses.Remembers"},
    "dropout": {"dropout": 0.3},
    "bf16": {"autocast": "bf16"},
    "fp16": {"autocast": "fp16", "gradient_clip_norm": 0.5},
}


def steps(
    folder: Path, gpu: dict[str, Any], device: str = "cuda", **options: Any
) -> tuple[Trainer, list[float]]:
    """Some steps on vectors."""
    trainer = built(folder, device, data=vectors(), augmentation={}, gpu=gpu, **options)
    losses = []
    for images, labels in trainer.batches.take(STEPS):
        trainer.module.train()
        losses.append(trainer.module.step(images, labels).item())
    return trainer, losses


@pytest.mark.parametrize("name", LOSSES)
def test_steps_by_a_graph_are_the_plain_ones(tmp_path: Path, name: str) -> None:
    trainer, found = steps(tmp_path, GRAPH, **LOSSES[name])
    plain, expected = steps(tmp_path, PLAIN, **LOSSES[name])
    assert trainer.module.remarks() == ()
    captured = trainer.module.captured
    assert captured is not None
    assert captured._graph is not None
    assert found == pytest.approx(expected, rel=1e-3)
    for one, other in ((trainer.network, plain.network), (trainer.loss, plain.loss)):
        both = [[*part.parameters(), *part.buffers()] for part in (one, other)]
        torch.testing.assert_close(*both, rtol=1e-3, atol=1e-4)


def test_a_step_by_a_graph_is_one_operation(tmp_path: Path, simulated_gpu: Device) -> None:
    trainer, _ = steps(tmp_path, GRAPH)
    trainer.module._update = lambda: None  # type: ignore[method-assign]
    ((images, labels),) = trainer.batches.take(1)
    simulated_gpu.reset()
    trainer.module.step(images, labels)
    assert dict(simulated_gpu.operations) == {"copy_": 2, "graph": 1, "clone": 1}
    assert not simulated_gpu.waits


GIVEN_UP: dict[str, tuple[dict[str, Any], str]] = {
    **{
        name: ({"loss": f"support.graph_losses.{name}"}, why)
        for name, why in {
            "Waits": "the step waits for the GPU",
            "Chooses": "the step waits for the GPU",
            "Uploads": "the step uploads a tensor of the shape [1]",
            "Counts": "the step changes loss.steps",
            "Replaces": "the step changes loss.mean",
            "Hides": "its loss's values differ from those of the plain step by",
        }.items()
    },
    "miner": (
        {"loss": "GradMLLoss", "miner": {"class": "MultiSimilarityMiner"}},
        "the step waits for the GPU",
    ),
    "sparse": (
        {
            "loss": "support.graph_losses.Sparse",
            "optimizers": {key: {"name": "SGD", "lr": 0} for key in ("trunk", "embedder", "loss")},
        },
        "a gradient is sparse",
    ),
}


@pytest.mark.parametrize("name", GIVEN_UP)
def test_a_graph_is_given_up_with_a_reason_and_leaves_no_trace(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    options, why = GIVEN_UP[name]
    captured_step._log_once.cache_clear()
    trainer, found = steps(tmp_path, GRAPH, **options)
    (remark,) = trainer.module.remarks()
    assert remark.startswith(f"no CUDA graph, since {why}")
    assert remark in caplog.text
    if name != "Hides":  # of its number there is no second copy
        # The sums of a real GPU have no fixed order.
        rel = 1e-3 if simulated_cuda.current() is None else 1e-6
        assert found == pytest.approx(steps(tmp_path, PLAIN, **options)[1], rel=rel)


@pytest.mark.parametrize(
    ("loss", "way"),
    [("NormalizedSoftmaxLoss", "gradient accumulation"), ("ProxyAnchorLoss", "GradCache")],
)
def test_dropout_of_parts_on_the_gpu_is_that_of_parts_held_in_memory(
    tmp_path: Path, loss: str, way: str
) -> None:
    trainer = built(tmp_path, "cuda", data=vectors(), augmentation={}, gpu=GRAPH, loss=loss,
                    dropout=0.3, sub_batch_size=6)  # fmt: skip
    module = trainer.module
    assert module.remarks()[0] == f"batches in parts by {way}"
    assert "computed twice" in module.remarks()[1]
    module._update = lambda: None  # type: ignore[method-assign]
    ((images, labels),) = trainer.batches.take(1)
    module.train()
    torch.manual_seed(4)
    value = module.step(images, labels)
    found = [parameter.grad.clone() for parameter in module.network.parameters()]
    torch.manual_seed(4)
    module.network.zero_grad()
    expected = module.loss(torch.cat([module.network(x) for x in images.split(6)]), labels)
    expected.backward()
    torch.testing.assert_close(value, expected.detach(), rtol=1e-4, atol=1e-5)
    gradients = [parameter.grad for parameter in module.network.parameters()]
    torch.testing.assert_close(found, gradients, rtol=1e-3, atol=1e-5)


def test_random_numbers_of_the_host_are_noticed(tmp_path: Path) -> None:
    trainer, _ = steps(tmp_path, GRAPH, loss="support.graph_losses.Draws")
    assert trainer.module.remarks() == (
        "no CUDA graph, since the step draws random numbers on the host",
    )


def test_a_generator_of_its_own_is_noticed() -> None:
    """By the watch alone: the simulated GPU has no further generators."""
    with _Watch() as watch:
        torch.empty(3).normal_(generator=torch.Generator())
        torch.empty(3).normal_()
    (found,) = watch.reasons
    assert found.startswith("the step draws from a generator of its own (aten.normal_")


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_random_numbers_are_drawn_after_a_recording_that_failed(
    device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some versions of torch do not draw any then, until another recording has succeeded."""
    monkeypatch.setattr(
        captured_step.CapturedStep, "_run_watched", captured_step.CapturedStep._run_on_stream
    )
    options: dict[str, Any] = {"loss": "support.graph_losses.Waits", "dropout": 0.3}
    with simulated_cuda.simulated_cuda(gpus=2) as gpus:
        trainer, found = steps(tmp_path, GRAPH, device, **options)
        (remark,) = trainer.module.remarks()
        assert "cannot be recorded: " in remark
        assert "stream is capturing" in remark
        monkeypatch.undo()
        assert found == steps(tmp_path, PLAIN, device, **options)[1]
        assert not gpus.random.broken


def test_the_first_step_prepares_the_stream_of_the_recording(
    tmp_path: Path, simulated_gpu: Device
) -> None:
    """Autograd's nodes keep the stream that they were made on, and no recording may use another."""
    trainer = built(tmp_path, "cuda", data=vectors(), augmentation={}, gpu=GRAPH)
    ((images, labels),) = trainer.batches.take(1)
    assert trainer.module.captured is not None
    stream: Any = trainer.module.captured._stream
    before = stream.told
    trainer.module.step(images, labels)
    assert stream.told > before == 0


def test_a_batch_stays_as_it_is(tmp_path: Path) -> None:
    """What is copied for each repetition goes to memory of the graph's own."""
    trainer = built(tmp_path, "cuda", data=vectors(), augmentation={}, gpu=GRAPH)
    batches = list(trainer.batches.take(STEPS))
    before = [(images.clone(), labels.clone()) for images, labels in batches]
    for images, labels in batches:
        trainer.module.step(images, labels)
    torch.testing.assert_close(batches, before, rtol=0, atol=0)


def test_a_batch_of_another_shape_takes_a_plain_step(tmp_path: Path) -> None:
    losses = []
    for gpu in (GRAPH, PLAIN):
        trainer, _ = steps(tmp_path, gpu)
        for rows, (images, labels) in zip((10, 16), trainer.batches.take(2), strict=True):
            losses.append(trainer.module.step(images[:rows], labels[:rows]).item())
    assert losses[:2] == pytest.approx(losses[2:], rel=1e-3)


def test_a_new_value_of_the_loss_is_recorded_anew(tmp_path: Path) -> None:
    losses = []
    for gpu in (GRAPH, PLAIN):
        trainer, _ = steps(tmp_path, gpu, loss="support.graph_losses.Scaled")
        second = FilledSecondPhase({"scale": 3.0}, {}, 1.0, 1.0)
        trainer.module.enter_second_phase(second)
        losses.append([trainer.module.step(*b).item() for b in trainer.batches.take(STEPS)])
        assert trainer.module.remarks() == ()
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_schedules_of_the_loss_and_graphs_exclude_each_other(tmp_path: Path) -> None:
    trainer = built(tmp_path, "cuda", loss="support.graph_losses.Scaled", gpu=GRAPH)
    trainer.task.settings.schedules["scale"] = ValueSchedule(kind="linear", factor=2.0)
    trainer.build()
    assert trainer.module.remarks() == (
        "no CUDA graph, since the method changes values of the loss during the training",
    )


def test_a_run_that_is_resumed_records_anew_and_tells_of_what_it_gave_up(tmp_path: Path) -> None:
    trainer, _ = steps(tmp_path, GRAPH)
    trainer.module.load_state_dict(trainer.module.state_dict())
    assert trainer.module.captured is not None
    assert trainer.module.captured._graph is None
    options = {"loss": "support.graph_losses.Waits", "max_epochs": 1, "data": vectors()}
    run = built(tmp_path / "run", "cuda", augmentation={}, gpu=GRAPH, **options)
    result = run.run()
    assert result.remarks == ("no CUDA graph, since the step waits for the GPU",)
    again = built(tmp_path / "run", "cuda", augmentation={}, gpu=GRAPH, **options)
    assert again.run() == result, "what is read from its file"
