"""Which settings make a method's steps fast on this GPU: timed once, and kept for all workers."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from pml_extensions.functional import allow_tf32
from reality_check.config.training import LEVERS, GpuSettings
from reality_check.data.sample_set import SampleSet
from reality_check.models.pipeline import build_augmentation, input_shape
from reality_check.training.batches import Batches
from reality_check.training.fold import FoldTask
from reality_check.training.module import TrainingModule
from reality_check.training.strategy import Strategy
from reality_check.utils.environment import describe_gpu
from reality_check.utils.files import atomic_write
from reality_check.utils.locks import locked
from reality_check.utils.text import one_line

#: Seconds after which nothing more is tried.
_ENOUGH = 20.0
#: What is chosen takes at most this share of the time without it: less is the clock's noise.
_FASTER = 0.97
#: Batches that steps take in turn; rounds of steps, and seconds of a round.
_BATCHES, _ROUNDS, _ROUND_SECONDS = 4, 5, 0.04
#: Steps before a graph must have proved itself; scales of float16 are too large at first.
_MOST_WARM_UP = 40
_ENDED = "no CUDA graph, since the process ended in which one was tried"


@dataclass(frozen=True)
class Choice:
    """What a probe chose.

    Attributes:
        gpu: on which it was made.
        settings: by lever whether it is on.
        milliseconds: of a step, by what was on.
        remarks: what could not be tried, and why.
    """

    gpu: str
    settings: dict[str, bool]
    milliseconds: dict[str, float] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def complete(self, asked: GpuSettings) -> GpuSettings:
        """The settings that were asked for, with what they leave open as it was chosen."""
        chosen = {name: self.settings[name] for name in asked.left_open}
        return asked.model_copy(update={"probe": False, **chosen})

    def described(self) -> str:
        """How long steps took, and what could not be tried, to stand behind the settings."""
        times = [f"{name} {ms:g}" for name, ms in self.milliseconds.items()]
        tried = f" (ms a step: {', '.join(times)})" if times else ""
        return "; ".join((tried, *self.remarks))


def chosen(
    path: Path,
    task: FoldTask,
    samples: SampleSet,
    device: torch.device,
    waiting: Callable[[str], None] = lambda holder: None,
) -> Choice:
    """What was chosen before, by whichever worker; else it is tried here, and written down.

    Args:
        path: of the file that keeps it.
        task: whose steps are timed.
        waiting: told the process that tries it just now.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    found = _read(path, task.training.gpu)
    if found is not None:
        return found
    with locked(path.with_suffix(".lock"), waiting):
        found = _read(path, task.training.gpu)
        if found is not None:
            return found
        for found in probe(task, samples, device):
            plain = json.dumps(dataclasses.asdict(found), indent=1)
            atomic_write(path, plain + "\n")
    assert found is not None
    return found


