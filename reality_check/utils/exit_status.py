"""Exit statuses of processes."""

from __future__ import annotations

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


#: Exit status of a worker: its work is done, failed, found the user's input unusable, or it was
#: asked to stop; or it failed and could not even write why.
DONE, FAILED, USAGE, STOPPED, UNTOLD = 0, 1, 2, 75, 74

#: How `--help` explains them.
STATUSES = "exit status: 0 done, 1 a training failed, 2 wrong usage, 130 stopped"
