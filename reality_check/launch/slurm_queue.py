"""The states of SLURM jobs, by SLURM's own commands."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Iterable, Sequence

from reality_check.utils.errors import UsageError

#: The state of a job that SLURM does not know any more.
GONE = "GONE"
#: The processes of a job end, or have ended; then it is over, or it is queued again.
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


def job_states(jobs: Sequence[str]) -> dict[str, str] | None:
    """Return SLURM's state of each job; ``None`` if the controller does not answer.

    Jobs that ended some minutes ago are known to the accounting only; where there is none, they
    are ``GONE``.
    """
    queue = _ask("squeue", "--me", "--noheader", "--array", "--states=all", "--format=%i|%T")
    if queue is None:
        return None
    states = _parse(queue)
    missing = [job for job in jobs if job not in states]
    if missing:
        accounting = _ask(
            "sacct", "-X", "-n", "-P", "-o", "JobID,State", "-j", ",".join(sorted(missing))
        )
        states = {**_parse(accounting or ""), **states}
    return {job: states.get(job, GONE) for job in jobs}


def _parse(lines: str) -> dict[str, str]:
    """Parse lines such as ``12_0|CANCELLED by 0``; the last line of a job counts."""
    pairs = (line.split("|", 1) for line in lines.splitlines() if "|" in line)
    return {job: state.split()[0].rstrip("+") for job, state in pairs if state.strip()}


def states_or_complain(jobs: Sequence[str]) -> dict[str, str]:
    """Return the state of each job; an unknown state would lead to jobs submitted twice."""
    if not jobs:
        return {}
    states = job_states(jobs)
    if states is None:
        raise UsageError(
            "SLURM does not answer (squeue), so it is not known whether the jobs of this folder "
            f"({', '.join(jobs)}) still run; try again later."
        )
    return states


def require_slurm() -> None:
    """Make sure that jobs can be submitted from here."""
    if importlib.util.find_spec("submitit") is None:
        raise UsageError(
            "--launcher slurm needs submitit; write pip install 'pml-extensions[slurm]'."
        )
    if shutil.which("sbatch") is None or shutil.which("squeue") is None:
        raise UsageError(
            "there is no SLURM here (no sbatch on the path); call this on the cluster's login "
            "node, or leave --launcher slurm out."
        )


def _ask(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def cancel(jobs: Iterable[str], *options: str) -> None:
    """End jobs; ``options`` are those of ``scancel``."""
    names = list(jobs)
    if names:
        _ask("scancel", *options, *names)
