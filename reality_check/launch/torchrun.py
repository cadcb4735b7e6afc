"""Starts, with torchrun, the processes of one worker that train each network together."""

from __future__ import annotations

import argparse
import os
import sys

from torch.distributed.run import main as torchrun

from reality_check.utils.exit_status import FAILED
from reality_check.utils.processes import die_with_parent


def main() -> int:
    """Entry point of ``python -m reality_check.launch.torchrun COUNT PARENT WORKER...``."""
    parser = argparse.ArgumentParser(prog="python -m reality_check.launch.torchrun")
    parser.add_argument("count", type=int)
    parser.add_argument("parent", type=int)
    parser.add_argument("worker", nargs=argparse.REMAINDER, help="arguments of launch.worker")
    options = parser.parse_args()
    die_with_parent()
    if os.getppid() != options.parent:  # the parent had ended before
        return FAILED
    torchrun_options = ["--standalone", "--nproc-per-node", str(options.count)]
    try:
        torchrun([*torchrun_options, "-m", "reality_check.launch.worker", *options.worker])
    except Exception:
        return FAILED  # the worker has recorded the reason
    return 0


if __name__ == "__main__":
    sys.exit(main())
