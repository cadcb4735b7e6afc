"""A SLURM for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.one_machine_slurm import OneMachineSlurm, running


@pytest.fixture(scope="session")
def one_machine_slurm() -> Iterator[OneMachineSlurm]:
    """A running SLURM."""
    with running(OneMachineSlurm) as slurm:
        yield slurm


@pytest.fixture
def slurm(
    one_machine_slurm: OneMachineSlurm, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OneMachineSlurm]:
    """A running SLURM without jobs, which commands of this process speak to."""
    monkeypatch.setenv("SLURM_CONF", str(one_machine_slurm.config))
    yield one_machine_slurm
    one_machine_slurm.cancel_all()
