"""The command and its workers in the test's own process, for tests that are not about processes.

Starting Python and importing torch takes a worker longer than the trainings of most tests. That
processes are started, watched, killed and replaced is tested with real ones, in tests/system and in
tests/reality_check/launch/test_local.py.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import IO, Any, TextIO
from unittest import mock

import optuna
import pytest
import torch

from reality_check.cli.main import main
from reality_check.config.source_code import use_sources
from reality_check.launch.worker import work

#: Warnings that Python hides, and the one that ``reality_check.studies.study`` hides on import.
_HIDDEN = (
    *(DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning),
    optuna.exceptions.ExperimentalWarning,
)


class WorkerInThisProcess:
    """What ``LocalWorkers`` takes for a worker process: it does all its work when first polled."""

    def __init__(
        self, command: Sequence[str], *, stdout: IO[bytes], env: dict[str, str], **_: Any
    ) -> None:
        python, flag, module, out_dir, number, *rest = command
        assert (python, flag, module) == (sys.executable, "-m", "reality_check.launch.worker"), (
            f"only a single process can be replaced, not {command}"
        )
        assert rest[0] == "--folds-at-once"
        self._arguments = Path(out_dir), int(number), int(rest[1])
        self._log, self._environment = Path(stdout.name), env
        self._status: int | None = None

    def poll(self) -> int:
        """Work, unless that is done; return the exit status."""
        if self._status is None:
            threads = torch.get_num_threads()
            with (
                self._log.open("a", encoding="utf-8") as log,
                writing_to(log, log),
                mock.patch.dict(os.environ, self._environment, clear=True),
                torch.random.fork_rng(devices=[]),
            ):
                try:
                    self._status = work(*self._arguments)
                finally:
                    torch.set_num_threads(threads)
        return self._status

    def kill(self) -> None:
        """End it before it has worked."""
        self._status = -9

    def wait(self) -> int:
        """Return the exit status; nobody waits for a worker that was neither polled nor killed."""
        assert self._status is not None
        return self._status


@contextlib.contextmanager
def workers_in_this_process() -> Iterator[None]:
    """Have ``run`` work in this process, one worker after the other."""
    stand_in = SimpleNamespace(Popen=WorkerInThisProcess, DEVNULL=subprocess.DEVNULL)
    with mock.patch("reality_check.launch.local.subprocess", stand_in):
        yield


def run_command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Do what ``python -m reality_check ARGUMENTS`` does in a folder, workers included."""
    out, error = io.StringIO(), io.StringIO()
    with (
        visiting(folder),
        writing_to(out, error),
        workers_in_this_process(),
        torch.random.fork_rng(devices=[]),
    ):
        try:
            status: Any = main(arguments)
        except SystemExit as end:
            status = end.code
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), error.getvalue())


@contextlib.contextmanager
def visiting(folder: Path) -> Iterator[None]:
    """Make a folder the current one; its modules are imported anew, and forgotten afterwards.

    Those that lie in folders of other tests are too: they may have the same names.
    """
    forget_modules(folder)
    for other in Path(tempfile.gettempdir()).glob("pytest-of-*"):
        forget_modules(other)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [str(folder), *sys.path])
        try:
            yield
        finally:
            forget_modules(folder)


def forget_modules(folder: Path) -> None:
    """Have the modules that lie in a folder imported anew: another one has such names too."""
    use_sources(None)  # it has them found in copies that may lie there
    for name, module in list(sys.modules.items()):
        if any(Path(place).is_relative_to(folder) for place in _places(module)):
            del sys.modules[name]
    importlib.invalidate_caches()


def _places(module: ModuleType) -> list[str]:
    """Where a module lies; a package without ``__init__.py`` has folders, and no file."""
    has = getattr(module, "__dict__", {})  # asking a lazy module for an attribute may import it
    return [has["__file__"]] if has.get("__file__") else [*has.get("__path__", ())]


@contextlib.contextmanager
def writing_to(out: TextIO, error: TextIO) -> Iterator[None]:
    """Redirect what is printed, and what a new interpreter would warn of."""

    def show(message: Any, category: Any, file: str, line: int, *_: Any) -> None:
        error.write(warnings.formatwarning(message, category, file, line))

    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(error),
        warnings.catch_warnings(),
    ):
        warnings.resetwarnings()
        for hidden in _HIDDEN:
            warnings.simplefilter("ignore", hidden)
        warnings.showwarning = show
        yield
