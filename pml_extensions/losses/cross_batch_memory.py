"""PML's cross-batch memory, for the tuple losses of this package too."""

from __future__ import annotations

from typing import Any

import torch
from pytorch_metric_learning import losses as pml_losses
from torch import Tensor

from .._shared.numerics import is_recomputing

IndicesTuple = tuple[Tensor, ...]


class CrossBatchMemory(pml_losses.CrossBatchMemory):
    """Pairs each batch with the embeddings of past batches, kept in a queue.

    "Cross-Batch Memory for Embedding Learning" (Wang et al., CVPR 2020). It is used as PML's class
    of that name, takes all the losses that one takes, and :class:`GradMLLoss`. PML refuses any
    other class by its name, subclasses included; override ``supported_losses`` to add one.

    What is fixed here: an ``indices_tuple`` that was mined within the batch names positives and
    negatives by their place in the batch, while the loss looks for them in the memory. PML (2.9)
    reads the one as the other, which is right for the first batch only; here they are translated.
    A checkpoint holds how far the memory is filled, and half-precision batches leave a float32
    memory its digits.

    Args:
        loss: The loss to be wrapped.
        embedding_size: Size of the embeddings.
        memory_size: How many embeddings are kept.
        miner: PML miner that chooses pairs or triplets of batch and memory; None takes all pairs.
        **kwargs: PML's ``collect_stats``.

    Raises:
        Exception: The loss is not supported (as PML raises it).
    """

    @staticmethod
    def supported_losses() -> list[str]:
        """Return the names of the classes of losses that can be wrapped."""
        return [*pml_losses.CrossBatchMemory.supported_losses(), "GradMLLoss"]

    def forward(self, embeddings: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the loss of the batch and the memory, which then holds the batch.

        Args:
            embeddings: Shape (N, D).
            *args: Labels, shape (N,); what a miner found in the batch, or None; which samples
                enter the memory and are compared with (``enqueue_mask``), shape (N,).
            **kwargs: The same by name.
        """
        if is_recomputing():
            raise RuntimeError(
                "torch.utils.checkpoint computes CrossBatchMemory twice, which would remember the "
                "batch twice; checkpoint the network alone."
            )
        dtype = torch.promote_types(self.embedding_memory.dtype, embeddings.dtype)
        loss: Tensor = super().forward(embeddings.to(dtype), *args, **kwargs)
        return loss

    def get_extra_state(self) -> Tensor:
        """Return where the next embedding goes, and whether the memory is full."""
        return torch.tensor([self.queue_idx, self.has_been_filled])

    def set_extra_state(self, state: Tensor) -> None:
        """Take both over from a checkpoint."""
        self.queue_idx, self.has_been_filled = state.tolist()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        if f"{prefix}_extra_state" not in state_dict:
            missing_keys = args[2]  # which strict=False lets pass
            missing_keys.append(
                "the checkpoint does not say where in its memory CrossBatchMemory continues (PML's "
                "class saved it, or an older version); load it with strict=False, and call "
                "reset_queue()."
            )

    def create_indices_tuple(
        self,
        embeddings: Tensor,
        labels: Tensor,
        E_mem: Tensor,
        L_mem: Tensor,
        input_indices_tuple: IndicesTuple | None,
        do_remove_self_comparisons: bool,
    ) -> IndicesTuple:
        """Return what pairs or triplets the loss gets; called by ``forward``."""
        if input_indices_tuple is not None:
            in_memory = self.curr_batch_idx
            if len(input_indices_tuple) == 3:
                a, p, n = input_indices_tuple
                input_indices_tuple = (a, in_memory[p], in_memory[n])
            else:
                a1, p, a2, n = input_indices_tuple
                input_indices_tuple = (a1, in_memory[p], a2, in_memory[n])
        indices: IndicesTuple = super().create_indices_tuple(
            embeddings, labels, E_mem, L_mem, input_indices_tuple, do_remove_self_comparisons
        )
        return indices
