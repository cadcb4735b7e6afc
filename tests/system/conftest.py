"""What the tests of this folder share: schedulers, and runs that begin soon."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import one_machine_gridengine, one_machine_ray, one_machine_slurm, preloaded, spares
from support.blank_figures import blank_figures
from support.forked_jobs import forking
from support.one_machine_gridengine import OneMachineGridEngine
from support.one_machine_ray import OneMachineRay
from support.one_machine_slurm import OneMachineSlurm
from support.slurm_jobs import Scores, experiment, scores

from reality_check.api import run
from reality_check.launch import jobs, local


@contextlib.contextmanager
def _preloaded_workers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "subprocess", spares.with_popen(preloaded.popen_worker))
        yield


@pytest.fixture(scope="module")
def preloaded_workers() -> Iterator[None]:
    """Workers that this process starts need no imports."""
    with _preloaded_workers():
        yield


@pytest.fixture(scope="session")
def whole_slurm() -> Iterator[OneMachineSlurm]:
    """A running SLURM."""
    with one_machine_slurm.running() as slurm:
        yield slurm


@pytest.fixture
def slurm(
    whole_slurm: OneMachineSlurm, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OneMachineSlurm]:
    """A running SLURM without jobs, which commands of this process speak to, and often."""
    monkeypatch.setenv("SLURM_CONF", str(whole_slurm.config))
    monkeypatch.setattr(jobs, "POLL_SECONDS", 1.0)
    yield whole_slurm
    whole_slurm.cancel_all()


@pytest.fixture(scope="session")
def whole_gridengine() -> Iterator[OneMachineGridEngine]:
    """A running Grid Engine."""
    with one_machine_gridengine.running() as engine:
        yield engine


@pytest.fixture
def gridengine(
    whole_gridengine: OneMachineGridEngine, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OneMachineGridEngine]:
    """A running Grid Engine without jobs, which commands of this process speak to."""
    for name, value in whole_gridengine.variables.items():
        monkeypatch.setenv(name, value)
    whole_gridengine.pass_on("PYTHONPATH", "REALITY_CHECK_CACHE", "FORKED_JOBS")
    yield whole_gridengine
    whole_gridengine.delete_all()


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[OneMachineRay]:
    """A running Ray, which commands of this process speak to."""
    with one_machine_ray.running() as ray:
        for name, value in ray.variables.items():
            monkeypatch.setenv(name, value)
        yield ray


@pytest.fixture
def forked_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Workers of jobs need no imports; Grid Engine has to be asked for afterwards."""
    with forking(tmp_path, monkeypatch):
        yield


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Scores:
    """What one worker that nobody disturbs finds in the experiment of the SLURM jobs."""
    with _preloaded_workers(), blank_figures():
        return scores(run(experiment(), tmp_path_factory.mktemp("alone") / "out"))
