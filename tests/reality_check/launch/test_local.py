"""Workers as processes of this machine: what they are given, and what becomes of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.paths import ROOT
from support.preloaded import popen_worker
from support.prepared import prepare
from support.spares import with_popen

from reality_check.api import run
from reality_check.config import load_experiment
from reality_check.data.residency import WORKERS_ON_GPU
from reality_check.launch import local, worker
from reality_check.launch.local import LocalWorkers
from reality_check.launch.parallelism import Parallelism
from reality_check.studies.recorded_experiment import RecordedExperiment
from reality_check.training.trainer import Trainer
from reality_check.utils.errors import UsageError, WorkFailed
from reality_check.utils.exit_status import FAILED, UNEXPLAINED, USAGE

#: A loss that notes which GPUs its process sees.
LOSS = """\
import os
import time

from pytorch_metric_learning.losses import ContrastiveLoss


class Noting(ContrastiveLoss):
    def forward(self, *arguments, **options):
        seen = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
        rank = os.environ.get("LOCAL_RANK", "-")
        open(f"seen/{seen} {rank} {os.getpid()}", "w").close()
        end = time.monotonic() + 60  # else one process may do the work of others
        wanted = int(open("wanted").read()) if seen != "all" else 0
        while len(os.listdir("seen")) < wanted and time.monotonic() < end:
            time.sleep(0.02)
        return super().forward(*arguments, **options)
"""


def watch(folder: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Watch one worker that does what ``code`` says."""
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", code, str(folder / "logs" / "worker_0.failure.json")]
    monkeypatch.setattr(LocalWorkers, "_command", lambda self, number: command)
    workers = LocalWorkers(folder, Parallelism())
    try:
        workers.wait(lambda: None)
    finally:
        workers.stop()


# -- how workers end -----------------------------------------------------------------------------


def test_a_worker_that_is_done_ends_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch(tmp_path, "raise SystemExit(0)", monkeypatch)


def test_a_worker_that_cannot_even_say_why_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(WorkFailed, match=r"worker 0 failed and could not write why into .*disk"):
        watch(tmp_path, f"raise SystemExit({UNEXPLAINED})", monkeypatch)


@pytest.mark.parametrize(("status", "error"), [(FAILED, WorkFailed), (USAGE, UsageError)])
def test_the_reason_of_a_worker_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, error: type[Exception]
) -> None:
    told = json.dumps({"status": status, "message": "no such table"})
    code = f"import sys; open(sys.argv[1], 'w').write({told!r}); sys.exit({status})"
    with pytest.raises(error, match="no such table"):
        watch(tmp_path, code, monkeypatch)


def test_a_worker_that_dies_at_once_again_and_again_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with a reason of an earlier start in the folder, which is forgotten."""
    local.write_failure(tmp_path, 0, FAILED, "an old reason")
    with pytest.raises(
        WorkFailed, match=r"ended 4 times in a row .*SIGKILL.*memory was probably short"
    ):
        watch(tmp_path, "import os; os.kill(os.getpid(), 9)", monkeypatch)


def test_a_worker_that_ends_by_an_exception_is_not_said_to_lack_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(WorkFailed, match=r"status 1.* ValueError: odd\. See .*_0\.log") as caught:
        watch(tmp_path, "raise ValueError('odd')", monkeypatch)
    assert "memory" not in str(caught.value)


def test_a_failure_that_cannot_be_written_has_a_status_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "logs").mkdir()
    assert worker.work(tmp_path, 0) == USAGE  # no output folder
    assert "not an output folder" in capsys.readouterr().err
    monkeypatch.setattr(local, "atomic_write", full)
    local.forget_failure(tmp_path, 0)
    assert worker.work(tmp_path, 0) == UNEXPLAINED
    assert "not an output folder" in capsys.readouterr().err


@pytest.mark.usefixtures("workers_in_this_process")
@pytest.mark.parametrize("kind", [ValueError, SystemExit])
def test_a_worker_in_the_process_of_a_test_fails_as_a_process_does(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    def fail(trainer: Trainer) -> None:
        raise kind(f"made up, {os.environ['OMP_NUM_THREADS']} thread")

    monkeypatch.setattr(Trainer, "run", fail)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    with pytest.raises(WorkFailed, match=r"made up, 1 thread.* Full log: .*worker_0\.log"):
        run(load_experiment(tiny), tmp_path)
    log = (tmp_path / "logs" / "worker_0.log").read_text()
    assert "Traceback" in log
    assert f"{kind.__name__}: made up" in log
    told = local.read_failure(tmp_path, 0)
    assert told is not None
    assert told["status"] == FAILED
    assert os.environ["OMP_NUM_THREADS"] == "7"


# -- devices -------------------------------------------------------------------------------------


def see(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Pretend that torch sees so many GPUs."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)


class Started(Exception):
    """Workers would have been started."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What workers of this machine would be started with; they are not."""
    given: list[Any] = []

    def start(*arguments: Any) -> None:
        given.extend(arguments)
        raise Started

    monkeypatch.setattr("reality_check.launch.work.LocalWorkers", start)
    return given


