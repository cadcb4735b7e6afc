"""One plain training loop for all figures; finished trainings are kept in a folder.

The harness trains on some classes and measures on others, with losses compared at equal budgets.
The figures here are pictures of what one loss does, most of them on the classes it was trained on,
so they need no folds and no search: a network, a loss, a number of epochs, a seed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from examples.paper_figures.images import Images
from reality_check.data import ClassBalancedSampler

#: How much is trained: ``quick`` for seconds at made-up images, ``default`` for minutes on one
#: core, ``full`` for the networks, images and epochs of the paper.
Budget = Literal["quick", "default", "full"]
#: Called after each epoch, and before the first: what to keep of the state.
Measure = Callable[[nn.Module, nn.Module], float]

_EVALUATED_AT_ONCE = 1000


class Diverged(Exception):
    """A loss became NaN or infinite."""


@dataclass(frozen=True)
class Settings:
    """How a figure is computed.

    Args:
        budget: how much is trained.
        folder: its ``runs/`` keeps finished trainings.
    """

    budget: Budget = "default"
    folder: Path = Path("figures")


@dataclass(frozen=True)
class Phase:
    """A stretch of a training.

    Args:
        epochs: passes over the images.
        lr: learning rate of the network, by Adam.
        loss_lr: that of the loss's own parameters; None: the same.
        values: what ``loss.set_phase`` gets at the start.
    """

    epochs: int
    lr: float = 1e-3
    loss_lr: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Training:
    """All that decides how a training comes out, besides the images.

    Args:
        title: in lines of progress.
        network: class of the network, called with ``embedding_size`` and ``network_arguments``.
        loss: class of the loss, called with ``num_classes``, ``embedding_size`` and
            ``loss_arguments``.
        embedding_size: D.
        phases: one after the other.
        network_arguments: by name.
        loss_arguments: by name.
        seed: of weights and batches.
        batch_size: images of a batch; what is left of an epoch is dropped.
        samples_per_class: images of each class of a batch; None: batches are drawn regardless.
    """

    title: str
    network: Callable[..., nn.Module]
    loss: Callable[..., nn.Module]
    embedding_size: int
    phases: tuple[Phase, ...]
    network_arguments: Mapping[str, Any] = field(default_factory=dict)
    loss_arguments: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    batch_size: int = 128
    samples_per_class: int | None = None


@dataclass
class Trained:
    """What a training leaves.

    Args:
        network: on the device it was trained on, in evaluation mode.
        loss: in evaluation mode.
        history: what ``measure`` returned, before the first epoch and after each.
        diverged: epoch in which the loss became NaN or infinite; None: it did not.
    """

    network: nn.Module
    loss: nn.Module
    history: list[float] = field(default_factory=list)
    diverged: int | None = None

    def embed(self, images: Images) -> Tensor:
        """Return the embeddings of images, float32 on the CPU, shape (N, D)."""
        return embed(self.network, images)


def train(
    training: Training, images: Images, settings: Settings, measure: Measure | None = None
) -> Trained:
    """Train, or read a training of the same settings from ``settings.folder / "runs"``.

    Args:
        training: what to train.
        images: what on.
        settings: where trainings are kept.
        measure: called after each epoch; its values are kept.

    Raises:
        Diverged: the loss became NaN or infinite, and no ``measure`` watches that happen.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    file = settings.folder / "runs" / f"{_key(training, images, device)}.pt"
    with torch.random.fork_rng(devices=[]):
        run = _begin(training, images, device)
        if file.exists():
            _restore(run, torch.load(file, map_location=device, weights_only=True))
        else:
            _train_epochs(run, training, images, measure)
            _save(run, file)
    if run.diverged is not None and measure is None:
        raise Diverged(f"{training.title}: the loss became infinite in epoch {run.diverged}")
    run.network.eval()
    run.loss.eval()
    return run


