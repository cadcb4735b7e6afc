"""The lease of an output folder's server: one at a time, on all machines that see the folder.

PostgreSQL itself notices a second server only on the same machine and in the same container.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reality_check.launch.slurm_queue import OVER, current_job, job_states
from reality_check.utils.errors import UsageError
from reality_check.utils.processes import is_alive, shares_process_ids, this_process

#: Seconds without a renewal after which a successor may take a lease.
STALE = 75.0


class FolderLease:
    """A lease file, which a thread renews until it is released or lost.

    Ages are those of the file system's clock, so that the clocks of machines may differ.

    Args:
        file: the lease, in the folder that it is for.
        stale: seconds without a renewal after which a successor may take it. It is renewed in a
            fifteenth of that time, and counts as lost after two fifths without a renewal.

    Attributes:
        previous: the process that held the lease before and did not release it; empty if none.

    Raises:
        UsageError: another process holds it, or may hold it.
    """

    def __init__(self, file: Path, stale: float = STALE) -> None:
        self._file, self._stale = file, stale
        token = secrets.token_hex(8)
        self._text = json.dumps({**this_process(), "job": current_job(), "token": token})
        self.previous: dict[str, Any] = {}
        try:
            before = file.read_text()
        except FileNotFoundError:
            pass
        else:
            self.previous = _parse(before)
            if refusal := why_held(self.previous, age(file), stale):
                raise UsageError(refusal)
            aside = file.with_name(f"lease.{token}")
            file.rename(aside)  # only one of several successors succeeds
            is_same = aside.read_text() == before
            aside.unlink()
            if not is_same:  # another successor was faster; it notices that its lease is lost
                raise UsageError(_TAKEN)
        try:
            with file.open("x") as new:
                new.write(self._text)
        except FileExistsError:
            raise UsageError(_TAKEN) from None
        self._renewed, self._released = time.monotonic(), threading.Event()
        threading.Thread(target=self._keep, daemon=True).start()

    def is_held(self) -> bool:
        """Return whether the lease was renewed lately, so that no other process can have it."""
        return time.monotonic() - self._renewed < 0.4 * self._stale

    def release(self) -> None:
        """Give the lease back, so that a successor can start at once."""
        self._released.set()
        if self.is_held():
            self._file.unlink(missing_ok=True)

    def _keep(self) -> None:
        """Renew the lease until it is released or lost."""
        while not self._released.wait(self._stale / 15):
            begun = time.monotonic()
            try:
                is_ours = self._file.read_text() == self._text
                if is_ours:
                    os.utime(self._file)
            except FileNotFoundError:
                is_ours = False
            except OSError:
                continue  # the file system may return in time
            if not is_ours:
                self._renewed = -math.inf
                return
            self._renewed = begun


_TAKEN = "another server takes over this folder at the same moment; try again."


def age(file: Path) -> float:
    """Return the seconds since a file was written or renewed, by the clock of its file system."""
    probe = file.with_name(f"now.{secrets.token_hex(4)}")
    probe.touch()
    try:
        return probe.stat().st_mtime - file.stat().st_mtime
    finally:
        probe.unlink()


def why_held(holder: Mapping[str, Any], seconds: float, stale: float = STALE) -> str | None:
    """Return why a lease cannot be taken over; ``None`` if it can.

    Args:
        holder: the process that holds the lease; empty if its text is not complete.
        seconds: the age of the lease.
        stale: the age at which it may be taken over.
    """
    job, host = holder.get("job"), str(holder.get("host", "an unknown machine")).partition("/")[0]
    who = f"process {holder.get('pid')} on {host}" + (f", SLURM job {job}," if job else "")
    if seconds < stale:
        return (
            f"{who} serves this folder (seen {max(seconds, 0):.0f} s ago); if it was killed, try "
            f"again in {stale - seconds:.0f} s."
        )
    if job and job != current_job():  # a job that was requeued has the same number
        state = (job_states([job]) or {}).get(job, "of unknown state: squeue does not answer")
        if state not in OVER:
            return (
                f"{who} served this folder, and SLURM says that the job is {state}; scancel {job}."
            )
    elif holder and shares_process_ids(holder) and is_alive(holder):
        return f"{who} serves this folder, but does not answer; end it first."
    return None


def _parse(text: str) -> dict[str, Any]:
    """Return the holder of a lease; empty if its text is not complete."""
    try:
        return dict(json.loads(text))
    except ValueError:
        return {}
