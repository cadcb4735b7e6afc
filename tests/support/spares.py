"""Processes that are forked ahead, with all imports done, and wait for what they are to be.

Where a process would start a worker, torchrun, or a process of `multiprocessing` by "spawn", one of
its spares becomes that: a child of the same process, with the same arguments, environment, open
files and pickled objects, that can be killed alone. Only its imports are done already.

That such processes start by themselves is seen in tests/system/test_fold_executors.py (results
that are bit-identical) for "spawn", and in tests/reality_check/launch/test_local.py for torchrun.
"""

from __future__ import annotations

import fcntl
import json
import multiprocessing.spawn
import multiprocessing.util
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

from reality_check.launch import local, torchrun, worker

WORKER, TORCHRUN = "reality_check.launch.worker", "reality_check.launch.torchrun"
_SPAWN = "spawn"
#: No file that a spare is given has a number from here on.
_MANY = 1000
_spawnv_passfds = multiprocessing.util.spawnv_passfds


def be_worker(words: tuple[str, ...]) -> int:
    """Be ``python -m reality_check.launch.worker`` with these arguments."""
    folds = int(words[words.index("--folds-at-once") + 1]) if "--folds-at-once" in words else 1
    fork_ahead(folds if folds > 1 else 0)
    sys.argv = ["worker", *words]
    return worker.main()


def be_torchrun(words: tuple[str, ...]) -> int:
    """Be ``python -m reality_check.launch.torchrun`` with these arguments."""
    fork_ahead(int(words[0]))
    sys.argv = ["torchrun", *words]
    return torchrun.main()


_PROGRAMS: dict[str, Callable[[tuple[str, ...]], int]] = {WORKER: be_worker, TORCHRUN: be_torchrun}


def _be(module: str, words: tuple[str, ...]) -> int:
    """Be ``python -m MODULE`` with these arguments."""
    if module in _PROGRAMS:
        return _PROGRAMS[module](words)
    sys.argv = [module, *words]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    return 0


def module_of(command: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
    """Of ``python -m MODULE WORDS`` the module and the words."""
    words = [word for word in command if word != "-u"]
    return (words[2], tuple(words[3:])) if words[:2] == [sys.executable, "-m"] else None


def with_popen(popen: Callable[..., Any]) -> Any:
    """The module ``subprocess`` with another ``Popen``."""
    return SimpleNamespace(**{**vars(subprocess), "Popen": popen})


def fork_ahead(count: int) -> Sequence[object]:
    """Fork spares, which take the places of the first processes that this one starts from now on.

    It must not have threads yet. What is returned are those that still wait; each holds a file.
    """
    spares: list[_Spare] = []
    for _ in range(count):
        spares.append(_Spare(spares))

    def popen(args: Sequence[str], **options: Any) -> Any:
        program = module_of(args)
        if program is None or not spares:
            return subprocess.Popen(args, **options)
        outputs = [(options.get("stdout"), 1), (options.get("stderr"), 2)]
        files = {number: file.fileno() for file, number in outputs if file is not None}
        return spares.pop(0).begin(*program, options["env"], files)

    def spawn(path: Any, command: Sequence[Any], files: Sequence[int]) -> int:
        words = [os.fsdecode(word) for word in command]
        if "--multiprocessing-fork" not in words or not spares:
            return _spawnv_passfds(path, command, files)
        same = {int(number): int(number) for number in files}
        return spares.pop(0).begin(_SPAWN, tuple(words), dict(os.environ), same).pid

    local.subprocess = with_popen(popen)
    subprocess_handler.Popen = popen
    multiprocessing.util.spawnv_passfds = spawn
    return spares


class _Spare:
    """A child that waits for the order to be something; what of ``Popen`` is asked for."""

    def __init__(self, earlier: list[_Spare]) -> None:
        self._order, waiting = socket.socketpair()
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            for other in (*earlier, self):  # so that only the parent's end keeps them waiting
                other._order.close()
            end_after(_be_spare, waiting)
        waiting.close()

    def begin(
        self, what: str, words: tuple[str, ...], environment: dict[str, str], files: dict[int, int]
    ) -> _Spare:
        """Be a program with these arguments, and this process's files under the given numbers."""
        blocked = [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())]
        with self._order as order:
            socket.send_fds(order, [b"!"], list(files.values()))
            order.sendall(json.dumps([what, words, environment, list(files), blocked]).encode())
        return self

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float = float("inf")) -> int:
        end = time.monotonic() + timeout
        while (status := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("a spare", timeout)
            time.sleep(0.01)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _be_spare(order: socket.socket) -> int:
    """Wait, then be what is asked for."""
    begun, files, *_ = socket.recv_fds(order, 1, 16)
    if not begun:  # the parent has ended without need of it
        return 1
    with order.makefile() as text:
        what, words, environment, numbers, blocked = json.load(text)
    order.close()
    os.environ.clear()
    os.environ.update(environment)
    if what == _SPAWN:
        _have_only(dict(zip(numbers, files, strict=True)))
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        _be_spawned(words)
    os.setsid()
    for number, file in zip(numbers, files, strict=True):
        os.dup2(file, number)
        os.close(file)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    return _be(what, tuple(words))


def end_after(work: Callable[..., Any], *arguments: Any) -> NoReturn:
    """Do the work of a fork, and end it as Python ends a program, with the status returned."""
    status: Any = 1
    try:
        status = work(*arguments)
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else status is not None)


def _have_only(files: dict[int, int]) -> None:
    """Have these files under these numbers, besides the standard ones, and no others open."""
    kept = {number: fcntl.fcntl(file, fcntl.F_DUPFD, _MANY) for number, file in files.items()}
    os.closerange(3, _MANY)
    for number, file in kept.items():
        os.dup2(file, number)
        os.close(file)


def _be_spawned(words: list[str]) -> NoReturn:
    """Be a process that `multiprocessing` starts by "spawn"."""
    (call,) = (word for word in words if "spawn_main(" in word)
    given = {name: int(number) for name, number in re.findall(r"(\w+)=(\d+)", call)}
    sys.argv = ["-c", "--multiprocessing-fork"]
    multiprocessing.spawn.spawn_main(**given)
    raise AssertionError("it ends the process")
