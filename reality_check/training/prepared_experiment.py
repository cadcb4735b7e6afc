"""An experiment with its images, splits and methods."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from reality_check.config.method import Method
from reality_check.config.metrics import Stage
from reality_check.config.model import Model
from reality_check.config.protocol import Protocol
from reality_check.config.schema import Experiment
from reality_check.config.training import Training
from reality_check.data import ClassSplits, SampleSet, load_dataset, split_dataset
from reality_check.data.sanity import copies
from reality_check.data.tensors import InputShape, TensorShape
from reality_check.models.network import build_network
from reality_check.models.pipeline import input_shape
from reality_check.training.methods import FilledMethod, fill_method
from reality_check.training.module import freeze_batchnorm
from reality_check.utils.errors import UsageError


@dataclass(frozen=True)
class PreparedMethod:
    """A method with its model and training, or those of the experiment if it has none itself."""

    method: Method
    model: Model
    training: Training
    protocol: Protocol

    @property
    def name(self) -> str:
        """The name of the method."""
        return self.method.name

    def networks(self, stage: Stage) -> int:
        """Return how many networks a trial of a stage trains."""
        return 1 if stage is Stage.FINAL else self.protocol.split.folds

    def embedding_size(self, stage: Stage) -> int:
        """Return the embedding size of a network; the final one is as wide as the ensemble."""
        return self.training.embedding_size * self.protocol.split.folds // self.networks(stage)

    def filled(self, params: Mapping[str, Any]) -> FilledMethod:
        """Return the method with its sampled values filled in."""
        return fill_method(self.method, self.protocol, params, self.model)


class PreparedExperiment:
    """An experiment with its images and methods, which are loaded when they are first used.

    Args:
        experiment: the experiment.
        dataset: its data set, if that has been loaded already.
    """

    def __init__(self, experiment: Experiment, dataset: SampleSet | None = None) -> None:
        self.experiment = experiment
        self.protocol = experiment.protocol
        if dataset is not None:
            self.dataset = dataset  # so that the cached property does not load it

    @functools.cached_property
    def dataset(self) -> SampleSet:
        """The whole data set."""
        return load_dataset(self.experiment.dataset)

    @functools.cached_property
    def splits(self) -> ClassSplits:
        """The classes of every fold, and of the test half."""
        return split_dataset(self.dataset, self.protocol.split)

    @functools.cached_property
    def test_set(self) -> SampleSet:
        """The images of the test classes, which only scoring uses."""
        return self.dataset.subset(self.splits.test)

    @functools.cached_property
    def device(self) -> torch.device:
        """The device on which this process computes."""
        return pick_device(self.experiment.device)

    @functools.cached_property
    def _methods(self) -> dict[str, PreparedMethod]:
        """The prepared methods by name."""
        experiment = self.experiment
        return {
            method.name: PreparedMethod(
                method, experiment.model_of(method), experiment.training_of(method), self.protocol
            )
            for method in experiment.methods
        }

    def method(self, name: str) -> PreparedMethod:
        """Return the method of that name."""
        return self._methods[name]

    def parameters(self) -> dict[str, tuple[int, int]]:
        """Return the numbers of trained and of all parameters of a fold's network, by method.

        Searched values of the model have their defaults, or are at the middle of their ranges.
        """
        # The parameters of the trunk (trained, all) and of the embedder, by network: methods share
        # networks.
        counts: dict[str, tuple[int, int, int]] = {}
        parameters = {}
        for name, method in self._methods.items():
            model, training = method.model.filled({}), method.training
            shape, size = input_shape(self.dataset, training.augmentation), training.embedding_size
            still = training.freeze_batchnorm == "with_affine"
            key = f"{shape} {size} {still} {model!r}"
            if key not in counts:
                network = build_network(model, shape, size, seed=0, pretrained=False)
                if still:
                    freeze_batchnorm(network.trunk, with_affine=True)
                trained = sum(p.numel() for p in network.trunk.parameters() if p.requires_grad)
                rest = _count_parameters(network.embedder)
                counts[key] = trained, _count_parameters(network.trunk), rest
            trained, in_trunk, in_embedder = counts[key]
            rate = method.method.learning_rates.trunk
            rate = training.optimizers.trunk.lr if rate is None else rate
            # A trunk with a learning rate of 0 is not trained.
            trained = in_embedder + (0 if rate == 0 else trained)
            parameters[name] = trained, in_embedder + in_trunk
        return parameters

    def input_shape(self, method: str) -> InputShape:
        """Return the shape of a sample for that method's networks."""
        return input_shape(self.dataset, self._methods[method].training.augmentation)

    def describe_inputs(self) -> dict[str, Any]:
        """Return each method's input shape as plain data, to load networks without the images."""
        shapes = {name: self.input_shape(name) for name in self._methods}
        return {
            name: [list(shape.sizes), str(shape.dtype).removeprefix("torch.")]
            if isinstance(shape, TensorShape)
            else list(shape)
            for name, shape in shapes.items()
        }

    def describe_data(self, device: str | None = None) -> dict[str, Any]:
        """Return the facts about the data that a report needs.

        Args:
            device: the device of the workers, if this process does not train.
        """
        dataset, splits, test = self.dataset, self.splits, self.test_set
        shape = input_shape(dataset, self.protocol.training.augmentation)
        return {
            "name": self.experiment.dataset.name,
            "classes": dataset.num_classes,
            "images": len(dataset),
            "noun": dataset.noun,
            "origin": dataset.origin,
            "image_shape": list(dataset.samples.shape or ()),
            "input_shape": list(shape.sizes if isinstance(shape, TensorShape) else shape),
            "trainval_classes": len(splits.trainval),
            "test_classes": len(splits.test),
            "test_images": len(test),
            "queries": None if test.queries is None else int(test.queries.sum()),
            "lone_images": int((np.bincount(dataset.labels) == 1).sum()),
            "skipped": list(dataset.skipped),
            "copies": copies(dataset, splits.test),
            "folds": [[len(fold.train), len(fold.validation)] for fold in splits.folds],
            "device": device or str(self.device),
        }


def described_input(plain: Sequence[Any]) -> InputShape:
    """Return the shape of a sample from a value of :meth:`PreparedExperiment.describe_inputs`."""
    if isinstance(plain[0], list):
        return TensorShape(tuple(plain[0]), getattr(torch, plain[1]))
    height, width, channels = plain
    return height, width, channels


def _count_parameters(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def pick_device(name: str) -> torch.device:
    """Return the device of an experiment; ``auto`` is CUDA if there is a GPU, otherwise the CPU.

    If several processes train one network together, each of them has its own GPU.

    Raises:
        UsageError: the named device does not exist here.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda" and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(
            f"device {name!r} is not here; this machine has {torch.cuda.device_count()} CUDA "
            "devices. Write device: auto or cpu."
        )
    return device
