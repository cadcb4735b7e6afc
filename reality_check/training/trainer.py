"""The trainer of a fold run, which trains a network on some classes and keeps the best epoch.

It does not depend on Optuna, on other folds or on the test classes. A fold run that was killed
continues from its last checkpoint; on a CPU, the result is then bit-identical to that of an
uninterrupted run.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pml_extensions.functional import allow_tf32
from reality_check.config.metrics import METRICS, SELECTS_ON_TEST
from reality_check.data.sample_set import SampleSet
from reality_check.evaluation.scoring import Diverged, embed, evaluate
from reality_check.models.pipeline import Pipeline, build_augmentation, input_shape
from reality_check.training.batches import Batches
from reality_check.training.first_values import fit_first_values
from reality_check.training.fold import FoldResult, FoldTask
from reality_check.training.fold_checkpoints import FoldCheckpoints, State
from reality_check.training.fold_progress import FoldProgress
from reality_check.training.module import TrainingModule
from reality_check.training.plain_attributes import PlainAttributes
from reality_check.training.records import FoldRecords, recordable_attributes
from reality_check.training.strategy import Strategy
from reality_check.utils import checkpoints, interrupt
from reality_check.utils.lease import LeaseCheck, LeaseLost, no_lease


class Trainer:
    """Trains one network. Create a trainer and call :meth:`run`; all its state is in the folder.

    Args:
        task: what to train, see :class:`FoldTask`.
        train: the training classes, labelled 0..C-1.
        validation: the validation classes; ``None`` if and only if ``task.fixed_epochs`` is given.
        folder: the folder of this fold run, with its checkpoints (see :class:`FoldCheckpoints`) and
            ``records/``.
        device: the device to train on.
        on_progress: called after every epoch with :meth:`FoldProgress.report`.
        strategy: the processes that train this network together; the main one writes the files.
        checkpoint_seconds: minimum seconds between two checkpoints. A run that is killed loses at
            most this time and one evaluation interval.
        renew_lease: called before the folder is touched; raises if another worker has taken it
            over.
    """

    def __init__(
        self,
        task: FoldTask,
        train: SampleSet,
        validation: SampleSet | None,
        folder: Path,
        device: torch.device,
        on_progress: Callable[[dict[str, Any]], None] = lambda position: None,
        strategy: Strategy | None = None,
        checkpoint_seconds: float | None = None,
        renew_lease: LeaseCheck = no_lease,
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
        self.checkpoints = FoldCheckpoints(
            folder, task, self.strategy.is_main, checkpoint_seconds, renew_lease
        )
        self._renew_lease = renew_lease

    def run(self) -> FoldResult:
        """Train to the end, from the folder's checkpoint if it has one.

        A damaged checkpoint is removed with a warning, and the previous one is used. If that is
        damaged too, or ``model.pt`` of a finished run is, the training starts over.

        Raises:
            Diverged: the loss or an embedding is NaN or infinite.
            UsageError: the loss has no gradient, or the batch does not fit the data.
        """
        saved = self.checkpoints.load()
        if isinstance(saved, FoldResult):
            return saved
        with allow_tf32(self.device, self.task.training.tf32):
            return self._run(saved)

    def _run(self, saved: State | None) -> FoldResult:
        """Train from a saved state, or from the beginning if it is ``None``."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        self.build()
        if saved is None:
            fit_first_values(self.task, self.module, self.train_set, self.batches)
        else:
            self.progress.load_state_dict(saved["progress"])
            self._restore(saved)
        self.checkpoints.remove_unused()
        self.records = self._open_records() if self.strategy.is_main else None
        try:
            if saved is None:
                self._evaluate_untrained()
            self._train_phases()
            if self.records is not None:
                self.records.save()  # first, since a finished run never writes them again
            return self._finish()
        except LeaseLost:
            if self.records is not None:
                self.records.discard()  # the folder now belongs to another worker
            raise
        finally:
            self.module.release()
            if self.records is not None:
                self.records.save()

    def build(self) -> None:
        """Build the network, the loss and the batches."""
        task, training = self.task, self.task.training
        shape = input_shape(self.train_set, training.augmentation)
        classes = self.train_set.num_classes
        self.module = TrainingModule(task, classes, shape, self.device, self.strategy)
        self.network, self.loss = self.module.network, self.module.loss
        self.miner = self.module.miner
        owners = {"loss": self.loss, "miner": self.miner}
        # What checkpoints keep of a loss and a miner in addition to their state_dict
        self.attributes = PlainAttributes(owners, self.device)
        self.epoch_length = training.iterations(len(self.train_set))  # in steps
        augmentation = build_augmentation(task.model, training.augmentation, shape)
        self.batches = Batches(
            task, self.train_set, augmentation, shape, self.device, self.strategy
        )
        self.batches.set_classes_per_step(self.loss)  # tells the loss how many classes a step has
        if self.validation is not None:
            self.validation_images = Pipeline(self.validation, augmentation, shape, self.device)
        self.progress = FoldProgress(task)

    # -- training ---------------------------------------------------------------------------

    def _train_phases(self) -> None:
        """Train until the last phase has ended."""
        while True:
            while not self.progress.phase_is_over():
                self._train_epoch()
                if self.progress.evaluation_is_due():
                    self._evaluate()
                    self.checkpoints.save_if_due(self._state)
                self.on_progress(self.progress.report())
                self._stop_if_asked()
            self.progress.end_phase()
            if self.progress.position.phase == 2 or not self.progress.has_second_phase():
                return
            self._begin_second_phase()
            self.checkpoints.save_if_due(self._state)

    def _train_epoch(self) -> None:
        started = time.perf_counter()
        self.mean_loss = self.train_steps(self.epoch_length)
        self.progress.count_epoch(time.perf_counter() - started)

    def train_steps(self, count: int) -> float:
        """Take ``count`` steps and return the mean of their losses.

        Raises:
            Diverged: a loss is not finite. On a CPU every step is checked; on other devices only
                the sum after the last step, since every check waits for the device.
        """
        self.module.train()
        total = torch.zeros((), device=self.device)
        position = self.progress.position
        # All iterations so far, and those that the current weights were trained for.
        spent, trained = position.spent * self.epoch_length, position.epoch * self.epoch_length
        for number, (images, labels) in enumerate(self.batches.take(count)):
            self.module.set_iteration(spent + number, self.epoch_length)
            self.module.scheduled.set(trained + number, self.epoch_length)
            try:
                total += self.module.step(images, labels)
            except Exception:
                self._check_finite(total)  # if the loss has diverged, report that cause
                raise
            if self.device.type == "cpu":
                self._check_finite(total)
        return self._check_finite(total) / count

    def _check_finite(self, total: Tensor) -> float:
        """Return a sum of losses as a number; raise ``Diverged`` if it is not finite."""
        number = float(total)
        if not np.isfinite(number):
            epoch = self.progress.position.epoch + 1
            raise Diverged(f"the loss became {number} in epoch {epoch}")
        return number

    def _stop_if_asked(self) -> None:
        # Several processes cannot stop: they see the signal in different epochs.
        if interrupt.requested() and self.strategy.size == 1:
            self.checkpoints.save(self._state())
            raise interrupt.Stopped

    def _begin_second_phase(self) -> None:
        """Continue with the second-phase values, from the best weights of the first phase.

        If the phases have fixed lengths, training continues from the latest weights.
        """
        if self.validation is not None and self.task.training.second_phase_epochs is None:
            best = self._best_state()
            self.progress.return_to(best["progress"])
            self._restore(best)
        self.checkpoints.best = None
        self.progress.begin_second_phase()
        self.module.enter_second_phase(self.task.settings.second_phase)

    # -- evaluation -------------------------------------------------------------------------

    def _evaluate_untrained(self) -> None:
        """Evaluate the trunk alone as epoch -1, and the untrained network as epoch 0."""
        if self.validation is None:
            return
        for epoch, forward in ((-1, self.network.features), (0, self.network)):
            self.progress.add_untrained(epoch, self._measure(forward))
            self._record()

    def _evaluate(self) -> None:
        """Evaluate the network, and keep its state if it is the best so far."""
        if self.validation is None:
            return
        started = time.perf_counter()
        attributes = recordable_attributes(self.loss, self.miner)
        improved = self.progress.add(self._measure(self.network), self.mean_loss, attributes)
        self._record()
        self.progress.position.seconds += time.perf_counter() - started
        if improved:
            self.checkpoints.best = checkpoints.clone(self._state())

    def _measure(self, forward: Callable[[Tensor], Tensor]) -> dict[str, float]:
        """Return the validation metrics of the embeddings that ``forward`` computes."""
        assert self.validation is not None
        # Each process embeds one part.
        parts = np.array_split(np.arange(len(self.validation)), self.strategy.size)
        with self.module.autocast(), self.module.average.applied():
            batches = self.validation_images.evaluation_batches(parts[self.strategy.rank])
            embeddings = self.strategy.gather_rows(embed(forward, self.network, batches))
        normalize = self.task.settings.normalize_embeddings
        # With ``test``, this is the test set, which may have a gallery.
        queries = self.validation.queries if self.task.selects_on == "test" else None
        metric = self.task.selects_by
        extra_metrics = () if metric in METRICS else (metric,)
        return self.strategy.broadcast(
            evaluate(embeddings, self.validation.labels, normalize, extra_metrics, queries)
        )

    def _open_records(self) -> FoldRecords:
        """Return new records, which begin with the evaluations so far."""
        on_test = self.task.selects_on == "test"
        return FoldRecords(
            self.folder / "records",
            self.progress.history,
            self.task.settings.normalize_embeddings,
            SELECTS_ON_TEST if on_test else self.task.selects_by,
            "test" if on_test else "val",
            self.task.sign,
        )

    def _record(self) -> None:
        """Write the latest row of the history."""
        if self.records is not None:
            self._renew_lease()
            self.records.append(self.progress.history[-1])

    # -- state ------------------------------------------------------------------------------

    def _state(self) -> State:
        """Return the state from which the run can continue."""
        return {
            "finished": False,
            "task": self.task.fingerprint(),
            "progress": self.progress.state_dict(),
            **self.module.state_dict(),
            "miner": self.miner.state_dict() if isinstance(self.miner, nn.Module) else {},
            "attributes": self.attributes.state_dict(),
            "batches": self.batches.state_dict(),
            "random": checkpoints.random_states(self.device),
        }

    def _restore(self, state: State) -> None:
        """Restore what :meth:`_state` returned; the progress must have been restored before."""
        # This sets values of the loss and learning rates, which are not all in the state.
        if self.progress.position.phase == 2:
            self.module.enter_second_phase(self.task.settings.second_phase)
        self.module.load_state_dict(state)
        if isinstance(self.miner, nn.Module):
            self.miner.load_state_dict(state["miner"])
        self.attributes.load_state_dict(state["attributes"])
        self.batches.load_state_dict(state["batches"])
        checkpoints.restore_random_states(state["random"], self.device)

    def _best_state(self) -> State:
        """Return the state with the best validation value of this phase."""
        assert self.checkpoints.best is not None, "every phase ends with an evaluation"
        return self.checkpoints.best

    def _finish(self) -> FoldResult:
        """Save the result and the best (otherwise the latest) weights, and return the result."""
        has_gpu = self.device.type == "cuda"
        result = dataclasses.replace(
            self.progress.result(),
            remarks=self.module.remarks(),
            gpu_memory=torch.cuda.max_memory_allocated(self.device) if has_gpu else 0,
        )
        if self.strategy.is_main:
            has_best = self.validation is not None
            state = self._best_state() if has_best else self.module.state_dict()
            self.checkpoints.save_result(result, state)
        return self.strategy.broadcast(result)
