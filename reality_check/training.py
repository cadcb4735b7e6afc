"""One fold run: train one network with one loss on one set of classes, and keep the best.

Knows nothing of Optuna, of other folds or of test classes. A fold run that was killed continues
from its last checkpoint; on a CPU its result is then bit-identical to an uninterrupted one.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from reality_check import checkpoints
from reality_check.config.model import Model
from reality_check.config.training import Optimizer, Training
from reality_check.data.augment import Augmentation
from reality_check.data.imageset import ImageSet
from reality_check.data.sampler import ClassBalancedSampler
from reality_check.early_stopping import EarlyStopping
from reality_check.errors import UsageError
from reality_check.measuring import Diverged, embed, measure
from reality_check.methods import MethodSettings, build_loss, build_miner, enter_second_phase
from reality_check.model import Network, build_network
from reality_check.records import FoldRecords
from reality_check.results import PRIMARY
from reality_check.seeds import derive


@dataclass(frozen=True)
class FoldTask:
    """What one fold run is to do, as plain data.

    Attributes:
        network_seed: of the initial weights and the order of batches; the same for all methods.
        loss_seed: of the initial parameters of the loss.
        embedding_size: width of the embedding.
        fixed_epochs: epochs of the first and second phase when there is no validation set
            (the complete category); else ``None``.
        keep_model: whether ``model.pt`` is written at the end.
    """

    settings: MethodSettings
    model: Model
    training: Training
    embedding_size: int
    network_seed: int
    loss_seed: int
    fixed_epochs: tuple[int, int] | None = None
    keep_model: bool = True

    def fingerprint(self) -> str:
        """SHA-256 of all of it: a checkpoint of another task must not be continued."""
        return hashlib.sha256(repr(self).encode()).hexdigest()


@dataclass(frozen=True)
class FoldResult:
    """What a fold run found.

    Attributes:
        value: best validation MAP@R over trained epochs (0 without validation).
        epoch: epochs of training in the best weights.
        follow_up_epochs: those of them that belong to the second phase.
        epochs_spent: all epochs trained, also those after the best.
        seconds: wall time, training and evaluation.
        curve: one row per evaluation, see :attr:`FoldRun.history`.
    """

    value: float
    epoch: int
    follow_up_epochs: int
    epochs_spent: int
    seconds: float
    curve: tuple[dict[str, Any], ...]


@dataclass
class _Position:
    """Where a fold run stands; all counts in epochs."""

    phase: int = 1
    epoch: int = 0  # epochs of training in the current weights
    spent: int = 0  # epochs trained in all, also those thrown away at the end of phase 1
    phase_epochs: int = 0  # epochs trained in this phase
    phase_start: int = 0  # ``epoch`` when this phase began
    seconds: float = 0.0


class FoldRun:
    """Trains one network. Create it and call :meth:`run`; the folder holds all its state.

    Args:
        task: what to do.
        train: the training classes, labelled 0..C-1.
        validation: the validation classes; ``None`` if and only if ``task.fixed_epochs`` is given.
        folder: of this fold run: ``latest.pt``, ``best-*.pt``, ``model.pt``, ``records/``.
        device: where to train.
        on_progress: called with the position after every epoch.
    """

    def __init__(
        self,
        task: FoldTask,
        train: ImageSet,
        validation: ImageSet | None,
        folder: Path,
        device: torch.device,
        on_progress: Callable[[dict[str, Any]], None] = lambda position: None,
    ) -> None:
        if (validation is None) != (task.fixed_epochs is not None):
            raise ValueError("a fold run has either a validation set or fixed epochs")
        self.task = task
        self.train_set = train
        self.validation = validation
        self.folder = folder
        self.device = device
        self.on_progress = on_progress
        self.history: list[dict[str, Any]] = []

    def run(self) -> FoldResult:
        """Train to the end, from wherever the folder's checkpoint stands.

        Raises:
            Diverged: the loss or an embedding is NaN or infinite.
            UsageError: the loss has no gradient, or the batch does not fit the data.
        """
        state = checkpoints.load(self.folder / "latest.pt", self.device)
        if state is not None and state["task"] != self.task.fingerprint():
            state = None  # left by other parameters, say before the studies were deleted
        if state is not None and state["finished"]:
            return _result(state["result"])
        self._build()
        if state is not None:
            self._restore(state)
        self.records = FoldRecords(self.folder / "records", self.history)
        try:
            if state is None:
                self._evaluate_untrained()
            self._train_phases()
            return self._finish()
        finally:
            self.records.close()

    # -- building ---------------------------------------------------------------------------

    def _build(self) -> None:
        task, training = self.task, self.task.training
        shape = self.train_set.image_shape
        self.network = build_network(task.model, shape, task.embedding_size, task.network_seed)
        self.network.to(self.device)
        checkpoints.seed_everything(task.loss_seed)
        classes = self.train_set.num_classes
        self.loss = build_loss(task.settings, classes, task.embedding_size).to(self.device)
        self.miner = build_miner(task.settings)
        if isinstance(self.miner, nn.Module):
            self.miner.to(self.device)
        self.optimizers = build_optimizers(self.network, self.loss, task.settings, training)
        self.sampler = ClassBalancedSampler(
            self.train_set.labels,
            training.batch_size,
            task.settings.samples_per_class,
            derive(task.network_seed, "batches"),
        )
        self.augmentation = Augmentation(**training.augmentation.model_dump())
        self.generator = torch.Generator().manual_seed(derive(task.network_seed, "augmentation"))
        self.scaler = torch.amp.GradScaler(
            self.device.type, enabled=training.autocast == "fp16" and self.device.type == "cuda"
        )
        self.images = torch.from_numpy(np.ascontiguousarray(self.train_set.images))
        self.labels = torch.from_numpy(self.train_set.labels)
        self.position = _Position()
        self.best: dict[str, Any] = {"value": None}
        self.stopping = EarlyStopping(training.patience)

    # -- the loop ---------------------------------------------------------------------------

    def _train_phases(self) -> None:
        while True:
            while not self._phase_is_over():
                self._train_epoch()
                if self._evaluation_is_due():
                    self._evaluate_and_save()
                self.on_progress(self._progress())
            if self.position.phase == 2 or not self._has_second_phase():
                return
            self._begin_second_phase()

    def _has_second_phase(self) -> bool:
        if self.task.fixed_epochs is not None:
            return self.task.fixed_epochs[1] > 0
        return self.task.settings.second_phase is not None

    def _phase_limit(self) -> int:
        """Most epochs of the current phase: both phases together get ``max_epochs``."""
        position, training = self.position, self.task.training
        if self.task.fixed_epochs is not None:
            return self.task.fixed_epochs[position.phase - 1]
        if position.phase == 2:
            return training.max_epochs - (position.spent - position.phase_epochs)
        if self.task.settings.second_phase is None:
            return training.max_epochs
        second = round(training.max_epochs * training.second_phase_share)
        return max(1, training.max_epochs - second)

    def _phase_is_over(self) -> bool:
        return self.position.phase_epochs >= self._phase_limit() or self.stopping.should_stop

    def _evaluation_is_due(self) -> bool:
        done = self.position.phase_epochs
        return done % self.task.training.evaluate_every == 0 or done >= self._phase_limit()

    def _train_epoch(self) -> None:
        started = time.perf_counter()
        self.network.train()
        if self.task.training.freeze_batchnorm:
            freeze_batchnorm(self.network.trunk)
        self.loss.train()
        total = 0.0
        for _ in range(self.task.training.iterations_per_epoch):
            total += self._step()
        self.position.epoch += 1
        self.position.spent += 1
        self.position.phase_epochs += 1
        self.position.seconds += time.perf_counter() - started
        self.mean_loss = total / self.task.training.iterations_per_epoch

    def _step(self) -> float:
        indices = torch.from_numpy(self.sampler.next_batch())
        images = self.augmentation(self.images[indices].to(self.device), self.generator)
        labels = self.labels[indices].to(self.device)
        with self._autocast():
            embeddings = self.network(images)
        value = loss_value(self.loss, self.miner, embeddings.float(), labels)
        number = float(value.detach())
        if not np.isfinite(number):
            raise Diverged(f"the loss became {number} in epoch {self.position.epoch + 1}")
        for optimizer in self.optimizers.values():
            optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(value).backward()
        clip = self.task.training.gradient_clip
        for name, optimizer in self.optimizers.items():
            if clip is not None and name != "loss":
                self.scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_value_(optimizer.param_groups[0]["params"], clip)
            self.scaler.step(optimizer)
        self.scaler.update()
        return number

    def _autocast(self) -> torch.autocast:
        kind = self.task.training.autocast
        dtype = torch.float16 if kind == "fp16" else torch.bfloat16
        return torch.autocast(self.device.type, dtype=dtype, enabled=kind != "none")

    # -- evaluation -------------------------------------------------------------------------

    def _evaluate_untrained(self) -> None:
        """Epoch -1 is the trunk without embedder, epoch 0 the untrained network."""
        if self.validation is None:
            return
        for epoch, forward in ((-1, self.network.features), (0, self.network)):
            metrics = self._measure(forward)
            if epoch == 0:
                self.stopping.update(0, metrics[PRIMARY])
            self._record({"epoch": epoch, "step": epoch, "phase": 1, "loss": None, **metrics})

    def _measure(self, forward: Callable[[Tensor], Tensor]) -> dict[str, float]:
        assert self.validation is not None
        images = self.validation.images
        with self._autocast():
            transform = self.augmentation.evaluation_transform()
            embeddings = embed(forward, self.network, images, transform, self.device)
        return measure(embeddings, self.validation.labels, self.task.settings.normalize_embeddings)

    def _evaluate_and_save(self) -> None:
        started = time.perf_counter()
        position = self.position
        if self.validation is None:
            self._save_latest()
            return
        metrics = self._measure(self.network)
        value = metrics[PRIMARY]
        self.stopping.update(position.epoch, value)
        self._record(
            {
                "epoch": position.epoch,
                "step": position.spent,
                "phase": position.phase,
                "loss": self.mean_loss,
                **metrics,
            }
        )
        improved = self.best["value"] is None or value > self.best["value"]
        if improved:
            self.best = {"value": value, "epoch": position.epoch, "phase": position.phase}
            self.best["follow_up"] = self._follow_up_epochs()
        position.seconds += time.perf_counter() - started
        if improved:
            checkpoints.save(self._best_path(), self._state())
        self._save_latest()

    def _follow_up_epochs(self) -> int:
        """Epochs of the second phase in the current weights."""
        position = self.position
        return position.epoch - position.phase_start if position.phase == 2 else 0

    def _record(self, row: dict[str, Any]) -> None:
        self.history.append(row)
        self.records.append(row)

    # -- phases -----------------------------------------------------------------------------

    def _begin_second_phase(self) -> None:
        """Continue from the best weights of the first phase, with the second-phase values."""
        if self.validation is not None:
            spent, seconds, history = self.position.spent, self.position.seconds, self.history
            state = checkpoints.load(self._best_path(), self.device)
            if state is None:
                raise RuntimeError(f"{self._best_path()} is missing; delete {self.folder}")
            self._restore(state)
            self.position.spent, self.position.seconds = spent, seconds
            self.history = history
        self.position.phase = 2
        self.position.phase_epochs = 0
        self.position.phase_start = self.position.epoch
        self._apply_second_phase()
        self.stopping = EarlyStopping(self.task.training.patience)
        if self.best["value"] is not None:
            self.stopping.update(self.position.epoch, self.best["value"])
        self._save_latest()

    def _apply_second_phase(self) -> None:
        second = self.task.settings.second_phase
        if second is None:
            return
        enter_second_phase(self.loss, second)
        for name, optimizer in self.optimizers.items():
            factor = second.loss_lr_factor if name == "loss" else second.lr_factor
            for group in optimizer.param_groups:
                group["lr"] *= factor

    # -- state ------------------------------------------------------------------------------

    def _best_path(self) -> Path:
        return self.folder / f"best-{self.best['phase']}-{self.best['epoch']}.pt"

    def _state(self) -> dict[str, Any]:
        return {
            "finished": False,
            "task": self.task.fingerprint(),
            "position": dict(vars(self.position)),
            "best": dict(self.best),
            "stopping": self.stopping.state_dict(),
            "history": list(self.history),
            "network": self.network.state_dict(),
            "loss": self.loss.state_dict(),
            "optimizers": {name: opt.state_dict() for name, opt in self.optimizers.items()},
            "scaler": self.scaler.state_dict(),
            "sampler": self.sampler.state_dict(),
            "generator": self.generator.get_state(),
            "random": checkpoints.random_states(),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.position = _Position(**state["position"])
        self.best = dict(state["best"])
        self.stopping = EarlyStopping(**state["stopping"])
        self.history = list(state["history"])
        if self.position.phase == 2:
            # Values that are plain attributes of a loss are not part of its state_dict.
            self._apply_second_phase()
        self.network.load_state_dict(state["network"])
        self.loss.load_state_dict(state["loss"])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        self.scaler.load_state_dict(state["scaler"])
        self.sampler.load_state_dict(state["sampler"])
        self.generator.set_state(state["generator"].cpu())
        checkpoints.restore_random_states(state["random"])

    def _save_latest(self) -> None:
        """Save the current state; only then is an older best checkpoint of no more use."""
        checkpoints.save(self.folder / "latest.pt", self._state())
        keep = self._best_path() if self.best["value"] is not None else None
        for path in self.folder.glob("best-*.pt"):
            if path != keep:
                path.unlink()

    def _finish(self) -> FoldResult:
        if self.validation is None:
            network = self.network.state_dict()
            follow_up = self._follow_up_epochs()
            best = {"value": 0.0, "epoch": self.position.epoch, "follow_up": follow_up}
        else:
            state = checkpoints.load(self._best_path(), self.device)
            if state is None:
                raise RuntimeError(f"{self._best_path()} is missing; delete {self.folder}")
            network, best = state["network"], self.best
        if self.task.keep_model:
            checkpoints.save(self.folder / "model.pt", network)
        result = {
            "value": best["value"],
            "epoch": best["epoch"],
            "follow_up_epochs": best["follow_up"],
            "epochs_spent": self.position.spent,
            "seconds": self.position.seconds,
            "curve": self.history,
        }
        done = {"finished": True, "task": self.task.fingerprint(), "result": result}
        checkpoints.save(self.folder / "latest.pt", done)
        for path in self.folder.glob("best-*.pt"):
            path.unlink()
        return _result(result)

    def _progress(self) -> dict[str, Any]:
        return {
            "epoch": self.position.spent,
            "max_epochs": (
                sum(self.task.fixed_epochs)
                if self.task.fixed_epochs
                else self.task.training.max_epochs
            ),
            "best": self.best["value"],
        }


def _result(plain: dict[str, Any]) -> FoldResult:
    return FoldResult(**{**plain, "curve": tuple(plain["curve"])})


def freeze_batchnorm(module: nn.Module) -> None:
    """Put every BatchNorm in evaluation mode: statistics stay, scale and shift still train."""
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.eval()


def loss_value(
    loss: nn.Module, miner: nn.Module | None, embeddings: Tensor, labels: Tensor
) -> Tensor:
    """The scalar loss of a batch, through the miner if there is one.

    Raises:
        UsageError: the loss is not a scalar tensor that depends on the embeddings.
    """
    value = (
        loss(embeddings, labels, miner(embeddings, labels)) if miner else loss(embeddings, labels)
    )
    name = type(loss).__name__
    if not isinstance(value, Tensor) or value.numel() != 1:
        got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise UsageError(f"{name} must return one number as a tensor, got {got}.")
    if embeddings.requires_grad and not value.requires_grad:
        raise UsageError(
            f"{name} returned a value without a gradient; compute it from the embeddings with "
            "torch operations only (no .item(), .detach() or NumPy)."
        )
    return value.squeeze()


def build_optimizers(
    network: Network, loss: nn.Module, settings: MethodSettings, training: Training
) -> dict[str, torch.optim.Optimizer]:
    """The optimisers of trunk, embedder and, if it has parameters, of the loss."""
    configs = training.optimizers
    parts: dict[str, tuple[nn.Module, Optimizer, float]] = {
        "trunk": (network.trunk, configs.trunk, configs.trunk.weight_decay),
        "embedder": (network.embedder, configs.embedder, configs.embedder.weight_decay),
        "loss": (loss, configs.loss, settings.loss_weight_decay),
    }
    built = {}
    for name, (module, config, decay) in parts.items():
        parameters = [p for p in module.parameters() if p.requires_grad]
        if parameters:
            built[name] = _optimizer(config, parameters, settings.learning_rates[name], decay)
    return built


def _optimizer(
    config: Optimizer, parameters: list[nn.Parameter], lr: float, decay: float
) -> torch.optim.Optimizer:
    cls = getattr(torch.optim, config.name)
    try:
        optimizer: torch.optim.Optimizer = cls(
            parameters, lr=lr, weight_decay=decay, **config.arguments
        )
    except (TypeError, ValueError) as error:
        raise UsageError(f"optimiser {config.name}: {error}") from None
    return optimizer
