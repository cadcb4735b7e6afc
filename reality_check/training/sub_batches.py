"""Batches that are embedded in parts, with the gradients of the whole batch.

If a loss is the mean of its values on the parts, since it compares no samples, each part is trained
with by itself (gradient accumulation). For other losses every part is embedded twice (GradCache:
"Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup", 2021).
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from reality_check.config.training import Training
from reality_check.models.network import Network
from reality_check.training.fold import FoldTask
from reality_check.training.layers import checkpoint_activations
from reality_check.training.methods import SAMPLES_PER_CLASS, loss_value, toy_labels
from reality_check.training.plain_attributes import PlainAttributes
from reality_check.training.strategy import BATCH_NORM
from reality_check.utils import checkpoints
from reality_check.utils.errors import UsageError

#: Largest relative difference between a batch and the mean of its parts in an exact accumulation.
_TOLERANCE = 1e-5
#: Size of the batches with which a loss is measured, and steps towards small values of the loss.
_MEASURED, _STEPS = 64, 50


@dataclass(frozen=True)
class SubBatches:
    """Sets the gradients of batches that are embedded in parts.

    Attributes:
        size: the largest number of samples that this process embeds at once.
        accumulates: whether gradient accumulation is exact, see :func:`accumulates`; otherwise
            GradCache is used.
        embed: returns the embeddings of this process's samples.
        backward: sets the gradients of a loss, from such embeddings, the labels of all processes
            and a factor of the loss; it returns their product.
        network: the network, perhaps in DistributedDataParallel.
    """

    size: int
    accumulates: bool
    embed: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor, float], Tensor]
    network: nn.Module

    def set_gradients(self, images: Tensor, labels: Tensor) -> Tensor:
        """Set all gradients of a batch, and return its loss; see ``TrainingModule.step``."""
        set_gradients = self._accumulate if self.accumulates else self._grad_cache
        return set_gradients(images, labels)

    def _accumulate(self, images: Tensor, labels: Tensor) -> Tensor:
        total = torch.zeros((), device=images.device)
        # A row of labels for each process, which embeds a part of its own at the same time.
        rows = labels.unflatten(0, (-1, len(images))).split(self.size, dim=1)
        for part, part_labels in zip(images.split(self.size), rows, strict=True):
            with self._context(part_labels is rows[-1]):
                share = len(part) / len(images)
                total += self.backward(self.embed(part), part_labels.flatten(), share)
        return total

    def _grad_cache(self, images: Tensor, labels: Tensor) -> Tensor:
        parts, device = images.split(self.size), images.device
        with torch.no_grad():
            cached = [(checkpoints.random_states(device), self.embed(part)) for part in parts]
        leaf = torch.cat([embeddings for _, embeddings in cached]).requires_grad_()
        leaf.grad = torch.zeros_like(leaf)
        # As without parts, the embeddings are not a leaf, so that losses may change them in place.
        value = self.backward(leaf.clone(), labels, 1.0)
        after = checkpoints.random_states(device)
        gradients = leaf.grad.split(self.size)
        for part, (state, _), gradient in zip(parts, cached, gradients, strict=True):
            checkpoints.restore_random_states(state, device)
            with self._context(part is parts[-1]):
                embeddings = self.embed(part)
                if embeddings.requires_grad:  # a network may have no trained parameters
                    embeddings.backward(gradient)
        checkpoints.restore_random_states(after, device)
        return value

    def _context(self, is_last: bool) -> Any:
        """Return a context in which processes average gradients only if it is that of the last."""
        no_sync = getattr(self.network, "no_sync", contextlib.nullcontext)
        return contextlib.nullcontext() if is_last else no_sync()


def accumulates(task: FoldTask, loss: nn.Module, num_classes: int) -> bool:
    """Measure whether gradient accumulation is exact for the loss of a task with sub-batches.

    Value and gradients of a batch are compared with the mean over its parts: for random embeddings,
    and for wrong to right ones of a trained state, so that parts of a batch, and samples of a part,
    have large and small losses. If in doubt, the answer is no: with a miner, after an error, if the
    state of the loss changes, or if the method changes values of the loss during the training.

    Args:
        task: the task.
        loss: the loss, on the CPU and as at the start of the training; a copy is measured.
        num_classes: the number of classes of the loss.
    """
    filled, second = task.settings, task.settings.second_phase
    changes = filled.schedules or (second and (second.arguments or second.factors))
    size = task.training.sub_batch_size
    if size is None or filled.miner or changes:
        return False
    with torch.random.fork_rng(devices=[]), contextlib.suppress(Exception):
        torch.manual_seed(0)
        labels = toy_labels(_MEASURED, filled.samples_per_class or SAMPLES_PER_CLASS, num_classes)
        labels = labels[torch.randperm(len(labels))]
        embeddings = torch.randn(len(labels), task.embedding_size)
        size = min(size, len(labels) // 2 + 1)
        return _is_mean_of_parts(copy.deepcopy(loss), labels, size, embeddings)
    return False


def _is_mean_of_parts(loss: nn.Module, labels: Tensor, size: int, embeddings: Tensor) -> bool:
    """Compare batches with the mean over their parts, at first and in a trained state."""
    attributes = PlainAttributes({"loss": loss}, torch.device("cpu"))
    buffers = checkpoints.clone([*loss.buffers()])
    parameters = [parameter for parameter in loss.parameters() if parameter.requires_grad]

    def outcome(embeddings: Tensor, size: int) -> list[Tensor]:
        """Return the mean of the loss over parts, and its gradients."""
        leaf = nn.functional.normalize(embeddings).requires_grad_()
        parts = zip(leaf.split(size), labels.split(size), strict=True)
        values = [loss_value(loss, None, part.clone(), own) * len(own) for part, own in parts]
        value = torch.stack(values).sum() / len(labels)
        return [value, *torch.autograd.grad(value, [leaf, *parameters], materialize_grads=True)]

    def agrees(embeddings: Tensor) -> bool:
        pairs = zip(outcome(embeddings, len(labels)), outcome(embeddings, size), strict=True)
        return all((whole - mean).norm() <= _TOLERANCE * whole.norm() for whole, mean in pairs)

    if not agrees(embeddings):
        return False
    fitted = embeddings.clone().requires_grad_()
    optimizer = torch.optim.Adam([fitted, *parameters], lr=0.1)
    for _ in range(_STEPS):
        optimizer.zero_grad()
        loss_value(loss, None, nn.functional.normalize(fitted), labels).backward()
        optimizer.step()
    # From those of other samples, which give large losses, to the fitted ones, with small losses.
    right = fitted.detach()
    between = torch.lerp(right.flip(0), right, torch.linspace(0, 1, len(labels))[:, None])
    is_unchanged = all(map(torch.equal, buffers, loss.buffers()))
    return agrees(between) and is_unchanged and not any(attributes.state_dict().values())


def save_memory(network: Network, training: Training) -> None:
    """Switch on activation checkpointing, if asked for, and check what sub-batches need.

    Raises:
        UsageError: a BatchNorm would learn its statistics from parts of a batch, or twice; or the
            trunk has no way to compute activations again.
    """
    parts = parts_with_statistics(network, training)
    size = training.sub_batch_size
    if size is not None and parts:
        raise UsageError(
            f"training.sub_batch_size={size}: a BatchNorm of the {parts[0]} would take its "
            "statistics from parts of batches; write training.freeze_batchnorm: true and no "
            "batch_norm after the trunk, or sub_batch_size: null."
        )
    if training.activation_checkpointing:
        if "trunk" in parts:
            raise UsageError(
                "training.activation_checkpointing: the BatchNorm of the trunk would take its "
                "statistics twice; write training.freeze_batchnorm: true, or false here."
            )
        checkpoint_activations(network.trunk)


def parts_with_statistics(network: Network, training: Training) -> list[str]:
    """Return which of trunk, head and embedder have a BatchNorm that learns its statistics."""
    return [
        name
        for name, part in network.named_children()
        if any(isinstance(module, BATCH_NORM) for module in part.modules())
        and not (name == "trunk" and training.freeze_batchnorm)
    ]
