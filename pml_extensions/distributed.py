"""Losses over the batches of all processes, with the gradients of one process."""

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
    """Computes a loss on the batches of all ranks, as one process with all of them would.

    It takes the place of PML's class of that name. Around the network stands
    DistributedDataParallel, which averages gradients over ranks; then

    - the network gets the gradient of the full batch, as with PML's wrapper;
    - the parameters of the loss (proxies) get it too, where PML's gives world_size times as much;
    - the value is that of the full batch, where PML's is world_size times as much;
    - the full batch is in the order of the ranks on every rank (PML: own rank first), so that
      losses which depend on the order agree, and the parameters of the loss get bit-identical
      gradients without DistributedDataParallel around it, as long as they started equal.

    DistributedDataParallel around the wrapper is allowed; it changes no gradient and makes the
    start equal. All ranks must have batches of equal size (``drop_last=True``).
    An ``indices_tuple`` comes from PML's DistributedMinerWrapper. Outside of a process group the
    loss is called as it is.

    Args:
        loss: A loss or CrossBatchMemory, of PML or of this package.
        efficient: Only False: with PML's efficient mode, pairs across ranks count less than pairs
            within one.

    Raises:
        TypeError: ``loss`` is neither.
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
            embeddings: Those of this rank, shape (N, D).
            labels: Shape (N,).
            indices_tuple: What PML's DistributedMinerWrapper returned.
            ref_emb: References of this rank, shape (M, D); not for CrossBatchMemory.
            ref_labels: Shape (M,).
            enqueue_mask: Which samples enter a CrossBatchMemory, shape (N,).

        Returns:
            What the loss returns, the same on each rank.

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
                references = len(embeddings if ref_emb is None else ref_emb)
                indices_tuple = _in_order_of_ranks(indices_tuple, len(embeddings), references)
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
    """Return the tensors of all ranks, one after the other, with a gradient for the own one.

    For losses that cannot be wrapped: between a network in DistributedDataParallel and the loss,
    each rank then computes the loss of the full batch. The gradient is multiplied by world_size,
    because the average over ranks comes after it. To multiply the loss instead, as PML does, would
    multiply the gradients of its parameters as well, which each rank has in full.

    Args:
        own: Embeddings of this rank, shape (N, D), N the same on all ranks.

    Returns:
        Shape (world_size N, D), in the order of the ranks on every rank.
    """
    parts = [torch.empty_like(own) for _ in range(world_size())]
    torch.distributed.all_gather(parts, own.detach().contiguous())
    parts[torch.distributed.get_rank()] = _ScaledGradient.apply(own, len(parts))
    return torch.cat(parts)


class _ScaledGradient(torch.autograd.Function):
    """Identity whose gradient is multiplied."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: int) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0] * ctx.factor, None


def _in_order_of_ranks(indices_tuple: IndicesTuple, size: int, references: int) -> IndicesTuple:
    """Translate positions in PML's full batch, own rank first, to positions in ours."""
    # (anchor, positive, negative) or (anchor, positive, anchor, negative).
    sizes = (size, references, references if len(indices_tuple) == 3 else size, references)
    return tuple(map(_translated, indices_tuple, sizes))


def _translated(index: Tensor, size: int) -> Tensor:
    rank = torch.distributed.get_rank()
    block, place = index // size, index % size
    # Blocks stand as own, 0, 1, ...; those before the own rank are one place late.
    of_rank = torch.where(block == 0, rank, torch.where(block <= rank, block - 1, block))
    return of_rank * size + place
