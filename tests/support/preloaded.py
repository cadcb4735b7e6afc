"""Commands and workers whose imports are done, which saves 4 s of computing for each.

They are forked from one process that has imported everything. All else is as it is for a user: the
command is a process, its workers are its children, and each can be killed alone. That commands and
workers start by themselves too is for the tests that use :mod:`support.command`.
"""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from reality_check.cli.main import main as be_command
from reality_check.launch import local, worker
from support.blank_figures import blank
from support.disk import do_not_wait_for_the_disk

#: Attributes of modules, by the module's name, that are to be others.
Settings = dict[str, dict[str, Any]]
_WORKER = [sys.executable, "-m", "reality_check.launch.worker"]
_BLANK: Settings = {"reality_check.report.figures.plotting": {"render": blank}}
_IMPORTED = ["support.preloaded", "reality_check.api", "reality_check.cli.summary", "torch._dynamo"]


def be_worker(words: tuple[str, ...]) -> int:
    """Be ``python -m reality_check.launch.worker`` with these arguments."""
    sys.argv = ["worker", *words]
    return worker.main()


class Started:
    """A running command, or another program.

    Args:
        folder: where it runs.
        log: the file that what it says is appended to; see :meth:`said` and :meth:`complaints`.
        words: its arguments; those after ``reality-check``.
        program: what it is.
        spares: how many workers can be forked, those that replace others too.
        settings: constants that are to be others in the command and its workers.
        figures: whether a report has its figures, which take as long as all else of it.
        environment: this process's, if it is not given.
        errors: the file of its standard error, if that is not to have one of its own.
    """

    def __init__(
        self,
        folder: Path,
        log: Path,
        *words: str,
        program: Callable[[tuple[str, ...]], int] = be_command,
        spares: int = 4,
        settings: Settings | None = None,
        figures: bool = False,
        environment: dict[str, str] | None = None,
        errors: Path | None = None,
    ) -> None:
        self._log, self._errors = log, errors or log.with_name(f"{log.name}.errors")
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_IMPORTED)
        settings = {**({} if figures else _BLANK), **(settings or {})}
        variables = dict(os.environ if environment is None else environment)
        outputs = (log, self._errors)
        order = _Order(folder, outputs, program, words, spares, settings, variables)
        self._process = context.Process(target=order.obey)
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    def said(self) -> str:
        """What it and earlier ones with this log have written to the standard output so far."""
        return _text(self._log)

    def complaints(self) -> str:
        """The same of the standard error."""
        return _text(self._errors)

    def poll(self) -> int | None:
        """Its exit status if it has ended, or the negative number of the signal that ended it."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, once it has ended."""
        self._process.join(timeout)
        status = self.poll()
        assert status is not None, f"it still runs after {timeout:g} s: {self.complaints()}"
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _text(log: Path) -> str:
    return log.read_text() if log.exists() else ""


def popen_worker(words: list[str], **options: Any) -> Any:
    """In place of ``Popen`` where this process starts workers: they are no children of it."""
    assert words[:3] == _WORKER
    assert words[-2:-1] == ["--parent"]
    log = Path(os.path.abspath(options["stdout"].name))
    return Started(
        Path.cwd(),
        log,
        *words[3:-2],
        program=be_worker,
        spares=0,
        environment=options["env"],
        errors=log,
    )


def with_popen(popen: Callable[..., Any]) -> Any:
    """The module ``subprocess`` with another ``Popen``."""
    return SimpleNamespace(**{**vars(subprocess), "Popen": popen})


@dataclass(frozen=True)
class _Order:
    """What a forked process is to do."""

    folder: Path
    outputs: tuple[Path, Path]
    program: Callable[[tuple[str, ...]], int]
    words: tuple[str, ...]
    spares: int
    settings: Settings
    environment: dict[str, str]

    def obey(self) -> None:
        """Be the program, as if ``python -m`` had started it in the folder."""
        _write_into(*self.outputs)
        do_not_wait_for_the_disk()
        os.environ.clear()
        os.environ.update(self.environment)
        os.chdir(self.folder)
        sys.path.insert(0, str(self.folder))
        for module, values in self.settings.items():
            for name, value in values.items():
                assert hasattr(sys.modules[module], name), (module, name)
                setattr(sys.modules[module], name, value)
        spares: list[_Spare] = []
        for _ in range(self.spares):
            spares.append(_Spare(spares))

        def popen(words: list[str], **options: Any) -> Any:
            if words[:3] != _WORKER or not spares:
                return subprocess.Popen(words, **options)
            return spares.pop(0).begin(words[3:], options["env"], options["stdout"].name)

        local.subprocess = with_popen(popen)
        sys.exit(self.program(self.words))


class _Spare:
    """A child that waits for the order to be a worker; what of ``Popen`` its parent asks for.

    It is forked before its parent has opened a storage or computed anything.
    """

    def __init__(self, earlier: list[_Spare]) -> None:
        reading, self._writing = os.pipe()
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            for other in (*earlier, self):  # so that only the parent's end keeps them waiting
                os.close(other._writing)
            _be_spare(reading)
        os.close(reading)

    def begin(self, words: list[str], environment: dict[str, str], log: str) -> _Spare:
        """Be the worker with these arguments."""
        with os.fdopen(self._writing, "w") as pipe:
            json.dump([words, environment, os.path.abspath(log)], pipe)
        return self

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self) -> int:
        while (status := self.poll()) is None:
            time.sleep(0.01)
        return status

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def _be_spare(reading: int) -> None:
    """Wait, then be a worker; never return."""
    status = 1
    try:
        with os.fdopen(reading) as pipe:
            text = pipe.read()
        if text:  # else the parent has ended without need of it
            words, environment, log = json.loads(text)
            os.setsid()
            _write_into(Path(log), Path(log))
            os.environ.clear()
            os.environ.update(environment)
            status = be_worker(tuple(words))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _write_into(*outputs: Path) -> None:
    """Let both outputs go to the ends of files, line by line."""
    for stream, path in zip((sys.stdout, sys.stderr), outputs, strict=True):
        assert isinstance(stream, io.TextIOWrapper)
        with path.open("ab") as file:
            os.dup2(file.fileno(), stream.fileno())
        stream.reconfigure(line_buffering=True)
