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
from support.pace import slowness
from support.paths import ROOT
from support.preloaded import Started, succeed
from support.spares import fork_ahead

from reality_check.api import run
from reality_check.config import load_experiment
from reality_check.evaluation.scoring import Diverged
from reality_check.launch.fold_executors import ProcessExecutor
from reality_check.launch.parallelism import Parallelism

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


def fill_the_disk(words: tuple[str, ...]) -> int:
    """Run the experiment words[0] with that loss, in the folder words[1]."""
    changes = ["methods=[{name: full, loss: full_disk.FullDisk}]"]
    run(load_experiment(words[0], changes), words[1], Parallelism(processes_per_network=2))
    return 0


def test_an_error_of_the_main_process_alone_ends_the_run(
    tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process waits for its embeddings meanwhile."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    (tmp_path / "full_disk.py").write_text(FULL_DISK)
    words = [str(tiny), str(tmp_path / "out")]
    done = Started(tmp_path, tmp_path / "log", *words, program=fill_the_disk, spares=1)
    assert done.wait(180 * slowness()) == 1
    told = "WorkFailed: full, search: OSError: [Errno 28] No space left on device"
    assert told in done.complaints()


# -- several at once -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """A fold run that tells something, and may fail or say that it began."""

    fold: int = 0
    fails: bool = False
    begun: Path | None = None

    def run(
        self, dataset: None, device: torch.device, on_progress: Any, *more: Any, **options: Any
    ):  # type: ignore[no-untyped-def]
        on_progress({"fold": self.fold})
        if self.begun is not None:
            self.begun.write_text("trains")
        if self.fails:
            raise Diverged("the loss became nan")
        return self.fold


def load() -> None:
    """A data set."""


def diverge_again_and_again(words: tuple[str, ...]) -> int:
    waiting = fork_ahead(4)

    def left() -> tuple[int, int]:
        """How many files and threads are open; the processes forked ahead hold a file each."""
        return len(os.listdir("/proc/self/fd")) - len(waiting), threading.active_count()

    runner = ProcessExecutor(1, load, CPU)  # type: ignore[arg-type]
    told: list[dict[str, Any]] = []
    lefts = []
    for number in range(3):
        jobs: Sequence[Any] = [Job(2 * number), Job(2 * number + 1, fails=True)]
        with pytest.raises(Diverged):
            runner.run(jobs, told.append)
        lefts.append(left())
    # The first time starts a process that multiprocessing keeps.
    assert lefts[1:] == lefts[:1] * 2, lefts
    assert [position["fold"] for position in told] == list(range(6)), told
    assert runner.run([Job(7)], told.append) == [7]  # type: ignore[list-item, comparison-overlap]
    runner.close()
    assert left() == lefts[0]
    assert not waiting, "a process started by itself"
    return 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_divergence_leaves_no_files_and_threads_open(tmp_path: Path) -> None:
    succeed(tmp_path, diverge_again_and_again, spares=0)


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
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
