"""Forks workers of an experiment, so that one that is killed is replaced in no time.

Called as ``-m support.stress_workers OUT GRACE INTERVAL``. Reads numbers of workers from its
standard input and answers each with the process id of the worker that it has forked; ends with its
input, and all workers with it.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import traceback
from pathlib import Path

from reality_check.launch.worker import work
from reality_check.studies import storage
from reality_check.studies import study as search
from reality_check.training import fold_checkpoints
from reality_check.utils.processes import die_with_parent
from support.disk import do_not_wait_for_the_disk


def be_worker(out: Path, number: int) -> None:
    """Work to the end; never return."""
    status = 1
    try:
        with (out / "logs" / f"worker_{number}.log").open("ab") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        die_with_parent()
        status = work(out, number)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        (out.parent / f"status_{os.getpid()}").write_text(str(status))
        os._exit(status)


def main() -> None:
    """See the head of this file."""
    out, grace, interval = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    storage.HEARTBEAT_INTERVAL, storage.HEARTBEAT_GRACE = interval, grace
    storage.STANDSTILL = grace
    search.MAX_LOST, search.UNSIGNED_GRACE = 10**6, grace
    fold_checkpoints.CHECKPOINT_SECONDS = 0.0
    do_not_wait_for_the_disk()
    logging.basicConfig(format="%(message)s")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that are killed
    for line in sys.stdin:
        assert threading.active_count() == 1, "a fork leaves the other threads behind"
        child = os.fork()
        if child == 0:
            be_worker(out, int(line))
        print(child, flush=True)


if __name__ == "__main__":
    main()
