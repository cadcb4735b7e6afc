"""A scheduler of which only the commands are known, by the templates of the experiment."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from reality_check.config.command import Command
from reality_check.launch.local import ENVIRONMENT
from reality_check.launch.slurm_queue import GONE
from reality_check.utils.errors import UsageError

#: Seconds after which a command of the scheduler is given up.
_TIMEOUT = 120


class CommandScheduler:
    """A :class:`~reality_check.launch.jobs.Scheduler` by commands of a shell.

    Args:
        templates: the commands.
        name: the name of the experiment.
        out_dir: the output folder.
        folds_at_once: the number of folds of a trial that each worker trains at a time.
    """

    job, folder, refusal = "job", "jobs", ""

    def __init__(self, templates: Command, name: str, out_dir: Path, folds_at_once: int) -> None:
        self._templates, self._name = templates, name
        self._out_dir, self._folds_at_once = out_dir.resolve(), folds_at_once

    def submit(self, numbers: Sequence[int]) -> Iterator[str]:
        """See :class:`~reality_check.launch.jobs.Scheduler`."""
        logs = self._out_dir / "logs" / self.folder
        logs.mkdir(parents=True, exist_ok=True)
        for number in numbers:
            status, output, errors = _run(
                self._templates.submit,
                command=self._command(number),
                log=logs / f"worker_{number}.log",
                name=f"reality-check-{self._name}",
                worker=number,
                folder=self._out_dir,
            )
            found = re.search(self._templates.number, output)
            if status != 0 or found is None:
                said = _last_line(errors) or _last_line(output) or f"exit status {status}"
                what = "has failed" if status != 0 else "printed no number of a job"
                raise UsageError(
                    f"command.submit {what}: {said}. Change command: in the experiment, or "
                    "write --command KEY=VALUE."
                )
            yield found[1]

    def states(self, jobs: Sequence[str]) -> dict[str, str] | None:
        """See :class:`~reality_check.launch.jobs.Scheduler`."""
        states = {}
        for job in jobs:
            state = self._state(job)
            if state is None:
                return None
            states[job] = state
        return states

    def end(self, jobs: Iterable[str], only_waiting: bool = False) -> None:
        """See :class:`~reality_check.launch.jobs.Scheduler`."""
        for job in jobs:
            if not only_waiting or self._state(job) == "PENDING":
                _run(self._templates.end, job=job, folder=self._out_dir)

    def _state(self, job: str) -> str | None:
        status, *said = _run(self._templates.state, job=job, folder=self._out_dir)
        text, waiting, gone = "\n".join(said), self._templates.waiting, self._templates.gone
        if status is not None and (re.search(gone, text) if gone is not None else status != 0):
            return GONE
        if status != 0:
            self.refusal = _last_line(text).partition(". ")[0]
            return None
        return "PENDING" if waiting is not None and re.search(waiting, text) else "RUNNING"

    def _command(self, number: int) -> list[str]:
        """Return the command line of a worker, with the whole path of this Python."""
        words = ["env", *(f"{variable}=1" for variable in ENVIRONMENT), sys.executable, "-m"]
        words += ["reality_check", "worker", str(self._out_dir), "--number", str(number)]
        return [*words, "--folds-at-once", str(self._folds_at_once)]


def _last_line(text: str) -> str:
    """Return the last line, where programs say what is wrong, without a period."""
    return text.strip().rpartition("\n")[2].rstrip(".")


def _run(template: str, **values: object) -> tuple[int | None, str, str]:
    """Fill in and run a command; return status, output and errors, without status if it hangs."""
    quoted = {
        name: shlex.join(value) if isinstance(value, list) else shlex.quote(str(value))
        for name, value in values.items()
    }
    try:
        result = subprocess.run(
            template.format_map(quoted),
            shell=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
            check=False,
            start_new_session=True,  # Ctrl-C reaches only this process
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, "", str(error)
    return result.returncode, result.stdout, result.stderr
