"""A worker: one process that asks the storage for work until none is left."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch

from reality_check.campaign import Campaign
from reality_check.errors import UsageError
from reality_check.launch.local import DONE, FAILED, USAGE, write_progress
from reality_check.output import load_locked
from reality_check.processes import die_with_parent, this_process
from reality_check.search import WorkFailed


def work(out_dir: Path, number: int) -> int:
    """Work on the experiment of an output folder until nothing is left; return an exit status."""
    torch.set_num_threads(1)
    worker = this_process()

    def on_progress(state: dict[str, Any]) -> None:
        state = {"worker": worker, "time": time.time(), **state}
        with contextlib.suppress(OSError):
            write_progress(out_dir, number, json.dumps(state))

    try:
        Campaign(load_locked(out_dir), out_dir, on_progress).work()
    except UsageError as error:
        print(error, file=sys.stderr)
        return USAGE
    except WorkFailed as error:
        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        print(error, file=sys.stderr)
        return FAILED
    except Exception as error:
        traceback.print_exc()
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return FAILED
    return DONE


def main() -> int:
    """Entry point of ``python -m reality_check.launch.worker DIR NUMBER PARENT``."""
    out_dir, number, parent = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    die_with_parent()
    if os.getppid() != parent:
        return FAILED
    # Started with -m, so the current folder is already on the path: the user's own loss.
    return work(out_dir, number)


if __name__ == "__main__":
    sys.exit(main())