@torch.no_grad()
def embed(network: nn.Module, images: Images) -> Tensor:
    """Return embeddings in evaluation mode, float32 on the CPU, shape (N, D)."""
    device = next(network.parameters()).device
    was_training = network.training
    network.eval()
    starts = range(0, len(images), _EVALUATED_AT_ONCE)
    rows = [slice(start, start + _EVALUATED_AT_ONCE) for start in starts]
    parts = [network(images.batch(part, device)).float().cpu() for part in rows]
    network.train(was_training)
    return torch.cat(parts)


def _begin(training: Training, images: Images, device: torch.device) -> Trained:
    """Return a network and a loss with the weights that the seed gives them."""
    torch.manual_seed(_derived_seed(training.seed, "weights"))
    size = training.embedding_size
    network = training.network(size, **training.network_arguments).to(device)
    loss = training.loss(images.num_classes, size, **training.loss_arguments).to(device)
    return Trained(network, loss)


def _train_epochs(
    run: Trained, training: Training, images: Images, measure: Measure | None
) -> None:
    """Train all epochs, or until the loss or what is measured is not finite."""
    parameters = [{"params": list(m.parameters())} for m in (run.network, run.loss)]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    if measure is not None:
        run.history.append(measure(run.network, run.loss))
    epoch = 0
    for phase in training.phases:
        loss_lr = phase.lr if phase.loss_lr is None else phase.loss_lr
        optimizer.param_groups[0]["lr"], optimizer.param_groups[1]["lr"] = phase.lr, loss_lr
        if phase.values:
            run.loss.set_phase(**phase.values)  # type: ignore[operator]
        for _ in range(phase.epochs):
            values = [_train_epoch(run, optimizer, training, images, epoch)]
            epoch += 1
            if measure is not None and math.isfinite(values[0]):
                values.append(measure(run.network, run.loss))
                run.history.append(values[1])
            if not all(map(math.isfinite, values)):
                run.diverged = epoch
                return
    print(f"{training.title}: {epoch} epochs, loss {values[0]:.3f}", flush=True)


def _train_epoch(
    run: Trained, optimizer: torch.optim.Optimizer, training: Training, images: Images, epoch: int
) -> float:
    """Train one epoch and return its mean loss."""
    device = next(run.network.parameters()).device
    torch.manual_seed(_derived_seed(training.seed, "epoch", epoch))
    run.network.train()
    run.loss.train()
    total, batches = torch.zeros((), device=device), _batches(training, images, epoch)
    for rows in batches:
        loss = run.loss(run.network(images.batch(rows, device)), images.labels[rows].to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return float(total) / len(batches)


def _batches(training: Training, images: Images, epoch: int) -> list[Tensor]:
    """Return the rows of each batch of an epoch."""
    size, samples = training.batch_size, training.samples_per_class
    count = len(images) // size
    if samples is None:
        order = torch.randperm(len(images))
        return [order[i * size : (i + 1) * size] for i in range(count)]
    seed = _derived_seed(training.seed, "batches", epoch)
    sampler = ClassBalancedSampler(images.labels.numpy(), size, samples, seed)
    return [torch.from_numpy(sampler.next_batch()) for _ in range(count)]


def _save(run: Trained, file: Path) -> None:
    state = {
        "network": run.network.state_dict(),
        "loss": run.loss.state_dict(),
        "history": run.history,
        "diverged": run.diverged,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".unfinished")
    torch.save(state, unfinished)
    unfinished.replace(file)


def _restore(run: Trained, state: dict[str, Any]) -> None:
    run.network.load_state_dict(state["network"])
    run.loss.load_state_dict(state["loss"])
    run.history, run.diverged = state["history"], state["diverged"]


def _derived_seed(seed: int, *parts: str | int) -> int:
    """Return a seed that is a pure function of another one and of what it is for."""
    text = "/".join([str(seed), *map(str, parts)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def _key(training: Training, images: Images, device: torch.device) -> str:
    """Return a name for the file of a training, from all that its result depends on."""
    pixels = hashlib.sha256(images.pixels.numpy().tobytes() + images.labels.numpy().tobytes())
    plain = {name: value for name, value in vars(training).items() if name != "title"}
    plain |= {"network": training.network.__qualname__, "loss": training.loss.__qualname__}
    text = json.dumps([pixels.hexdigest(), device.type, plain], sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
