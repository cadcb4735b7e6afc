"""One plain training loop for all figures, kept in a folder so that nothing is trained twice.

The harness trains on some classes and measures on others, with losses compared at equal budgets.
The figures here are pictures of what one loss does, most of them on the classes it was trained on,
so they need no folds and no search: a network, a loss, a number of epochs, a seed.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pml_extensions.functional import allow_tf32
from reality_check.data import ClassBalancedSampler
from reality_check.papers.figures._figure import Settings
from reality_check.papers.figures._images import Images
from reality_check.utils import checkpoints
from reality_check.utils.errors import WorkFailed
from reality_check.utils.seeds import derive

#: Least seconds between two checkpoints of a training, and between two lines of progress.
CHECKPOINT_SECONDS, LOG_SECONDS = 20.0, 5.0
#: Changes when trainings of the same settings would come out differently.
_VERSION = 1
_EVALUATED_AT_ONCE = 1000

#: Called after each epoch, and before the first: what to keep of the state.
Measure = Callable[[nn.Module, nn.Module], float]


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
        network_arguments: by name.
        loss: class of the loss, called with ``num_classes``, ``embedding_size`` and
            ``loss_arguments``.
        loss_arguments: by name.
        embedding_size: D.
        phases: one after the other.
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

    @property
    def epochs(self) -> int:
        return sum(phase.epochs for phase in self.phases)


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
    history: list[float]
    diverged: int | None = None

    def embed(self, images: Images) -> Tensor:
        """Return the embeddings of images, float32 on the CPU, shape (N, D)."""
        return embed(self.network, images)


def train(
    training: Training, images: Images, settings: Settings, measure: Measure | None = None
) -> Trained:
    """Train, or read a training of the same settings from ``settings.folder / "runs"``.

    A training that was broken off resumes from its last checkpoint and then comes out as if it had
    not been, because each epoch has a seed of its own. A damaged file is trained again.
    On a GPU it computes as protocols do by default, without TF32.

    Args:
        training: what to train.
        images: what on.
        settings: where trainings are kept, who hears of progress.
        measure: called after each epoch; its values are kept.

    Raises:
        WorkFailed: the loss became NaN or infinite, and no ``measure`` watches that happen.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    file = settings.folder / "runs" / f"{_key(training, images, device)}.pt"
    with torch.random.fork_rng(devices=[]), allow_tf32(device, False):
        run = _Run(training, images, device, measure, settings.log)
        run.restore(_load(file, settings.log))
        while not run.finished:
            run.epoch()
            if run.finished or time.monotonic() - run.saved > CHECKPOINT_SECONDS:
                checkpoints.save(file, run.state())
                run.saved = time.monotonic()
    if run.diverged is not None and measure is None:
        raise WorkFailed(f"{training.title}: the loss became infinite in epoch {run.diverged}.")
    return Trained(run.network.eval(), run.loss.eval(), run.history, run.diverged)


@torch.no_grad()
def embed(network: nn.Module, images: Images) -> Tensor:
    """Return embeddings in evaluation mode, float32 on the CPU, shape (N, D)."""
    device = next(network.parameters()).device
    was = network.training
    network.eval()
    starts = range(0, len(images), _EVALUATED_AT_ONCE)
    rows = [slice(start, start + _EVALUATED_AT_ONCE) for start in starts]
    with allow_tf32(device, False):
        parts = [network(images.batch(part, device)).float().cpu() for part in rows]
    network.train(was)
    return torch.cat(parts)


