"""Losses over the batches of all ranks, with the gradients of training in one process."""

from __future__ import annotations

from typing import Any

import torch
from pytorch_metric_learning.losses import CrossBatchMemory
from pytorch_metric_learning.utils import common_functions as c_f
from pytorch_metric_learning.utils import distributed as pml_distributed
from torch import Tensor

from pml_extensions._shared.numerics import world_size

IndicesTuple = tuple[Tensor, ...]


class DistributedLossWrapper(pml_distributed.DistributedLossWrapper):
    """Computes a loss on the full batch, the batches of all ranks joined.

    It replaces PML's class of the same name. If the network is wrapped in DistributedDataParallel,
    which averages gradients over ranks,

    - the network gets the gradient of the full batch, as with PML's wrapper;
    - so do the parameters of the loss (proxies); with PML's wrapper their gradient is multiplied
      by world_size;
    - the value is the loss of the full batch; with PML's wrapper it is multiplied by world_size;
    - the full batch has the same order on every rank, rank 0 first (PML: own rank first). So
      losses that depend on the order agree, and the parameters of the loss get bit-identical
      gradients without DistributedDataParallel, if they are initialised equally.

    The wrapper itself may be wrapped in DistributedDataParallel, which initialises all ranks
    equally and changes no gradient. All ranks must have batches of equal size (``drop_last=True``).
    Mine with PML's DistributedMinerWrapper. Without a process group the loss is called directly.

    Args:
        loss: A loss or CrossBatchMemory, of PML or of this package.
        efficient: Must be False: in PML's efficient mode, pairs across ranks count less than pairs
            within a rank.

    Raises:
        TypeError: ``loss`` is neither a loss nor CrossBatchMemory.
        ValueError: ``efficient`` is True.
    """

    def __init__(self, loss: torch.nn.Module, efficient: bool = False) -> None:
        if efficient:
            raise ValueError(
                "efficient=True does not give the gradient of the full batch; leave it out, or "
                "take DistributedLossWrapper from pytorch_metric_learning.utils.distributed."
            )
        super().__init__(loss)

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor | None = None,
        indices_tuple: IndicesTuple | None = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
        enqueue_mask: Tensor | None = None,
    ) -> Any:
        """Return the loss of the full batch.

        Args:
            embeddings: Embeddings of this rank, shape (N, D).
            labels: Shape (N,).
            indices_tuple: Pairs or triplets from PML's DistributedMinerWrapper.
            ref_emb: Reference embeddings of this rank, shape (M, D); not for CrossBatchMemory.
            ref_labels: Shape (M,).
            enqueue_mask: Which samples enter a CrossBatchMemory, shape (N,).

        Returns:
            The loss, the same on each rank.

        Raises:
            ValueError: References were given to CrossBatchMemory.
        """
        has_memory = isinstance(self.loss, CrossBatchMemory)
        if has_memory and (ref_emb is not None or ref_labels is not None):
            raise ValueError(
                "CrossBatchMemory compares with its memory and takes no ref_emb and ref_labels; "
                "leave them out."
            )
        if world_size() > 1:
            if indices_tuple is not None:
                num_references = len(embeddings if ref_emb is None else ref_emb)
                indices_tuple = _in_order_of_ranks(indices_tuple, len(embeddings), num_references)
            # Tensors without gradient are gathered in the same way.
            labels, ref_labels, enqueue_mask = (
                None if tensor is None else gather_embeddings(c_f.to_device(tensor, embeddings))
                for tensor in (labels, ref_labels, enqueue_mask)
            )
            embeddings = gather_embeddings(embeddings)
            ref_emb = None if ref_emb is None else gather_embeddings(ref_emb)
        if has_memory:
            return self.loss(embeddings, labels, indices_tuple, enqueue_mask)
        return self.loss(embeddings, labels, indices_tuple, ref_emb, ref_labels)


def gather_embeddings(own: Tensor) -> Tensor:
    """Concatenate the embeddings of all ranks; gradients flow to the embeddings of this rank.

    Use it for losses that cannot be wrapped, between a network in DistributedDataParallel and the
    loss: each rank then computes the loss of the full batch. The gradient is multiplied by
    world_size, because DistributedDataParallel averages it over ranks afterwards. Multiplying the
    loss instead, as PML does, would also multiply the gradients of the loss's parameters.

    Args:
        own: Embeddings of this rank, shape (N, D), N the same on all ranks.

    Returns:
        Shape (world_size N, D), in the order of the ranks on every rank.
    """
    parts = [torch.empty_like(own) for _ in range(world_size())]
    torch.distributed.all_gather(parts, own.detach().contiguous())
    # all_gather has no gradient, so this rank's part is replaced by one that has.
    parts[torch.distributed.get_rank()] = _ScaledGradient.apply(own, len(parts))
    return torch.cat(parts)


class _ScaledGradient(torch.autograd.Function):
    """Identity whose gradient is multiplied by ``factor``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: int) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0] * ctx.factor, None


def _in_order_of_ranks(
    indices_tuple: IndicesTuple, num_embeddings: int, num_references: int
) -> IndicesTuple:
    """Convert indices from PML's order of the full batch, own rank first, to the order of ranks.

    Each rank has ``num_embeddings`` embeddings and ``num_references`` references.
    """
    # (anchor, positive, negative) or (anchor, positive, anchor, negative): the number of samples on
    # a rank that each tensor indexes. ``map`` ignores the fourth size for a triplet.
    third_size = num_references if len(indices_tuple) == 3 else num_embeddings
    sizes = (num_embeddings, num_references, third_size, num_references)
    return tuple(map(_reordered, indices_tuple, sizes))


def _reordered(index: Tensor, size: int) -> Tensor:
    """Convert one tensor of indices, where each rank has ``size`` samples."""
    own_rank = torch.distributed.get_rank()
    block, offset = index // size, index % size
    # Block 0 is this rank's; blocks 1, 2, ... are those of the other ranks, in order.
    rank = torch.where(block == 0, own_rank, torch.where(block <= own_rank, block - 1, block))
    return rank * size + offset
