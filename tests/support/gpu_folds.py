"""Small fold runs on any device."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import simulated_cuda
import torch

from reality_check.config import Model, Training
from reality_check.data import ImageSet, make_glyphs
from reality_check.data.images import Images
from reality_check.data.sample_set import SampleSet, TensorSet
from reality_check.data.tensors import Tensors
from reality_check.training.fold import FoldTask
from reality_check.training.methods import FilledMethod
from reality_check.training.trainer import Trainer

#: Every colour change, and some geometry.
COLOURFUL = {
    "horizontal_flip": 0.5,
    "brightness": 0.2,
    "contrast": 0.2,
    "saturation": 0.2,
    "hue": 0.1,
    "grayscale": 0.2,
}


def fold_run(
    folder: Path,
    device: str,
    lr: float = 0.01,
    *,
    loss: str = "NormalizedSoftmaxLoss",
    arguments: dict[str, Any] | None = None,
    miner: dict[str, Any] | None = None,
    data: SampleSet | None = None,
    dropout: float = 0.0,
    **changes: object,
) -> Trainer:
    """A fold run of ten training classes and six of validation.

    Args:
        folder: its own.
        device: where to train.
        lr: of all parts.
        loss: its name.
        arguments: of the loss.
        miner: as in a YAML.
        data: 16 classes; by default glyphs.
        dropout: before the embedder; drawn on the device.
        **changes: of the training.
    """
    data = glyphs() if data is None else data
    trunk = {"trunk": "conv4", "arguments": {"width": 16}, "pooling": "flatten"}
    part = {"name": "Adam", "lr": 0.0}
    training = Training.model_validate(
        {
            "batch_size": 16,
            "iterations_per_epoch": 4,
            "max_epochs": 3,
            "evaluate_every": 1,
            "freeze_batchnorm": False,
            "optimizers": {"trunk": part, "embedder": part, "loss": part},
            "augmentation": {"rotation": 10, "brightness": 0.2},
            "gpu": {"cuda_graph": False},
            **changes,
        }
    )
    settings = FilledMethod(
        name="m",
        loss=loss,
        arguments=arguments or {},
        miner=miner,
        samples_per_class=2,
        learning_rates=dict.fromkeys(("trunk", "embedder", "loss"), lr),
        loss_weight_decay=0.0,
        normalize_embeddings=True,
    )
    model = Model.model_validate(
        {
            "name": "tiny",
            **(trunk if isinstance(data, ImageSet) else {"trunk": "identity"}),
            "embedder": {"dropout": dropout} if dropout else None,
        }
    )
    task = FoldTask(settings, model, training, 16, network_seed=1, loss_seed=2)
    train, validation = data.subset(range(10)), data.subset(range(10, 16))
    return Trainer(task, train, validation, folder, torch.device(device), checkpoint_seconds=0)


def built(folder: Path, device: str, **options: Any) -> Trainer:
    """One that can take steps."""
    trainer = fold_run(folder, device, **options)
    trainer.build()
    return trainer


_simulation = ExitStack()


def glyphs() -> ImageSet:
    """What fold runs train on by default."""
    return make_glyphs(16, 8, 32, 0)


def glyphs_on_a_simulated_gpu() -> ImageSet:
    """The same, in a process of its own that is to see one."""
    _simulation.enter_context(simulated_cuda.simulated_cuda())
    return glyphs()


def vectors() -> TensorSet:
    """16 classes of 8 vectors."""
    draw, labels = np.random.default_rng(0), np.repeat(np.arange(16), 8)
    values = draw.normal(size=(16, 12))[labels] + draw.normal(size=(128, 12))
    samples = Tensors.from_array(values.astype(np.float32))
    return TensorSet(samples, labels, tuple(map(str, range(16))), "vectors")


def coloured(sizes: tuple[tuple[int, int], ...] = ((20, 20),)) -> ImageSet:
    """16 classes of 8 coloured images, of these sizes in turn."""
    draw, labels = np.random.default_rng(0), np.repeat(np.arange(16), 8)
    patterns = draw.uniform(0, 255, (16, 1, 1, 3))
    shapes = [sizes[n % len(sizes)] for n in range(len(labels))]
    pixels = [
        np.clip(patterns[label] + draw.normal(0, 60, (*shape, 3)), 0, 255).astype(np.uint8)
        for label, shape in zip(labels, shapes, strict=True)
    ]
    lengths = np.array([image.size for image in pixels])
    flat = np.concatenate([image.reshape(-1) for image in pixels])
    heights, widths = np.array(shapes).T
    images = Images(flat, np.cumsum(lengths) - lengths, heights, widths, 3)
    return ImageSet(images, labels, tuple(map(str, range(16))), "coloured")
