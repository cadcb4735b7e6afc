"""Training steps of one rank or of one process, for ``test_distributed.py``."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning import miners, reducers, regularizers
from pytorch_metric_learning.utils import distributed as pml_distributed
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from pml_extensions.distributed import DistributedLossWrapper
from pml_extensions.losses import (
    ChunkedSoftmax,
    ClassSampler,
    CrossBatchMemory,
    GradMLLoss,
    HeatedUpSoftmaxLoss,
    HISTLoss,
    NormalizedSoftmaxLoss,
    ProxyNCAPlusPlusLoss,
    StopGradientSoftmaxLoss,
    WarpedSoftmaxLoss,
)

WORLD_SIZE = 2
CLASSES, SIZE, STEPS = 9, 6, 3
#: Each rank's labels: one class in common, the others of one rank only, some of none.
LABELS = (torch.tensor([0, 1, 2, 0, 1, 2, 0, 1]), torch.tensor([2, 5, 7, 2, 5, 7, 2, 5]))
JOIN = 2.19684


def sampled(sparse_gradients: bool = False) -> dict[str, Any]:
    """Nine of ten classes, four at a time."""
    sampler = ClassSampler(0.9, sparse_gradients=sparse_gradients)
    return {"class_sampler": sampler, "softmax": ChunkedSoftmax(4)}


Make = Callable[[], Any]
#: Losses of which each sample's value depends on nothing else in the batch.
PER_SAMPLE: dict[str, Make] = {
    "normalized_softmax": lambda: NormalizedSoftmaxLoss(CLASSES, SIZE),
    "normalized_softmax_sampled": lambda: NormalizedSoftmaxLoss(CLASSES, SIZE, **sampled()),
    "normalized_softmax_negatives": lambda: NormalizedSoftmaxLoss(
        CLASSES, SIZE, class_sampler=ClassSampler(0.5, "negatives")
    ),
    "normalized_softmax_regularized": lambda: NormalizedSoftmaxLoss(
        CLASSES,
        SIZE,
        weight_regularizer=regularizers.RegularFaceRegularizer(),
        embedding_regularizer=regularizers.LpRegularizer(),
    ),
    "proxy_nca_plus_plus": lambda: ProxyNCAPlusPlusLoss(CLASSES, SIZE),
    "warped": lambda: WarpedSoftmaxLoss(CLASSES, SIZE, 2.5, 0.7, 1.3),
    "heated_up": lambda: HeatedUpSoftmaxLoss(CLASSES, SIZE, bias="scaled"),
    # In the first step between rank 0's softmax term and the mean: it must not join alone.
    "sgsl": lambda: StopGradientSoftmaxLoss(CLASSES, SIZE, join_threshold=JOIN),
    "sgsl_latch": lambda: StopGradientSoftmaxLoss(
        CLASSES, SIZE, join_mode="latch", join_threshold=JOIN
    ),
    "sgsl_sampled": lambda: StopGradientSoftmaxLoss(CLASSES, SIZE, join_mode="always", **sampled()),
    "pml_normalized_softmax": lambda: pml_losses.NormalizedSoftmaxLoss(CLASSES, SIZE),
}
#: Losses that need the full batch.
PER_BATCH: dict[str, Make] = {
    "heated_up_bn": lambda: HeatedUpSoftmaxLoss(CLASSES, SIZE, normalization="bn", bn_shift=True),
    "hist": lambda: HISTLoss(CLASSES, SIZE, tau=2.0, hidden_size=5),
    "grad_ml": lambda: GradMLLoss(),
    "grad_ml_all": lambda: GradMLLoss(quadruples="all", w=0.5),
    "grad_ml_memory": lambda: CrossBatchMemory(GradMLLoss(), SIZE, memory_size=40),
    "normalized_softmax_threshold": lambda: NormalizedSoftmaxLoss(
        CLASSES, SIZE, reducer=reducers.ThresholdReducer(low=5.0)
    ),
    "pml_proxy_anchor": lambda: pml_losses.ProxyAnchorLoss(CLASSES, SIZE),
    "pml_contrastive": lambda: pml_losses.ContrastiveLoss(),
}
#: Losses with pairs or triplets from a miner that sees the full batch.
MINED: dict[str, tuple[Make, Make]] = {
    "mined_contrastive": (pml_losses.ContrastiveLoss, miners.MultiSimilarityMiner),
    "mined_triplets": (
        lambda: pml_losses.TripletMarginLoss(margin=0.3),
        lambda: miners.TripletMarginMiner(margin=0.3),
    ),
    "mined_normalized_softmax": (
        PER_SAMPLE["normalized_softmax"],
        lambda: miners.TripletMarginMiner(margin=0.3),
    ),
}
#: Losses that compare with references, one with a miner.
REFERENCED: dict[str, tuple[Make, Make]] = {
    "grad_ml_references": (GradMLLoss, lambda: None),
    "mined_references": (pml_losses.TripletMarginLoss, miners.MultiSimilarityMiner),
}
#: DistributedDataParallel takes sparse gradients of torch.nn.Embedding only.
SPARSE: dict[str, Make] = {
    "normalized_softmax_sparse": lambda: NormalizedSoftmaxLoss(
        CLASSES, SIZE, **sampled(sparse_gradients=True)
    ),
    "hist_sparse": lambda: HISTLoss(
        CLASSES, SIZE, hidden_size=5, class_sampler=ClassSampler(0.9, sparse_gradients=True)
    ),
}
LOSSES: dict[str, Make] = {
    **SPARSE,
    **PER_SAMPLE,
    **PER_BATCH,
    **{name: make for name, (make, _) in (MINED | REFERENCED).items()},
}
WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "wrapper": DistributedLossWrapper,
    "ddp_of_wrapper": lambda loss: DistributedDataParallel(DistributedLossWrapper(loss)),
    "ddp": DistributedDataParallel,
    "pml_wrapper": pml_distributed.DistributedLossWrapper,
}


def cases() -> Iterator[tuple[str, str]]:
    """Name each loss with each wrapper that it is run in on two ranks."""
    for name, make in LOSSES.items():
        yield name, "wrapper"
        if any(p.requires_grad for p in make().parameters()):
            # Without parameters there is nothing to wrap.
            if name not in SPARSE:
                yield name, "ddp_of_wrapper"
            if name not in (*SPARSE, *MINED):
                yield name, "ddp"
            yield name, "pml_wrapper"


def batch(ranks: slice) -> tuple[Tensor, Tensor]:
    """Return images and labels of some ranks."""
    generator = torch.Generator().manual_seed(5)
    images = torch.randn(WORLD_SIZE, 8, 10, generator=generator, dtype=torch.float64)
    return images[ranks].flatten(end_dim=1), torch.cat(LABELS[ranks])


@contextmanager
def parameters_in_float64() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def run(name: str, rank: int | None = None, wrapper: str = "wrapper") -> list[dict[str, Any]]:
    """Return value, gradients and buffers of each training step.

    Args:
        name: Which loss.
        rank: Which of the two ranks this process is; None: one process with the full batch.
        wrapper: What stands around the loss on two ranks.
    """
    images, labels = batch(slice(None) if rank is None else slice(rank, rank + 1))
    with parameters_in_float64():
        torch.manual_seed(0)
        network: Any = torch.nn.Linear(10, SIZE)
        loss = LOSSES[name]()
        miner = (MINED | REFERENCED)[name][1]() if name in MINED | REFERENCED else None
    called = loss
    if rank is not None:
        network = DistributedDataParallel(network)
        called = WRAPPERS[wrapper](loss)
        miner = miner and pml_distributed.DistributedMinerWrapper(miner)
    optimizer = torch.optim.SGD([*network.parameters(), *loss.parameters()], lr=0.1)
    steps = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        embeddings = network(images)
        # Another number of references than of embeddings.
        references = (network(0.9 * images[::2]), labels[::2]) if name in REFERENCED else ()
        mined = miner and miner(embeddings, labels, *references)
        value = called(embeddings, labels, mined, *references)
        value.backward()
        modules = {"network": getattr(network, "module", network), "loss": loss}
        steps.append({"value": value.detach(), **_state(torch.nn.ModuleDict(modules))})
        optimizer.step()
    return steps


def _state(modules: torch.nn.Module) -> dict[str, dict[str, Tensor]]:
    gradients = {n: p.grad for n, p in modules.named_parameters() if p.grad is not None}
    return {
        "sparse": {n: torch.tensor(g.is_sparse) for n, g in gradients.items()},
        "gradients": {n: g.to_dense().clone() for n, g in gradients.items()},
        "buffers": {n: b.clone() for n, b in modules.named_buffers()},
    }


def be_rank(words: tuple[str, ...]) -> int:
    """Run all cases as rank words[0] and save what they gave in the folder words[1]."""
    rank, folder = int(words[0]), Path(words[1])
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo",
        init_method=(folder / "rendezvous").as_uri(),
        rank=rank,
        world_size=WORLD_SIZE,
        timeout=datetime.timedelta(seconds=60),
    )
    found = {case: run(case[0], rank, case[1]) for case in cases()}
    torch.save(found, folder / f"rank{rank}.pt")
    torch.distributed.barrier()
    # Gloo's threads may abort the interpreter while it shuts down (PyTorch's issue 190489).
    os._exit(0)
