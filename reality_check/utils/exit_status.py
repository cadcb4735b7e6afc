"""Exit statuses of processes."""

from __future__ import annotations

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
#: Of workers only: asked to stop; failed without being able to record why.
STOPPED, UNEXPLAINED = 75, 74
#: Of a worker that had a fold process killed, as if the worker had been killed.
LOST = 137

#: How `--help` explains them.
STATUSES = "exit status: 0 done, 1 a training failed, 2 wrong usage, 130 stopped"
