"""One fold run: train one network with one loss on one set of classes, and keep the best.

Knows nothing of Optuna, of other folds or of test classes. A fold run that was killed continues
from its last checkpoint; on a CPU its result is then bit-identical to an uninterrupted one.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from reality_check.config.metrics import PRIMARY, SELECTS_ON_TEST
from reality_check.data.imageset import ImageSet
from reality_check.data.sampler import build_sampler
from reality_check.evaluation.metrics import Diverged, embed, evaluate, require_finite
from reality_check.models.pipeline import Pipeline, build_augmentation, input_shape
from reality_check.training.early_stopping import EarlyStopping
from reality_check.training.fold import FoldResult, FoldTask
from reality_check.training.module import TrainingModule
from reality_check.training.plain_attributes import PlainAttributes
from reality_check.training.records import FoldRecords
from reality_check.training.strategy import Strategy
from reality_check.utils import checkpoints
from reality_check.utils import interrupt as stopping
from reality_check.utils.files import remove_leftovers
from reality_check.utils.seeds import derive

#: See :class:`Trainer`.
CHECKPOINT_SECONDS = 30.0
#: Files of a fold run: its last two checkpoints, and the network of a finished one.
LATEST, PREVIOUS, MODEL = "latest.pt", "latest-previous.pt", "model.pt"

_log = logging.getLogger(__name__)


@dataclass
class _Position:
    """Where a fold run stands; all counts in epochs."""

    phase: int = 1
    epoch: int = 0  # epochs of training in the current weights
    spent: int = 0  # epochs trained in all, also those thrown away at the end of phase 1
    phase_epochs: int = 0  # epochs trained in this phase
    phase_start: int = 0  # ``epoch`` when this phase began
    seconds: float = 0.0


class Trainer:
    """Trains one network. Create it and call :meth:`run`; the folder holds all its state.

    Args:
        task: what to do.
        train: the training classes, labelled 0..C-1.
        validation: the validation classes; ``None`` if and only if ``task.fixed_epochs`` is given.
        folder: of this fold run: ``latest.pt``, ``latest-previous.pt``, ``best-*.pt``,
            ``model.pt``, ``records/``.
        device: where to train.
        on_progress: called with the position after every epoch.
        strategy: the processes that train this network together; the main one writes the files.
        checkpoint_seconds: least time between two checkpoints, so that fast trainings do not wait
            for the disk (default: ``CHECKPOINT_SECONDS``). A run that is killed loses at most this
            and one evaluation interval.
        renew_lease: called before the folder is touched; raises when another worker trains in it by
            now.
    """

    def __init__(
        self,
        task: FoldTask,
        train: ImageSet,
        validation: ImageSet | None,
        folder: Path,
        device: torch.device,
        on_progress: Callable[[dict[str, Any]], None] = lambda position: None,
        strategy: Strategy | None = None,
        checkpoint_seconds: float | None = None,
        renew_lease: Callable[[], float] = lambda: math.inf,
    ) -> None:
        if (validation is None) != (task.fixed_epochs is not None):
            raise ValueError("a fold run has either a validation set or fixed epochs")
        self.task = task
        self.train_set = train
        self.validation = validation
        self.folder = folder
        self.device = device
        self.on_progress = on_progress
        self.strategy = strategy or Strategy()
        self.checkpoint_seconds = (
            CHECKPOINT_SECONDS if checkpoint_seconds is None else checkpoint_seconds
        )
        self._renew_lease = renew_lease
        self.history: list[dict[str, Any]] = []
        self._best_state: dict[str, Any] | None = None  # None: there is no best yet
        self._kept: set[Path] = set()  # the best states that checkpoints on disk refer to

    def run(self) -> FoldResult:
        """Train to the end, from wherever the folder's checkpoint stands.

        A damaged checkpoint is removed, with a warning, and the one before it is used; if that
        is damaged too, or if ``model.pt`` of a finished run is, the training starts anew.

        Raises:
            Diverged: the loss or an embedding is NaN or infinite.
            UsageError: the loss has no gradient, or the batch does not fit the data.
        """
        if self.is_main:
            self._renew_lease()
            remove_leftovers(self.folder)
        state, best = self._last_state()
        if state is not None and state["finished"]:
            return _result(state["result"])
        self.build()
        if state is not None:
            self._restore(state)
            self._best_state = best
            self._kept = {self._best_path()} if best is not None else set()
        self._renew_lease()
        if self.is_main and not (self.folder / LATEST).exists():
            self._remove_states("best-*.pt", self._kept)  # of states that nobody continues
        self.records = FoldRecords(self.folder / "records", self.history) if self.is_main else None
        try:
            if state is None:
                self._evaluate_untrained()
            self._train_phases()
            return self._finish()
        finally:
            if self.records is not None:
                self.records.close()

    @property
    def is_main(self) -> bool:
        """Whether this process writes the files."""
        return self.strategy.is_main

    # -- building ---------------------------------------------------------------------------

    def build(self) -> None:
        """Build everything that learns and everything that batches come from."""
        task, training = self.task, self.task.training
        shape = input_shape(self.train_set, training)
        classes = self.train_set.num_classes
        self.learner = TrainingModule(task, classes, shape, self.device, self.strategy)
        self.network, self.loss = self.learner.network, self.learner.loss
        self.miner = self.learner.miner
        owners = {"loss": self.loss, "miner": self.miner}
        self.attributes = PlainAttributes(owners, self.device)
        self.epoch_length = training.iterations(len(self.train_set))
        self.sampler = build_sampler(
            self.train_set.labels,
            training.batch_size,
            task.settings.samples_per_class,
            derive(task.network_seed, "batches"),
        )
        self.augmentation = build_augmentation(task.model, training, shape[2])
        self.generator = torch.Generator().manual_seed(derive(task.network_seed, "augmentation"))
        self.images = Pipeline(self.train_set, self.augmentation, shape, self.device)
        self.labels = torch.from_numpy(self.train_set.labels).to(self.device)
        if self.validation is not None:
            self.seen = Pipeline(self.validation, self.augmentation, shape, self.device)
        self.position = _Position()
        self.best: dict[str, Any] = {"value": None}
        self._saved = time.monotonic()
        self.stopping = EarlyStopping(training.patience)

    # -- the loop ---------------------------------------------------------------------------

    def _train_phases(self) -> None:
        while True:
            while not self._phase_is_over():
                self._train_epoch()
                if self._evaluation_is_due():
                    self._evaluate_and_save()
                self.on_progress(self._progress())
                self._stop_if_asked()
            if self.position.phase == 2 or not self._has_second_phase():
                return
            self._begin_second_phase()

    def _stop_if_asked(self) -> None:
        # A strategy cannot stop: its processes see the signal in different epochs.
        if stopping.requested() and self.strategy.size == 1:
            self._save()
            raise stopping.Stopped

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
        if training.second_phase_epochs is not None:
            return training.max_epochs - training.second_phase_epochs
        second = round(training.max_epochs * training.second_phase_share)
        return max(1, training.max_epochs - second)

    def _phase_is_over(self) -> bool:
        return self.position.phase_epochs >= self._phase_limit() or self.stopping.should_stop

    def _evaluation_is_due(self) -> bool:
        done = self.position.phase_epochs
        return done % self.task.training.evaluate_every == 0 or done >= self._phase_limit()

    def _train_epoch(self) -> None:
        started = time.perf_counter()
        self.mean_loss = self.train_steps(self.epoch_length)
        self.position.epoch += 1
        self.position.spent += 1
        self.position.phase_epochs += 1
        self.position.seconds += time.perf_counter() - started

    def train_steps(self, count: int) -> float:
        """Take some steps and return the mean of their losses.

        Raises:
            Diverged: a loss is not finite. On a CPU this is seen at once; elsewhere after the last
                step, since looking at a value makes the device wait.
        """
        self.learner.train()
        total = torch.zeros((), device=self.device)
        before = self.position.spent * self.epoch_length
        for number, (images, labels) in enumerate(self._batches(count)):
            self.learner.set_iteration(before + number, self.epoch_length)
            try:
                total += self.learner.step(images, labels)
            except Exception:
                self._check_finite(total)  # of a diverged loss, that is the cause
                raise
            if self.device.type == "cpu":
                self._check_finite(total)
        self._check_finite(total)
        return float(total) / count

    def _check_finite(self, total: Tensor) -> None:
        number = float(total)
        if not np.isfinite(number):
            raise Diverged(f"the loss became {number} in epoch {self.position.epoch + 1}")

    def _batches(self, count: int) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's images and all labels of so many batches.

        Nothing is drawn beyond ``count``, so a checkpoint after it holds the whole state.
        """
        several = self.images.batches_at_once(self.task.training.batch_size)
        for done in range(0, count, several):
            images, labels = self._make_batches(min(several, count - done))
            yield from zip(images.split(len(images) // len(labels)), labels, strict=True)

    def _make_batches(self, count: int) -> tuple[Tensor, Tensor]:
        """Some batches in one piece: small operations take as long for one batch as for several.

        Returns:
            This process's images, (count x B, C, H, W), and all labels, (count, N).
        """
        rows = np.stack([self.sampler.next_batch() for _ in range(count)])
        numbers = self.augmentation.draw(rows.size, self.generator).reshape(*rows.shape, -1)
        part = self.strategy.local_batch_slice(rows.shape[1])
        own, drawn = rows[:, part], numbers[:, part]
        flat = drawn.reshape(own.size, drawn.shape[2])
        images = self.images.training_batch(own.reshape(-1), flat)
        return images, self.labels[torch.from_numpy(rows).to(self.device, non_blocking=True)]

    # -- evaluation -------------------------------------------------------------------------

    def _evaluate_untrained(self) -> None:
        """Epoch -1 is the trunk without embedder, epoch 0 the untrained network."""
        if self.validation is None:
            return
        for epoch, forward in ((-1, self.network.features), (0, self.network)):
            metrics = self._measure(forward)
            if epoch == 0:
                self.stopping.update(0, metrics[self._selects_by])
            self._record({"epoch": epoch, "step": epoch, "phase": 1, "loss": None, **metrics})

    def _measure(self, forward: Callable[[Tensor], Tensor]) -> dict[str, float]:
        """Validation metrics, in the method's own geometry."""
        assert self.validation is not None
        parts = np.array_split(np.arange(len(self.validation)), self.strategy.size)
        with self.learner.autocast():
            batches = self.seen.evaluation_batches(parts[self.strategy.rank])
            embeddings = self.strategy.gather_rows(embed(forward, self.network, batches))
        require_finite(embeddings)
        how = (self.validation.labels, self.task.settings.normalize_embeddings)
        queries = self.validation.queries if self.task.selects_on == "test" else None
        return self.strategy.broadcast(evaluate(embeddings, *how, queries=queries))

    @property
    def _selects_by(self) -> str:
        """The metric of which the best epoch is kept."""
        return SELECTS_ON_TEST if self.task.selects_on == "test" else PRIMARY

    def _evaluate_and_save(self) -> None:
        started = time.perf_counter()
        position = self.position
        if self.validation is None:
            self._save_if_due()
            return
        metrics = self._measure(self.network)
        value = metrics[self._selects_by]
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
            self._best_state = checkpoints.clone(self._state())
        self._save_if_due()

    def _follow_up_epochs(self) -> int:
        """Epochs of the second phase in the current weights."""
        position = self.position
        return position.epoch - position.phase_start if position.phase == 2 else 0

    def _record(self, row: dict[str, Any]) -> None:
        self.history.append(row)
        if self.records is not None:
            self._renew_lease()
            self.records.append(row)

    # -- phases -----------------------------------------------------------------------------

    def _begin_second_phase(self) -> None:
        """Go on with the second-phase values, from the best weights of the first phase.

        Where the phases have fixed lengths, from the latest ones.
        """
        fixed = self.task.training.second_phase_epochs is not None
        if self.validation is not None and not fixed:
            spent, seconds, history = self.position.spent, self.position.seconds, self.history
            best = self._best()
            self._restore(best)
            self._best_state = checkpoints.clone(best)
            self.position.spent, self.position.seconds = spent, seconds
            self.history = history
        self.position.phase = 2
        self.position.phase_epochs = 0
        self.position.phase_start = self.position.epoch
        self.learner.enter_second_phase(self.task.settings.second_phase)
        self.stopping = EarlyStopping(self.task.training.patience)
        if self.best["value"] is not None:
            self.stopping.update(self.position.epoch, self.best["value"])
        self._save_if_due()

    # -- state ------------------------------------------------------------------------------

    def _last_state(self) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """The newest sound checkpoint of this task and the best state that it refers to."""
        for name in (LATEST, PREVIOUS):
            try:
                state = checkpoints.load(self.folder / name)
                if state is None:
                    continue
                if state["task"] != self.task.fingerprint():
                    # Left by other parameters, say before the studies were deleted.
                    self._forget(name)
                    continue
                if not state["finished"]:
                    return state, self._load_best(state["best"])
                if self.task.keep_model:
                    checkpoints.check(self.folder / MODEL)
                return state, None
            except (checkpoints.Damaged, FileNotFoundError) as error:
                before = "the checkpoint before it" if name == LATEST else "the beginning"
                _log.warning("%s; this training goes on from %s", error, before)
                self._forget(name)
        return None, None

    def _forget(self, name: str) -> None:
        """Delete a checkpoint, so that it never takes the place of the sound one before it."""
        if self.is_main:
            (self.folder / name).unlink(missing_ok=True)

    def _load_best(self, best: dict[str, Any]) -> dict[str, Any] | None:
        if best["value"] is None:
            return None
        path = self._path_of(best)
        state = checkpoints.load(path)
        if state is None:
            raise FileNotFoundError(f"{path} is missing")
        return state

    def _path_of(self, best: dict[str, Any]) -> Path:
        return self.folder / f"best-{best['phase']}-{best['epoch']}.pt"

    def _best_path(self) -> Path:
        return self._path_of(self.best)

    def _state(self) -> dict[str, Any]:
        return {
            "finished": False,
            "task": self.task.fingerprint(),
            "position": dict(vars(self.position)),
            "best": dict(self.best),
            "stopping": self.stopping.state_dict(),
            "history": list(self.history),
            **self.learner.state_dict(),
            "miner": self.miner.state_dict() if isinstance(self.miner, nn.Module) else {},
            "attributes": self.attributes.state_dict(),
            "sampler": self.sampler.state_dict(),
            "generator": self.generator.get_state(),
            "random": checkpoints.random_states(self.device),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.position = _Position(**state["position"])
        self.best = dict(state["best"])
        self.stopping = EarlyStopping(**state["stopping"])
        self.history = list(state["history"])
        if self.position.phase == 2:
            self.learner.enter_second_phase(self.task.settings.second_phase)
        self.learner.load_state_dict(state)
        if "attributes" in state:  # older checkpoints have neither of these two
            if isinstance(self.miner, nn.Module):
                self.miner.load_state_dict(state["miner"])
            self.attributes.load_state_dict(state["attributes"])
        self.sampler.load_state_dict(state["sampler"])
        self.generator.set_state(state["generator"])
        checkpoints.restore_random_states(state["random"], self.device)

    def _save_if_due(self) -> None:
        if time.monotonic() - self._saved >= self.checkpoint_seconds and self.is_main:
            self._save()

    def _save(self) -> None:
        """Save the best state, then the current one; only then an older best is of no more use.

        The checkpoint before stays with its best state: at most five states, counting the one
        that is being written.
        """
        self._renew_lease()
        keep = {self._best_path()} if self.best["value"] is not None else set()
        for path in keep:
            if self._best_state is not None and not path.exists():
                checkpoints.save(path, self._best_state)
        latest = self.folder / LATEST
        if latest.exists():
            os.replace(latest, self.folder / PREVIOUS)
        checkpoints.save(latest, self._state())
        self._remove_states("best-*.pt", keep | self._kept)
        self._kept = keep
        self._saved = time.monotonic()

    def _remove_states(self, pattern: str, keep: Collection[Path] = ()) -> None:
        for path in self.folder.glob(pattern):
            if path not in keep:
                path.unlink(missing_ok=True)

    def _best(self) -> dict[str, Any]:
        """The state with the best validation value so far."""
        assert self._best_state is not None, "every phase ends with an evaluation"
        return self._best_state

    def _finish(self) -> FoldResult:
        follow_up = self._follow_up_epochs()
        best = {"value": 0.0, "epoch": self.position.epoch, "follow_up": follow_up}
        if self.validation is not None:
            best = self.best
        result = {
            "value": best["value"],
            "epoch": best["epoch"],
            "follow_up_epochs": best["follow_up"],
            "epochs_spent": self.position.spent,
            "seconds": self.position.seconds,
            "curve": self.history,
        }
        if self.is_main:
            self._write_result(result)
        return self.strategy.broadcast(_result(result))

    def _write_result(self, result: dict[str, Any]) -> None:
        self._renew_lease()
        if self.task.keep_model:
            network = self.network.state_dict()
            if self.validation is not None:
                network = self._best()["network"]
            checkpoints.save(self.folder / MODEL, network)
        done = {"finished": True, "task": self.task.fingerprint(), "result": result}
        checkpoints.save(self.folder / LATEST, done)
        self._remove_states("best-*.pt")
        self._remove_states(PREVIOUS)

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
