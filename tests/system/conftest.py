"""What the tests of this folder share: a SLURM, and runs of their own process that begin soon."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from support import preloaded, spares
from support.blank_figures import blank_figures
from support.one_machine_slurm import OneMachineSlurm, running
from support.slurm_jobs import Scores, experiment, scores

from reality_check.api import run
from reality_check.launch import local
from reality_check.launch import slurm as launcher


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
def one_machine_slurm() -> Iterator[OneMachineSlurm]:
    """A running SLURM."""
    with running() as slurm:
        yield slurm


@pytest.fixture
def slurm(
    one_machine_slurm: OneMachineSlurm, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OneMachineSlurm]:
    """A running SLURM without jobs, which commands of this process speak to, and often."""
    monkeypatch.setenv("SLURM_CONF", str(one_machine_slurm.config))
    monkeypatch.setattr(launcher, "POLL_SECONDS", 1.0)
    yield one_machine_slurm
    one_machine_slurm.cancel_all()


@pytest.fixture(scope="session")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Scores:
    """What one worker that nobody disturbs finds in the experiment of the SLURM jobs."""
    with _preloaded_workers(), blank_figures():
        return scores(run(experiment(), tmp_path_factory.mktemp("alone") / "out"))
