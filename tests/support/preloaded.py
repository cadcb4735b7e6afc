"""Commands and workers whose imports are done, which saves 4 s of computing for each.

They are forked from one process that has imported everything. All else is as it is for a user: the
command is a process, its workers are its children, and each can be killed alone. That commands and
workers start by themselves too is for the tests that use :mod:`support.command`.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import pkgutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reality_check.cli.main import main as be_command
from support import spares
from support.blank_figures import BlankFiles
from support.disk import do_not_wait_for_the_disk, read_migrations_once
from support.pace import slowness

read_migrations_once()

#: Attributes of modules or classes, by their names, that are to be others.
Settings = dict[str, dict[str, Any]]
_BLANK: Settings = {"reality_check.report.figures.plotting.ReportFigure": {"files": BlankFiles()}}
_IMPORTED = [
    "support.preloaded",
    "reality_check.api",
    "reality_check.cli.run_summary",
    "reality_check.launch.open_folder",
    "reality_check.launch.local",
    "torch._dynamo",
    # What is imported where it is used: for a storage, clusters, raw input, binary codes.
    "alembic.command",
    "sklearn.metrics",
    "sklearn.decomposition",
    "faiss",
    "support.figure_drawn",
]


class Started:
    """A running command, or another program.

    Args:
        folder: where it runs.
        log: the file that what it says is appended to; see :meth:`said` and :meth:`complaints`.
        words: its arguments; those after ``reality-check``.
        program: what it is.
        spares: how many processes it can fork where it would start them, those that replace
            others too. Its workers have as many as they need.
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


def succeed(
    folder: Path, program: Callable[[tuple[str, ...]], int], *words: object, **options: Any
) -> None:
    """Do in a process of its own what ends well; see :class:`Started`."""
    process = Started(folder, folder / "log", *map(str, words), program=program, **options)
    assert process.wait(300 * slowness()) == 0, process.complaints()


def _text(log: Path) -> str:
    return log.read_text() if log.exists() else ""


def popen_worker(command: list[str], **options: Any) -> Any:
    """In place of ``Popen`` where this process starts workers: they are no children of it."""
    program = spares.module_of(command)
    assert program is not None, f"only workers can be replaced, not {command}"
    module, words = program
    log = Path(os.path.abspath(options["stdout"].name))
    if module == spares.WORKER:
        assert words[-2] == "--parent"
        be, words = spares.be_worker, words[:-2]
    else:
        be = _be_torchrun
    given = {"environment": options["env"], "errors": log}
    return Started(Path.cwd(), log, *words, program=be, spares=0, **given)


def _be_torchrun(words: tuple[str, ...]) -> int:
    """Be torchrun whose parent, words[1], is the process that has forked this one."""
    return spares.be_torchrun((words[0], str(os.getppid()), *words[2:]))


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
        for owner, values in self.settings.items():
            for name, value in values.items():
                found = pkgutil.resolve_name(owner)
                assert name in vars(found), (owner, name)
                setattr(found, name, value)
        spares.fork_ahead(self.spares)
        sys.exit(self.program(self.words))


def _write_into(*outputs: Path) -> None:
    """Let both outputs go to the ends of files, line by line."""
    for stream, path in zip((sys.stdout, sys.stderr), outputs, strict=True):
        assert isinstance(stream, io.TextIOWrapper)
        with path.open("ab") as file:
            os.dup2(file.fileno(), stream.fileno())
        stream.reconfigure(line_buffering=True)
