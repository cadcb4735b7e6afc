"""Leases of folders: who may serve one, and when."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.pace import wait_until

from reality_check.launch import folder_lease
from reality_check.launch.folder_lease import FolderLease, age, why_held
from reality_check.utils.errors import UsageError
from reality_check.utils.processes import this_process

ELSEWHERE = {"host": "node7/boot", "namespace": "pid:[1]", "pid": 5, "started": 1, "token": "a"}


@pytest.fixture
def leave(tmp_path: Path) -> Callable[..., Path]:
    def leave(holder: dict[str, Any] | None, seconds: float) -> Path:
        """Leave a lease that was renewed so long ago."""
        file = tmp_path / "lease"
        file.write_text("" if holder is None else json.dumps(holder))
        then = time.time() - seconds
        os.utime(file, (then, then))
        return file

    return leave


def test_a_lease_is_renewed_and_given_back(tmp_path: Path) -> None:
    file = tmp_path / "lease"
    lease = FolderLease(file, 3.0)
    assert lease.is_held()
    os.utime(file, (0, 0))
    wait_until(lambda: age(file) < 3, 5)
    with pytest.raises(UsageError, match=f"process {os.getpid()} on .* serves this folder"):
        FolderLease(file, 3.0)
    assert lease.is_held()
    lease.release()
    assert list(tmp_path.iterdir()) == []
    FolderLease(file, 3.0).release()


def test_a_fresh_lease_is_refused_and_a_stale_one_taken(leave: Callable[..., Path]) -> None:
    file = leave(ELSEWHERE, 70)
    with pytest.raises(UsageError, match=r"process 5 on node7 .*seen 70 s ago.*again in [45] s"):
        FolderLease(file)
    lease = FolderLease(leave(ELSEWHERE, 76))
    assert lease.previous == ELSEWHERE
    assert [path.name for path in file.parent.iterdir()] == ["lease"]
    lease.release()
    with pytest.raises(UsageError, match="an unknown machine"):  # just being written
        FolderLease(leave(None, 1))
    FolderLease(leave(None, 80)).release()


@pytest.mark.parametrize("text", [None, "{}"])
def test_a_holder_notices_that_its_lease_is_gone(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "lease"
    lease = FolderLease(file, 1.5)
    file.unlink()
    if text is not None:
        file.write_text(text)
    wait_until(lambda: not lease.is_held(), 5)
    lease.release()
    assert file.exists() == (text is not None)  # that of a successor stays


def test_a_process_of_this_machine_must_have_ended() -> None:
    alive = this_process()
    assert "end it first" in str(why_held(alive, 80))
    assert why_held({**alive, "started": -1}, 80) is None  # another process has its number now
    assert why_held(ELSEWHERE, 80) is None


@pytest.mark.parametrize(
    ("states", "refusal"),
    [
        ({"7": "RUNNING"}, "RUNNING"),
        ({"7": "COMPLETING"}, "COMPLETING"),
        (None, "squeue does not answer"),
        ({"7": "NODE_FAIL"}, None),
        ({"7": "GONE"}, None),
    ],
)
def test_a_job_must_have_ended(
    states: dict[str, str] | None, refusal: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_lease, "job_states", lambda jobs: states)
    holder = {**ELSEWHERE, "job": "7"}
    told = why_held(holder, 80)
    assert told is None if refusal is None else refusal in str(told)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert why_held(holder, 80) is None  # this is the same job, which was queued again
    assert "SLURM job 7" in str(why_held(holder, 20))
