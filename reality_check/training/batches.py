"""Augmented training batches, which depend on the seed only, even if the training was resumed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pml_extensions.losses import ClassSampler
from reality_check.data.augmentation.augment import Augmentation
from reality_check.data.augmentation.vectors import VectorAugmentation
from reality_check.data.batch_sampler import build_sampler
from reality_check.data.sample_set import SampleSet
from reality_check.data.tensors import InputShape
from reality_check.models.pipeline import Pipeline
from reality_check.training.fold import FoldTask
from reality_check.training.strategy import Strategy
from reality_check.utils.seeds import derive


class Batches:
    """The batches of one fold run.

    Args:
        samples: the samples of the training classes.
        augmentation: the changes of each sample.
        shape: the shape of the network's input.
        strategy: the processes that share each batch.

    Raises:
        UsageError: the batch does not fit the data.
    """

    def __init__(
        self,
        task: FoldTask,
        samples: SampleSet,
        augmentation: Augmentation | VectorAugmentation,
        shape: InputShape,
        device: torch.device,
        strategy: Strategy,
    ) -> None:
        (self._size,) = task.training.batch_sizes
        self._sampler = build_sampler(
            samples.labels,
            self._size,
            task.settings.samples_per_class,
            derive(task.network_seed, "batches"),
        )
        self._augmentation = augmentation
        self._generator = torch.Generator().manual_seed(derive(task.network_seed, "augmentation"))
        self._pipeline = Pipeline(samples, augmentation, shape, device)
        self.labels = torch.from_numpy(samples.labels).to(device)
        self._strategy = strategy

    def take(self, count: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the next ``count`` batches: this process's images, and the labels of all images.

        No batch is drawn in advance, so a checkpoint after the last one contains the whole state.
        """
        batches_at_once = self._pipeline.batches_at_once(self._size)
        for done in range(0, count, batches_at_once):
            images, labels = self._take_together(min(batches_at_once, count - done))
            # ``labels`` has a row for each batch, ``images`` has them one after the other.
            yield from zip(images.split(len(images) // len(labels)), labels, strict=True)

    def _take_together(self, count: int) -> tuple[Tensor, Tensor]:
        """Return several batches at once, which takes no longer than one if operations are small.

        Returns:
            The images of this process, (count x B, C, H, W), where B is their number in a batch,
            and the labels of all images, (count, N).
        """
        # The indices of the samples, (count, N), and the random numbers for each of them.
        indices = np.stack([self._sampler.next_batch() for _ in range(count)])
        draws = self._augmentation.draw(indices.size, self._generator).reshape(*indices.shape, -1)
        local_slice = self._strategy.local_batch_slice(indices.shape[1])
        local_indices, local_draws = indices[:, local_slice], draws[:, local_slice]
        flat_draws = local_draws.reshape(local_indices.size, local_draws.shape[2])
        images = self._pipeline.training_batch(local_indices.reshape(-1), flat_draws)
        labels = self.labels[torch.from_numpy(indices).to(self.labels.device, non_blocking=True)]
        return images, labels

    def set_classes_per_step(self, loss: nn.Module) -> None:
        """Give every class sampler of a loss the number of classes in a batch.

        Counting them in each step would wait for the GPU.
        """
        for part in loss.modules():
            if isinstance(part, ClassSampler):
                part.classes_per_step = self._sampler.classes_per_batch

    def evaluation_batches(self, rows: np.ndarray) -> Iterator[Tensor]:
        """Yield batches of the training samples at ``rows``, preprocessed as in an evaluation."""
        return self._pipeline.evaluation_batches(rows)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the sampler and of the random numbers."""
        return {"sampler": self._sampler.state_dict(), "generator": self._generator.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned."""
        self._sampler.load_state_dict(state["sampler"])
        self._generator.set_state(state["generator"])
