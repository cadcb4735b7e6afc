"""The jobs of a run, and their states from SLURM's own commands."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from reality_check.utils.errors import UsageError

#: The state of a job that SLURM no longer knows.
GONE = "GONE"
#: The state of a job whose processes are ending; then it is over, or it is queued again.
ENDING = "COMPLETING"
#: States after which a job does not run again.
OVER = {
    GONE,
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
}


def recorded_jobs(file: Path) -> dict[int, str]:
    """Return the ids of the jobs in a file, by the numbers of their workers; empty without it."""
    try:
        return {int(n): str(job) for n, job in json.loads(file.read_text()).items()}
    except (OSError, ValueError):
        return {}


def job_states(jobs: Sequence[str]) -> dict[str, str] | None:
    """Return SLURM's state of each job, or ``None`` if the controller does not answer.

    Jobs that ended some minutes ago are known only to SLURM's accounting; without accounting, their
    state is ``GONE``.
    """
    queue = _run_command(
        "squeue", "--me", "--noheader", "--array", "--states=all", "--format=%i|%T"
    )
    if queue is None:
        return None
    states = _parse(queue)
    missing = [job for job in jobs if job not in states]
    if missing:
        accounting = _run_command(
            "sacct", "-X", "-n", "-P", "-o", "JobID,State", "-j", ",".join(sorted(missing))
        )
        states = {**_parse(accounting or ""), **states}
    return {job: states.get(job, GONE) for job in jobs}


def _parse(lines: str) -> dict[str, str]:
    """Return states by job from lines such as ``12_0|CANCELLED by 0``; a job's last line counts."""
    pairs = (line.split("|", 1) for line in lines.splitlines() if "|" in line)
    return {job: state.split()[0].rstrip("+") for job, state in pairs if state.strip()}


def current_job() -> str | None:
    """Return the id of the job that this process belongs to, as :func:`job_states` has it."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    return f"{array}_{task}" if array and task else os.environ.get("SLURM_JOB_ID")


def require_slurm() -> None:
    """Make sure that jobs can be submitted from this machine.

    Raises:
        UsageError: SLURM or submitit is missing.
    """
    if importlib.util.find_spec("submitit") is None:
        raise UsageError(
            "--launcher slurm needs submitit; write pip install 'pml-extensions[slurm]'."
        )
    if shutil.which("sbatch") is None or shutil.which("squeue") is None:
        raise UsageError(
            "there is no SLURM here (no sbatch on the path); call this on the cluster's login "
            "node, or leave --launcher slurm out."
        )


def _run_command(*command: str) -> str | None:
    """Return the output of a command, or ``None`` if it fails or takes too long."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout if result.returncode == 0 else None


def cancel(jobs: Iterable[str], *options: str) -> None:
    """Cancel jobs; ``options`` are passed to ``scancel``."""
    names = list(jobs)
    if names:
        _run_command("scancel", *options, *names)
