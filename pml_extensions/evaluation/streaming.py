"""Retrieval metrics over batches, and over the ranks of a process group."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pml_extensions._shared.numerics import world_size
from pml_extensions.evaluation.retrieval_metrics import RetrievalMetrics


class _Metric(torch.nn.Module):
    """What the class below needs of ``torchmetrics.Metric``, where torchmetrics is missing."""

    def __init__(self, **kwargs: bool) -> None:
        super().__init__()

    def add_state(self, name: str, default: list[Tensor]) -> None:
        setattr(self, name, default)

    def reset(self) -> None:
        for state in _STATES:
            setattr(self, state, [])


_STATES = ("embeddings", "labels", "indices")
_Base: Any
try:
    _Base = importlib.import_module("torchmetrics").Metric
except ImportError:
    _Base = _Metric


class StreamingRetrievalMetrics(_Base):
    """Collects batches on every rank, and scores all of them at once.

    Retrieval compares each sample with all others, so that no mean over batches or ranks is its
    value: ``compute`` gathers the samples of all ranks, of which each may have any number, and
    returns the value of the whole on every rank.

    Samplers repeat samples so that ranks have equally many. Given their ``indices`` in the data
    set, each sample counts once, in the order of the data set: the result is that of one process.
    Without them, if the last samples of ranks repeat the first ones as ``DistributedSampler`` does
    it, these are left out with a warning; other repeated samples count.

    Where torchmetrics is installed, this is a ``torchmetrics.Metric``; calling it is ``update``,
    since a batch has no value of its own. ``reset()`` forgets all samples.

    Args:
        metrics: What to compute, in self-retrieval; None: ``RetrievalMetrics()``.
    """

    def __init__(self, metrics: RetrievalMetrics | None = None) -> None:
        # Ours gathers, also where ranks have no or unequally many samples. A cached value on some
        # of the ranks would let the others wait for ever.
        super().__init__(sync_on_compute=False, compute_with_cache=False)
        self.metrics = metrics or RetrievalMetrics()
        for state in _STATES:
            self.add_state(state, [])

    def update(self, embeddings: Tensor, labels: Tensor, indices: Tensor | None = None) -> None:
        """Add a batch.

        Args:
            embeddings: Shape (N, D).
            labels: Integers, shape (N,); or (N, L) for L levels of labels.
            indices: Position of each sample in the data set, shape (N,).

        Raises:
            ValueError: There are not as many labels or indices as embeddings.
        """
        given = {"embeddings": embeddings, "labels": labels, "indices": indices}
        present = {name: values.detach() for name, values in given.items() if values is not None}
        for name, values in present.items():
            if len(values) != len(embeddings):
                raise ValueError(f"{len(embeddings)} embeddings have {len(values)} {name}.")
        for name, values in present.items():
            getattr(self, name).append(values)

    def forward(self, *args: Any, **kwargs: Any) -> None:
        """Add a batch, as ``update`` does."""
        self.update(*args, **kwargs)

    def compute(self) -> dict[str, float]:
        """Return the average of each metric over the samples of all ranks; call it on every rank.

        Raises:
            ValueError: No rank has samples, some batches have indices and others not, or a batch is
                none that ``RetrievalMetrics`` takes.
        """
        own = [torch.cat(getattr(self, name)) for name in _STATES if getattr(self, name)]
        device = own[0].device if own else "cpu"
        parts = [own]
        if world_size() > 1:
            parts = [[]] * world_size()
            torch.distributed.all_gather_object(parts, [tensor.cpu() for tensor in own])
        parts = [part for part in parts if part]
        if not parts:
            raise ValueError("There are no samples; call update before compute.")
        if any(len(part) != len(parts[0]) or len(part[0]) != len(part[-1]) for part in parts):
            raise ValueError("Some batches have indices and others not; give update them always.")
        if len(parts[0]) == 2:
            _leave_out_padding(parts)
        embeddings, labels, *indices = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
        if indices:
            first = torch.from_numpy(np.unique(indices[0].cpu(), return_index=True)[1])
            embeddings, labels = embeddings.cpu()[first], labels.cpu()[first]
        return dict(self.metrics(embeddings.to(device), labels.to(device)))


def _leave_out_padding(parts: list[list[Tensor]]) -> None:
    """Shorten the embeddings and labels of ranks that end as DistributedSampler pads them.

    It deals samples out in turn, and as many of the first ones again as fill the last round.
    """
    if len({len(part[0]) for part in parts}) > 1:
        return
    for count in range(len(parts) - 1, 0, -1):
        padded = parts[-count:]
        if all(
            torch.allclose(first[:1], last[-1:], rtol=1e-4)
            for start, end in zip(parts[:count], padded, strict=True)
            for first, last in zip(start, end, strict=True)
        ):
            warnings.warn(
                f"The last samples of {count} ranks repeat the first samples, as "
                "DistributedSampler's padding does, and are left out; give update the indices of "
                "the samples to be exact.",
                stacklevel=3,
            )
            parts[-count:] = [[tensor[:-1] for tensor in part] for part in padded]
            return
