"""The processes that train one network together: a single one, or a process group."""

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
    """Training by a single process; :class:`DistributedStrategy` is for several processes."""

    rank = 0
    size = 1

    @property
    def is_main(self) -> bool:
        """Whether this process is the one that writes files and makes decisions."""
        return self.rank == 0

    def broadcast(self, value: T) -> T:
        """Return the main process's value, on all processes."""
        return value

    def local_batch_slice(self, count: int) -> slice:
        """Return the slice of the ``count`` rows of a batch that this process embeds."""
        return slice(0, count)

    def gather_rows(self, local_rows: Tensor) -> Tensor:
        """Return the rows of all processes, concatenated."""
        return local_rows

    def gather_with_gradient(self, local_rows: Tensor) -> Tensor:
        """Return the rows of all processes; this process's rows get the full batch's gradient."""
        return local_rows

    def parallel(self, network: nn.Module) -> nn.Module:
        """Return the network, wrapped so that gradients are averaged over the processes."""
        return network

    def check_statistics(self, network: nn.Module) -> None:
        """Refuse a network in training mode that one process would train differently."""


class DistributedStrategy(Strategy):
    """Training by all processes of torch's default process group, on one global batch.

    Each process embeds its part of the batch, and all of them compute the loss of the full batch,
    so that losses and miners see the same as with one process. The network's gradients are those of
    the full batch too, up to the order of floating-point sums.
    """

    def __init__(self) -> None:
        self.rank = distributed.get_rank()
        self.size = distributed.get_world_size()

    def broadcast(self, value: T) -> T:
        """Return the main process's value, on all processes; it must be plain data."""
        values: list[Any] = [value]
        distributed.broadcast_object_list(values, src=0)
        return values[0]

    def local_batch_slice(self, count: int) -> slice:
        """Return the slice of a batch that this process embeds.

        Raises:
            UsageError: the batch cannot be divided equally.
        """
        if count % self.size:
            raise UsageError(
                f"batch_size={count} cannot be divided among {self.size} processes; write a "
                f"multiple of {self.size}."
            )
        part = count // self.size
        return slice(self.rank * part, (self.rank + 1) * part)

    def gather_rows(self, local_rows: Tensor) -> Tensor:
        """Return the rows of all processes in the order of ranks; their numbers may differ."""
        gathered: list[Any] = [None] * self.size
        distributed.all_gather_object(gathered, local_rows.detach().cpu())
        return torch.cat(gathered).to(local_rows.device)

    def gather_with_gradient(self, local_rows: Tensor) -> Tensor:
        """Return the embeddings of the full batch, see :mod:`pml_extensions.distributed`."""
        return gather_embeddings(local_rows)

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
        """Refuse BatchNorm in training mode if its statistics would be of a part of the batch.

        Raises:
            UsageError: the network has such a layer.
        """
        has_batchnorm = any(isinstance(m, BATCH_NORM) and m.training for m in network.modules())
        if has_batchnorm and not next(network.parameters()).is_cuda:
            raise UsageError(
                f"{self.size} processes on CPUs cannot share the statistics of BatchNorm; write "
                "training.freeze_batchnorm: true, choose a head without batch_norm, or leave out "
                "--processes-per-network."
            )
