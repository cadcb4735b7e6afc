"""Exit statuses of processes."""

from __future__ import annotations

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
#: Asked to stop before the work was done, as ``run --for`` asks too.
STOPPED = 75
#: Used by workers only: failed without being able to record why.
UNEXPLAINED = 74
#: Used by a worker whose fold process was killed, as if the worker itself had been killed.
LOST = 137

#: The explanation in `--help`.
STATUSES = (
    "exit status: 0 done, 1 a training failed, 2 wrong usage, 75 stopped by --for,\n"
    "130 stopped by Ctrl-C"
)
