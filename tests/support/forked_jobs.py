"""Jobs of a scheduler whose workers are forked with all imports done, which saves 7 s for each.

The job's own process begins as on any cluster, by the scheduler and its script. Once it is Python
(support/forked_job/sitecustomize.py), it hands its arguments, environment, folder and files to a
process here, which forks what the job would have become. From then on the job's process is a shell
around the fork: it passes on all signals, pauses and continues with it, ends as it ends, and takes
it along when it is killed. That jobs start by themselves too is for the tests without this.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import signal
import socket
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

from support import spares
from support.pace import wait_until
from support.preloaded import Started

#: The folder of the module that Python imports when it starts.
_SITE = Path(__file__).with_name("forked_job")
#: How many folds a worker can train at a time, each in a process that is forked too.
_FOLDS = 2


@contextmanager
def forking(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the workers of all jobs that get this process's environment forked."""
    address = f"reality-check-jobs-{os.getpid()}-{folder.name}"
    server = Started(folder, folder / "jobs.log", address, program=_serve, spares=0)
    wait_until(server.said, 60)
    patch.setenv("FORKED_JOBS", address)
    patch.setenv("PYTHONPATH", str(_SITE), prepend=os.pathsep)
    try:
        yield
    finally:
        server.kill()
        server.wait(60)


def _serve(words: tuple[str, ...]) -> int:
    parent = os.getppid()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who attend to jobs
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0{words[0]}")
        server.listen(16)
        server.settimeout(0.5)
        print("listening", flush=True)
        while os.getppid() == parent:
            try:
                job, _ = server.accept()
            except TimeoutError:
                continue
            if os.fork() == 0:
                server.close()
                _attend(job)
            job.close()
    return 1


def _attend(job: socket.socket) -> NoReturn:
    """Fork what a job is to be, and tie the job's process and the fork together."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        job.settimeout(None)
        order, files, *_ = socket.recv_fds(job, 1 << 20, 3)
        asked = json.loads(order)
        pid = os.fork()
        if pid == 0:
            job.close()
            spares.end_after(_be, asked, files)
        _tie(job, asked["pid"], pid)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _tie(job: socket.socket, outer: int, pid: int) -> None:
    """Do to the fork what is done to the job's process until one of both has ended."""
    ended, stopped = os.pidfd_open(pid), False
    while True:
        ready, *_ = select.select([job, ended], [], [], 0.1)
        if ended in ready:
            _, status = os.waitpid(pid, 0)
            job.sendall(str(os.waitstatus_to_exitcode(status)).encode())
            return
        if job in ready:
            signals = job.recv(64)
            for number in signals or [signal.SIGKILL]:
                os.kill(pid, number)
            if not signals:  # the job's process is gone
                return
        if stopped != _is_stopped(outer):
            stopped = not stopped
            os.kill(pid, signal.SIGSTOP if stopped else signal.SIGCONT)


def _is_stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


def _be(asked: dict[str, Any], files: list[int]) -> None:
    """Be ``python -m MODULE WORDS`` in a session, a folder and with files of its own."""
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    spares.fork_ahead(_FOLDS)
    module, *words = asked["words"]
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