def _read(path: Path, asked: GpuSettings) -> Choice | None:
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        found = Choice(**{**plain, "remarks": tuple(plain["remarks"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return found if set(asked.left_open) <= set(found.settings) else None


def probe(task: FoldTask, samples: SampleSet, device: torch.device) -> Iterator[Choice]:
    """Time steps with each setting that is left open.

    Layout and algorithms of convolutions are tried in every combination, the others one after the
    other. Random numbers of the process are not those of before; a training draws its own.

    Yields:
        What is known so far. A graph is tried last: should the process end by it, then what was
        yielded before is as good as the choice of one that could not.
    """
    trial = _Probe(task, samples, device)
    left = task.training.gpu.left_open
    of_convolutions = [name for name in LEVERS[:2] if name in left]
    for values in itertools.product((False, True), repeat=len(of_convolutions)):
        trial.consider(dict(zip(of_convolutions, values, strict=True)))
    if "fused_optimizers" in left:
        trial.consider({"fused_optimizers": True})
    if "cuda_graph" in left:
        yield dataclasses.replace(trial.choice, remarks=(*trial.choice.remarks, _ENDED))
        trial.consider({"cuda_graph": True})
    yield trial.choice


class _Probe:
    """The best settings so far."""

    def __init__(self, task: FoldTask, samples: SampleSet, device: torch.device) -> None:
        training = task.training
        self._task, self._device, self._begun = task, device, time.perf_counter()
        self._shape = input_shape(samples, training.augmentation)
        self._classes = samples.num_classes
        augmentation = build_augmentation(task.model, training.augmentation, self._shape)
        batches = Batches(task, samples, augmentation, self._shape, device, Strategy())
        self._batches = list(batches.take(_BATCHES))
        self._best = training.on_device("cuda")
        self._seconds, self._losses = math.inf, list[float]()
        off = dict.fromkeys(training.gpu.left_open, False)
        self.choice = Choice(describe_gpu(device), off)

    def consider(self, changes: dict[str, bool]) -> None:
        """Time some settings, and take them if they are the fastest."""
        settings = self._best.model_copy(update=changes)
        name, remarks = settings.described(), []
        if time.perf_counter() - self._begun > _ENOUGH:
            remarks.append(f"{name} was not tried: {_ENOUGH:.0f} s had passed")
        elif name not in self.choice.milliseconds:
            seconds = None
            try:
                with allow_tf32(self._device, self._task.training.tf32):
                    seconds, remarks = self._time(settings)
            except Exception as error:  # if plain steps fail too, the training will say so
                remarks = [f"{name} cannot be used: {one_line(error)}"]
            torch.cuda.empty_cache()
            if seconds is not None:
                self._take(settings, seconds)
        self.choice = dataclasses.replace(self.choice, remarks=(*self.choice.remarks, *remarks))

    def _time(self, settings: GpuSettings) -> tuple[float | None, list[str]]:
        training = self._task.training.model_copy(update={"gpu": settings})
        task = dataclasses.replace(self._task, training=training)
        module = TrainingModule(task, self._classes, self._shape, self._device)
        module.train()
        try:
            losses = [float(module.step(*batch)) for batch in self._batches[:2]]
            self._losses = self._losses or losses
            if not self._are_equal(losses):
                texts = (
                    " and ".join(f"{loss:.6g}" for loss in one) for one in (losses, self._losses)
                )
                words = "{} changes more than rounding: the first losses are {} instead of {}"
                return None, [words.format(settings.described(), *texts)]
            seconds = seconds_of_a_step(module, self._batches)
            if module.captured is None or self._task.training.gpu.cuda_graph is True:
                return seconds, []  # of a graph that was asked for, a training tells
            remarks = [*module.remarks()]
            if not module.captured.is_decided:
                remarks.append("no CUDA graph, since gradients are not finite")
            return (None if remarks else seconds), remarks
        finally:
            module.release()
            module.captured = None  # else a circle would hold the network until it is collected

    def _are_equal(self, losses: list[float]) -> bool:
        """To rounding, the one before the first update and the one after it."""
        training = self._task.training
        exact = training.autocast == "none" and not training.tf32
        return all(
            math.isclose(one, other, rel_tol=1e-2 if exact else 5e-2, abs_tol=1e-6)
            or not (math.isfinite(one) or math.isfinite(other))
            for one, other in zip(losses, self._losses, strict=True)
        )

    def _take(self, settings: GpuSettings, seconds: float) -> None:
        times = {**self.choice.milliseconds, settings.described(): round(1e3 * seconds, 3)}
        self.choice = dataclasses.replace(self.choice, milliseconds=times)
        if seconds < _FASTER * self._seconds:
            self._best, self._seconds = settings, seconds
            on = {name: getattr(settings, name) is True for name in self.choice.settings}
            self.choice = dataclasses.replace(self.choice, settings=on)


def seconds_of_a_step(module: TrainingModule, batches: list[tuple[Tensor, Tensor]]) -> float:
    """The least mean of several rounds: what else is done on a machine only makes it longer."""
    in_turn = itertools.cycle(batches)
    for number in range(_MOST_WARM_UP):
        module.step(*next(in_turn))
        waits_for_proof = module.captured is not None and not module.captured.is_decided
        if number >= _BATCHES and not waits_for_proof:
            break

    def timed(count: int) -> float:
        torch.cuda.synchronize(module.device)
        started = time.perf_counter()
        for _ in range(count):
            module.step(*next(in_turn))
        torch.cuda.synchronize(module.device)
        return (time.perf_counter() - started) / count

    count = max(1, int(_ROUND_SECONDS / max(timed(2), 1e-6)))
    return min(timed(count) for _ in range(_ROUNDS))