class _Run:
    """A training between two epochs."""

    def __init__(
        self,
        training: Training,
        images: Images,
        device: torch.device,
        measure: Measure | None,
        log: Callable[[str], None],
    ) -> None:
        self.training, self.images, self.device = training, images, device
        self.measure, self.log = measure, log
        torch.manual_seed(derive(training.seed, "weights"))
        size = training.embedding_size
        self.network = training.network(size, **training.network_arguments).to(device)
        arguments = dict(training.loss_arguments)
        self.loss = training.loss(images.num_classes, size, **arguments).to(device)
        self.optimizer = torch.optim.Adam(
            [{"params": list(m.parameters())} for m in (self.network, self.loss)], lr=1e-3
        )
        self.labels = images.labels.to(device)
        self.done = 0
        self.diverged: int | None = None
        self.history: list[float] = []
        self.saved = self.logged = time.monotonic()

    @property
    def finished(self) -> bool:
        """Whether all epochs are trained, or none more can be."""
        return self.done >= self.training.epochs or self.diverged is not None

    def restore(self, state: dict[str, Any] | None) -> None:
        """Continue from a checkpoint, if there is one."""
        if state is None:
            self._measure()
            return
        self.network.load_state_dict(state["network"])
        self.loss.load_state_dict(state["loss"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.done, self.history = state["done"], state["history"]
        self.diverged = state["diverged"]

    def state(self) -> dict[str, Any]:
        """Everything that the next epochs depend on."""
        return {
            "network": self.network.state_dict(),
            "loss": self.loss.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "done": self.done,
            "history": self.history,
            "diverged": self.diverged,
        }

    def epoch(self) -> None:
        self._enter_phase()
        torch.manual_seed(derive(self.training.seed, "epoch", self.done))
        self.network.train()
        self.loss.train()
        total, batches = torch.zeros((), device=self.device), self._batches()
        for rows in batches:
            loss = self.loss(self.network(self.images.batch(rows, self.device)), self.labels[rows])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
        self.done += 1
        mean = float(total) / len(batches)
        if not math.isfinite(mean):
            self.diverged = self.done
        else:
            self._measure()
        self._log(mean)

    def _enter_phase(self) -> None:
        """Set learning rates and values of the phase that the next epoch belongs to."""
        start = 0
        for phase in self.training.phases:
            if start <= self.done < start + phase.epochs:
                own = phase.lr if phase.loss_lr is None else phase.loss_lr
                for group, lr in zip(self.optimizer.param_groups, (phase.lr, own), strict=True):
                    group["lr"] = lr
                if phase.values:
                    self.loss.set_phase(**phase.values)  # type: ignore[operator]
            start += phase.epochs

    def _batches(self) -> list[Tensor]:
        """The rows of each batch of the next epoch."""
        size, each = self.training.batch_size, self.training.samples_per_class
        count = len(self.images) // size
        if each is None:
            order = torch.randperm(len(self.images))
            return [order[i * size : (i + 1) * size] for i in range(count)]
        seed = derive(self.training.seed, "batches", self.done)
        sampler = ClassBalancedSampler(self.images.labels.numpy(), size, each, seed)
        return [torch.from_numpy(sampler.next_batch()) for _ in range(count)]

    def _measure(self) -> None:
        if self.measure is not None:
            value = self.measure(self.network, self.loss)
            self.history.append(value)
            if not math.isfinite(value):
                self.diverged = self.done

    def _log(self, mean: float) -> None:
        if self.finished or time.monotonic() - self.logged > LOG_SECONDS:
            of = f"epoch {self.done} of {self.training.epochs}"
            self.log(f"{self.training.title}: {of}, loss {mean:.3f}")
            self.logged = time.monotonic()


def _key(training: Training, images: Images, device: torch.device) -> str:
    """A name for the file of a training, from all that its result depends on."""
    pixels = hashlib.sha256(images.pixels.numpy().tobytes() + images.labels.numpy().tobytes())
    plain = {name: value for name, value in vars(training).items() if name != "title"}
    plain |= {"network": training.network.__qualname__, "loss": training.loss.__qualname__}
    what = json.dumps(
        [_VERSION, pixels.hexdigest(), device.type, plain], sort_keys=True, default=repr
    )
    return hashlib.sha256(what.encode()).hexdigest()[:16]


def _load(file: Path, log: Callable[[str], None]) -> dict[str, Any] | None:
    try:
        return checkpoints.load(file)
    except checkpoints.Damaged as error:
        log(f"{error}; that training starts again")
        return None
