"""Exit statuses of processes."""

from __future__ import annotations

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
#: Used by workers only: asked to stop, and failed without being able to record why.
STOPPED, UNEXPLAINED = 75, 74
#: Used by a worker whose fold process was killed, as if the worker itself had been killed.
LOST = 137

#: The explanation in `--help`.
STATUSES = "exit status: 0 done, 1 a training failed, 2 wrong usage, 130 stopped"
