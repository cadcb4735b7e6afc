"""Exit statuses of processes."""

from __future__ import annotations

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
#: Of a worker besides: it was asked to stop; or it failed and could not even write why.
STOPPED, UNEXPLAINED = 75, 74
#: Of a worker one of whose fold processes was killed, as if it had been itself.
LOST = 137

#: How `--help` explains them.
STATUSES = "exit status: 0 done, 1 a training failed, 2 wrong usage, 130 stopped"