def test_each_worker_is_given_a_device(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[Any]
) -> None:
    see(monkeypatch, 4)
    out = tmp_path / "out"
    with pytest.raises(Started):
        run(load_experiment(tiny), out, Parallelism(3, devices=["1", "cuda:3"]))
    where, parallelism, *_ = started
    assert where == out
    assert parallelism.device_groups() == [("cuda:1",), ("cuda:3",), ("cuda:1",)]
    # On whatever GPU a worker is: it sees no other.
    assert load_experiment(out / "experiment.yaml").device == "cuda"


def test_each_worker_is_told_how_many_have_its_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    see(monkeypatch, 4)
    told: list[dict[str, str]] = []
    popen = SimpleNamespace(Popen=lambda *_, env, **__: told.append(env), DEVNULL=None)
    monkeypatch.setattr(local, "subprocess", popen)
    for devices in ((1, 3), ()):
        LocalWorkers(tmp_path, Parallelism(3, devices=devices))
    assert [env[WORKERS_ON_GPU] for env in told] == ["2", "1", "2", "3", "3", "3"]


def test_without_devices_everything_is_as_the_experiment_says(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, started: list[Any]
) -> None:
    see(monkeypatch, 4)
    with pytest.raises(Started):
        run(load_experiment(tiny, ["device=cuda:2"]), tmp_path / "out", workers=2)
    assert started[:2] == [tmp_path / "out", Parallelism(2)]
    assert started[1].device_groups() == [(), ()]
    assert load_experiment(tmp_path / "out" / "experiment.yaml").device == "cuda:2"


def test_a_gpu_that_is_not_here_is_refused_before_anything_is_written(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    see(monkeypatch, 0)
    with pytest.raises(UsageError, match=r"device cuda:1 is not here: torch .* sees 0 GPUs"):
        run(load_experiment(tiny), tmp_path / "out", Parallelism(devices=[1]))
    with pytest.raises(UsageError, match="devices are for the local launcher"):
        run(load_experiment(tiny), tmp_path / "out", Parallelism(devices=["cpu"], launcher="slurm"))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.xdist_group("processes")
@pytest.mark.parametrize(
    ("devices", "how", "seen"),
    [
        ([("cuda:1",), ("cuda:3",)], {"folds_at_once": 2}, {"1 -", "3 -"}),
        ([("cuda:1", "cuda:2")], {"processes_per_network": 2}, {"1,2 0", "1,2 1"}),
    ],
)
def test_all_processes_of_a_worker_see_its_devices_only(
    tiny: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    devices: list[tuple[str, ...]],
    how: dict[str, int],
    seen: set[str],
) -> None:
    """Pretended GPUs: the networks are trained on the CPU."""
    monkeypatch.setattr(local, "subprocess", with_popen(popen_worker))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (tmp_path / "noting_loss.py").write_text(LOSS)
    (tmp_path / "wanted").write_text(str(2 * len(devices)))
    (tmp_path / "seen").mkdir()
    changes = ["protocol.categories=[aggregate]", "protocol.training.max_epochs=1"]
    method = "methods=[{name: m, loss: noting_loss.Noting, samples_per_class: 2}]"
    out = tmp_path / "out"
    RecordedExperiment(prepare(load_experiment(tiny, [method, *changes]), out).experiment, out)
    (tmp_path / "seen" / f"all - {os.getpid()}").unlink()  # the loss was tried here
    monkeypatch.setattr(Parallelism, "device_groups", lambda self: devices)
    workers = LocalWorkers(out, Parallelism(**how))
    try:
        workers.wait(lambda: None)
    finally:
        workers.stop()
    notes = [note.name.rpartition(" ") for note in (tmp_path / "seen").iterdir()]
    assert {note[0] for note in notes} == seen
    processes = {note[2] for note in notes}
    assert len(processes) == len(notes) == 2 * len(devices)


@pytest.mark.slow
def test_torchrun_starts_by_itself(tmp_path: Path) -> None:
    """Elsewhere it is forked, and so are the workers that it starts; this one finds nothing."""
    words = ["1", str(os.getpid()), str(tmp_path), "0", "--folds-at-once", "1"]
    command = [sys.executable, "-m", "reality_check.launch.torchrun", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == FAILED
    assert "not an output folder" in done.stderr
