"""The number of processes that train at a time, their devices, and their launcher."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from reality_check.config.schema import Experiment
from reality_check.launch.devices import parse_devices, share_out
from reality_check.launch.slurm_queue import require_slurm
from reality_check.utils.errors import UsageError


@dataclass(frozen=True)
class Parallelism:
    """How the work of an experiment is divided among processes.

    Attributes:
        workers: the number of processes that run trials at a time; by default one, or one for each
            of ``devices``.
        folds_at_once: the number of folds of a trial that each worker trains at a time, each in a
            separate process. The results are the same (on GPUs up to the order of sums).
        processes_per_network: the number of processes that train each network together, each on its
            part of the batch (DistributedDataParallel), and on GPUs each on its own GPU. It cannot
            be combined with ``folds_at_once``.
        devices: the devices that the workers of this machine are assigned to in turn, instead of
            the experiment's ``device``: numbers of GPUs (``0`` or ``"cuda:0"``), or ``"cpu"``.
        launcher: ``local`` for processes of this machine, or ``slurm`` or ``command`` for jobs of
            a cluster (see the experiment's blocks of these names), which continue when this process
            ends.
    """

    workers: int | None = None
    folds_at_once: int = 1
    processes_per_network: int = 1
    devices: Sequence[str | int] = ()
    launcher: Literal["local", "slurm", "command"] = "local"

    def check(self, experiment: Experiment) -> None:
        """Make sure that the numbers fit each other, the launcher and the experiment.

        Raises:
            UsageError: the numbers do not fit.
        """
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"workers must be at least 1, got {self.workers}.")
        folds, processes = self.folds_at_once, self.processes_per_network
        if min(folds, processes) < 1 or (folds > 1 and processes > 1):
            raise UsageError(
                f"folds_at_once={folds} and processes_per_network={processes}, but both must be at "
                "least 1 and only one of them more: either several folds at once, or one "
                "network on several processes."
            )
        trainings = map(experiment.training_of, experiment.methods)
        for batch in itertools.chain.from_iterable(each.batch_sizes for each in trainings):
            if batch % processes:
                raise UsageError(
                    f"batch_size={batch} cannot be divided among {processes} processes; write a "
                    f"multiple of {processes}."
                )
        if self.launcher != "local":
            self._check_jobs(experiment)
        if processes > 1 and not self.devices:
            self._check_gpus(experiment.device)

    def device_groups(self) -> list[tuple[str, ...]]:
        """Return the devices of each worker; empty if it uses the experiment's ``device``."""
        return share_out(parse_devices(self.devices), self.workers, self.processes_per_network)

    def on_device(self, experiment: Experiment) -> Experiment:
        """Return the experiment with ``device`` replaced by the kind of ``devices``, if given."""
        devices = parse_devices(self.devices)
        if not devices:
            return experiment
        return experiment.model_copy(update={"device": devices[0].partition(":")[0]})

    def _check_gpus(self, device: str) -> None:
        """Make sure that every process of a network has its own GPU, if it trains on GPUs."""
        count, processes = torch.cuda.device_count(), self.processes_per_network
        if device.startswith("cuda:"):
            raise UsageError(
                f"device={device} is one GPU, but processes_per_network={processes} needs one for "
                "each process; write device: cuda, or name that many by --devices."
            )
        # Without any GPU, auto trains on the CPU.
        if device in ("auto", "cuda") and 0 < count < processes:
            raise UsageError(
                f"processes_per_network={processes} needs a GPU for each process, but this machine "
                f"has {count}; write --processes-per-network {count}, or device: cpu."
            )

    def _check_jobs(self, experiment: Experiment) -> None:
        """Refuse options of the local launcher, and make sure that jobs can be submitted."""
        if self.devices:
            raise UsageError(
                "devices are for the local launcher; the scheduler itself gives each job its GPUs, "
                "see slurm.gpus."
            )
        if self.processes_per_network > 1:
            raise UsageError(
                f"processes_per_network={self.processes_per_network} works with the local launcher "
                f"only; write folds_at_once instead, or call run without --launcher "
                f"{self.launcher} inside a job of yours."
            )
        if self.launcher == "slurm":
            require_slurm()
        elif experiment.command is None:
            raise UsageError(
                "--launcher command needs the commands of the scheduler, as the block command: of "
                "the experiment; docs/cluster.md has those of some schedulers."
            )
