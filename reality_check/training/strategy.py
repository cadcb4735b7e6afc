"""The processes that train one network together: one, or all those of a process group."""

from __future__ import annotations

import warnings
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed, nn

from pml_extensions.distributed import gather_embeddings
from reality_check.utils.errors import UsageError

T = TypeVar("T")
BATCH_NORM = nn.modules.batchnorm._BatchNorm


class Strategy:
    """One process; :class:`DistributedStrategy` does the same with several."""

    rank = 0
    size = 1

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and decides."""
        return self.rank == 0

    def broadcast(self, value: T) -> T:
        """Return the main process's value, on all processes."""
        return value

    def local_batch_slice(self, count: int) -> slice:
        """Return which of ``count`` rows of a batch belong to this process."""
        return slice(0, count)

    def gather_rows(self, own: Tensor) -> Tensor:
        """Return the rows of all processes, concatenated."""
        return own

    def gather_with_gradient(self, own: Tensor) -> Tensor:
        """Return :meth:`gather_rows`, with the full batch's gradient for this process's rows."""
        return own

    def parallel(self, network: nn.Module) -> nn.Module:
        """Return the network, with gradients averaged over the processes."""
        return network

    def check_statistics(self, network: nn.Module) -> None:
        """Refuse a network in training mode that this strategy cannot train like one process."""


class DistributedStrategy(Strategy):
    """All processes of torch's default process group, on one global batch.

    Each process embeds its part of the batch; all compute the loss of the full batch, so that any
    loss and miner sees what one process would show it. The network's gradients are those of the
    full batch too, up to the order of floating-point sums.
    """

    def __init__(self) -> None:
        self.rank = distributed.get_rank()
        self.size = distributed.get_world_size()

    def broadcast(self, value: T) -> T:
        """Return the main process's value, on all processes; it must be plain data."""
        box: list[Any] = [value]
        distributed.broadcast_object_list(box, src=0)
        return box[0]

    def local_batch_slice(self, count: int) -> slice:
        """Return the rank's part of a batch."""
        if count % self.size:
            raise UsageError(
                f"batch_size={count} cannot be divided among {self.size} processes; write a "
                f"multiple of {self.size}."
            )
        part = count // self.size
        return slice(self.rank * part, (self.rank + 1) * part)

    def gather_rows(self, own: Tensor) -> Tensor:
        """Return the rows of all processes in the order of ranks; their numbers may differ."""
        boxes: list[Any] = [None] * self.size
        distributed.all_gather_object(boxes, own.detach().cpu())
        return torch.cat(boxes).to(own.device)

    def gather_with_gradient(self, own: Tensor) -> Tensor:
        """Return embeddings of the full batch, see :class:`pml_extensions.distributed`."""
        return gather_embeddings(own)

    def parallel(self, network: nn.Module) -> nn.Module:
        """Return the network in DistributedDataParallel.

        BatchNorm takes its statistics from the full batch (SyncBatchNorm, which needs CUDA).
        """
        if next(network.parameters()).is_cuda:
            network = nn.SyncBatchNorm.convert_sync_batchnorm(network)
        with warnings.catch_warnings():
            # The option that replaces broadcast_buffers is not in the oldest supported torch.
            warnings.simplefilter("ignore", FutureWarning)
            return nn.parallel.DistributedDataParallel(network, broadcast_buffers=False)

    def check_statistics(self, network: nn.Module) -> None:
        """Refuse BatchNorm in training mode that would take statistics from a part of the batch."""
        learns = any(isinstance(m, BATCH_NORM) and m.training for m in network.modules())
        if learns and not next(network.parameters()).is_cuda:
            raise UsageError(
                f"{self.size} processes on CPUs cannot share the statistics of BatchNorm; write "
                "training.freeze_batchnorm: true, choose a head without batch_norm, or leave out "
                "--processes-per-network."
            )
