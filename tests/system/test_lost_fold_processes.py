"""What becomes of the processes of a worker when one of them fails, diverges or is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from support.paths import ROOT

from reality_check.evaluation.metrics import Diverged
from reality_check.launch.fold_executors import ProcessExecutor

pytestmark = pytest.mark.xdist_group("processes")
CPU = torch.device("cpu")

FULL_DISK = """
import torch
from pytorch_metric_learning.losses import ContrastiveLoss

class FullDisk(ContrastiveLoss):
    steps = 0

    def forward(self, *arguments):
        self.steps += 1
        if self.steps == 3 and torch.distributed.get_rank() == 0:
            raise OSError(28, "No space left on device")
        return super().forward(*arguments)
"""


def test_an_error_of_the_main_process_alone_ends_the_run(tmp_path: Path, tiny: Path) -> None:
    """The other process waits for its embeddings meanwhile."""
    (tmp_path / "full_disk.py").write_text(FULL_DISK)
    program = """
        import sys
        from reality_check.config import load_experiment
        from reality_check.api import run
        from reality_check.launch.parallelism import Parallelism
        if __name__ == "__main__":
            changes = ["methods=[{name: full, loss: full_disk.FullDisk}]"]
            two = Parallelism(processes_per_network=2)
            run(load_experiment(sys.argv[1], changes), sys.argv[2], two)
    """
    done = run_program(program, tmp_path, str(tiny), str(tmp_path / "out"))
    assert done.returncode == 1
    assert "WorkFailed: full, search: OSError: [Errno 28] No space left on device" in done.stderr


# -- several at once -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """A fold run that tells something, and may fail or say that it began."""

    fold: int = 0
    fails: bool = False
    begun: Path | None = None

    def run(
        self, dataset: None, device: torch.device, on_progress: Any, *more: Any, renew_lease: Any
    ):  # type: ignore[no-untyped-def]
        on_progress({"fold": self.fold})
        if self.begun is not None:
            self.begun.write_text("trains")
        if self.fails:
            raise Diverged("the loss became nan")
        return self.fold


def load() -> None:
    """A data set."""


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_divergence_leaves_no_files_and_threads_open() -> None:
    runner = ProcessExecutor(1, load, CPU)  # type: ignore[arg-type]
    told: list[dict[str, Any]] = []
    left = []
    for number in range(3):
        jobs: Sequence[Any] = [Job(2 * number), Job(2 * number + 1, fails=True)]
        with pytest.raises(Diverged):
            runner.run(jobs, told.append)
        left.append((open_files(), threading.active_count()))
    assert left[1:] == left[:1] * 2  # the first time starts a process that multiprocessing keeps
    assert [position["fold"] for position in told] == list(range(6))
    assert runner.run([Job(7)], told.append) == [7]  # type: ignore[list-item, comparison-overlap]
    runner.close()
    assert (open_files(), threading.active_count()) == left[0]


def test_processes_that_lose_their_worker_while_they_import_do_not_train(tmp_path: Path) -> None:
    program = """
        import multiprocessing, os, signal, sys, threading, time
        from pathlib import Path
        import torch
        from reality_check.launch.fold_executors import ProcessExecutor
        from test_lost_fold_processes import Job, load

        def die():
            while not multiprocessing.active_children():
                time.sleep(0.01)
            time.sleep(0.2)  # they have read by now what they are to do
            os.kill(os.getpid(), signal.SIGKILL)

        if __name__ == "__main__":
            runner = ProcessExecutor(1, load, torch.device("cpu"))
            threading.Thread(target=die, daemon=True).start()
            runner.run([Job(begun=Path(sys.argv[1]))], lambda position: None)
    """
    begun = tmp_path / "begun"
    done = run_program(program, tmp_path, str(begun))  # and orphans: they have its output open too
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not begun.exists()


def run_program(program: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    file = folder / "program.py"
    file.write_text(textwrap.dedent(program))
    path = os.pathsep.join(map(str, (folder, Path(__file__).parent, ROOT / "tests", ROOT)))
    return subprocess.run(
        [sys.executable, str(file), *arguments],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
