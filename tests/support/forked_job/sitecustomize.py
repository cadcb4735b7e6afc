"""What Python imports when it starts: a job becomes the shell of a fork, see forked_jobs.py."""

import os
import sys

_WORKERS = (["reality_check", "worker"], ["submitit.core._submit"])


def _words() -> list[str]:
    words = [word for word in sys.orig_argv[1:] if word != "-u"]
    return words[1:] if words[:1] == ["-m"] else []


def _be_shell(address: str, words: list[str]) -> None:
    """Hand over, and end as the fork ends."""
    import json
    import signal
    import socket

    fork = socket.socket(socket.AF_UNIX)
    fork.connect(f"\0{address}")
    passed_on = {signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM}
    asked = {"pid": os.getpid(), "folder": os.getcwd(), "words": words}
    order = json.dumps({**asked, "environment": dict(os.environ)}).encode()
    socket.send_fds(fork, [order], [0, 1, 2])
    for number in passed_on:
        signal.signal(number, lambda number, frame: fork.send(bytes([number])))
    status = int(fork.recv(16))
    if status < 0:
        signal.signal(-status, signal.SIG_DFL) if -status != signal.SIGKILL else None
        os.kill(os.getpid(), -status)
    os._exit(status)


if any(_words()[: len(start)] == start for start in _WORKERS) and "FORKED_JOBS" in os.environ:
    try:
        _be_shell(os.environ["FORKED_JOBS"], _words())
    finally:  # it never becomes the worker itself
        os._exit(1)
