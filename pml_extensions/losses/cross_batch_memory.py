"""PML's cross-batch memory, extended to the tuple losses of this package."""

from __future__ import annotations

from typing import Any

import torch
from pytorch_metric_learning import losses as pml_losses
from torch import Tensor

from .._shared.numerics import is_recomputing

IndicesTuple = tuple[Tensor, ...]


class CrossBatchMemory(pml_losses.CrossBatchMemory):
    """Compares each batch with the embeddings of past batches, kept in a queue.

    "Cross-Batch Memory for Embedding Learning" (Wang et al., CVPR 2020). It is used like PML's
    class of the same name and supports the same losses and :class:`GradMLLoss`. PML checks the name
    of the loss's class and refuses all others, subclasses included; override ``supported_losses``
    to add one.

    Differences from PML (2.9): an ``indices_tuple`` that was mined within the batch indexes the
    batch, but PML uses its positives and negatives as indices into the memory, which is correct for
    the first batch only; here they are converted. A checkpoint stores the position in the queue.
    Half-precision batches do not lower the precision of a float32 memory.

    Args:
        loss: The loss to be wrapped.
        embedding_size: Dimension of the embeddings.
        memory_size: Number of embeddings in the queue.
        miner: PML miner that mines pairs or triplets of batch and memory; None uses all pairs.
        **kwargs: PML's ``collect_stats``.

    Raises:
        Exception: The loss is not supported (raised by PML).
    """

    @staticmethod
    def supported_losses() -> list[str]:
        """Return the class names of the losses that can be wrapped."""
        return [*pml_losses.CrossBatchMemory.supported_losses(), "GradMLLoss"]

    def forward(self, embeddings: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Add the batch to the memory and return the loss of the batch against the memory.

        Args:
            embeddings: Shape (N, D).
            *args: PML's ``labels``, shape (N,), ``indices_tuple`` (mined within the batch, or None)
                and ``enqueue_mask`` (samples that are added to the memory), shape (N,).
            **kwargs: The same arguments by name.
        """
        if is_recomputing():
            raise RuntimeError(
                "torch.utils.checkpoint runs CrossBatchMemory twice, which would add the batch to "
                "the memory twice; checkpoint the network alone."
            )
        dtype = torch.promote_types(self.embedding_memory.dtype, embeddings.dtype)
        loss: Tensor = super().forward(embeddings.to(dtype), *args, **kwargs)
        return loss

    def get_extra_state(self) -> Tensor:
        """Return the queue's next position and whether it is full, for a checkpoint."""
        return torch.tensor([self.queue_idx, self.has_been_filled])

    def set_extra_state(self, state: Tensor) -> None:
        """Load the queue's position and whether it is full from a checkpoint."""
        self.queue_idx, self.has_been_filled = state.tolist()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """Load the memory; a missing position in the queue counts as a missing key."""
        super()._load_from_state_dict(state_dict, prefix, *args)
        if f"{prefix}_extra_state" not in state_dict:
            missing_keys = args[2]  # entries raise an error unless strict=False
            missing_keys.append(
                "the checkpoint does not store the position in the queue of CrossBatchMemory (it "
                "was saved by PML's class or by an older version); load it with strict=False, and "
                "call reset_queue()."
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
        """Return the pairs or triplets for the loss; called by ``forward``."""
        if input_indices_tuple is not None:
            memory_index = self.curr_batch_idx  # of each sample of the batch
            # (anchor, positive, negative) or (anchor, positive, anchor, negative).
            a, p, *anchors, n = input_indices_tuple
            input_indices_tuple = (a, memory_index[p], *anchors, memory_index[n])
        indices: IndicesTuple = super().create_indices_tuple(
            embeddings, labels, E_mem, L_mem, input_indices_tuple, do_remove_self_comparisons
        )
        return indices
