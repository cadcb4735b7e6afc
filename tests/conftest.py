"""What all tests share: one thread, a cache of their own, and clear reasons for skipping."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simulated_cuda
import torch
from simulated_cuda import Device
from support import servers
from support.disk import read_migrations_once
from support.examples import register_profiles
from support.in_process import forget_modules
from support.paths import TINY

from reality_check.data import ImageSet

# Worker processes that tests start inherit these.
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
torch.set_num_threads(1)
register_profiles()
read_migrations_once()

# A shell without job control lets what it starts in the background ignore Ctrl-C, and so would the
# processes that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _has_latex() -> bool:
    """Whether documents with our tables compile: Debian has booktabs in a package of its own."""
    if shutil.which("pdflatex") is None or shutil.which("bibtex") is None:
        return False
    command = ["kpsewhich", "booktabs.sty"]
    return subprocess.run(command, capture_output=True).returncode == 0


#: Bytes: several times what all tests together write.
_MEMORY = 8e9
#: The tests of whole systems begin within this part of all files, so that none is left at the end.
_SPREAD_OVER = 0.5
#: What starts servers, kills processes or opens browsers.
SYSTEM = Path(__file__).parent / "system"
#: Marks that need something of the machine: how to tell that it is there, and what is missing else.
NEEDS = {
    "data": (
        lambda: bool(os.environ.get("REALITY_CHECK_DATA")),
        "REALITY_CHECK_DATA is not set to a folder with omniglot/ and caltech101/",
    ),
    "browser": (lambda: _chromium() is not None, "no Chromium on this machine"),
    # Asked late: the device may be simulated, see tests/simulated_cuda/.
    "gpu": (lambda: torch.cuda.is_available(), "no CUDA device; make test-all simulates one"),
    "slurm": (lambda: shutil.which("slurmctld") is not None, "no SLURM on this machine"),
    "gridengine": (lambda: shutil.which("sge_qmaster") is not None, "no Grid Engine here"),
    "ray": (lambda: shutil.which("ray") is not None, "no Ray on the path"),
    "latex": (_has_latex, "no pdflatex with booktabs on this machine"),
    "postgres": (lambda: _postgres() is not None, "no PostgreSQL on this machine"),
}


def _chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for path in map(shutil.which, names) if path), None)


def _postgres() -> str | None:
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return shutil.which("postgres") or (str(debian[-1]) if debian else None)


def pytest_configure() -> None:
    """Temporary folders lie in memory where there is plenty: waiting for a disk tests nothing."""
    gc.disable()  # until everything is collected: nothing of that is garbage
    memory = Path("/dev/shm")
    given = "TMPDIR" in os.environ or not memory.is_dir()
    if not given and shutil.disk_usage(memory).free > _MEMORY:
        os.environ["TMPDIR"] = str(memory)
        tempfile.tempdir = None  # so that it is looked for again


def pytest_collection_finish() -> None:
    """What is there by now stays: the garbage collector need not look at it again and again."""
    gc.enable()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadgroup`, tests without a group of their own stay together by file."""
    if config.getvalue("dist") != "loadgroup":
        return None
    config.option.loadscopereorder = False  # the order of the tests is that of the next hook
    from support.scheduling import ByGroupOrFile

    return ByGroupOrFile(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Before the processes begin."""
    from support.caches import compile_once

    compile_once(config)


def _is_slow(item: pytest.Item) -> bool:
    """Whether a test is no part of `make test`: by its folder, or by what it needs."""
    if SYSTEM in item.path.parents:
        return True
    marks = {mark.name for mark in item.iter_markers()}
    return not marks.isdisjoint(NEEDS.keys() - {"gpu"})


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Before `-m` selects."""
    if _is_slow(item):
        item.add_marker(pytest.mark.slow)


@pytest.hookimpl(trylast=True)
def _spread(items: list[pytest.Item]) -> list[pytest.Item]:
    """The same with the tests of whole systems, which mostly wait, evenly among the others.

    So one of the processes waits while the others compute. Files and groups stay whole.
    """
    waiting: dict[Any, list[pytest.Item]] = {}
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        if SYSTEM in item.path.parents:
            group = item.get_closest_marker("xdist_group")
            waiting.setdefault(item.path if group is None else group.args, []).append(item)
        else:
            files.setdefault(item.path, []).append(item)
    step = _SPREAD_OVER * len(files) / max(1, len(waiting))
    places = [round(number * step) for number in range(len(waiting))]
    ordered: list[pytest.Item] = []
    # Groups are of several files, which one process does one after the other: these begin first.
    longest_first = sorted(waiting, key=lambda block: isinstance(block, Path))
    blocks = [(place, waiting[block]) for place, block in zip(places, longest_first, strict=True)]
    for number, file in enumerate(files.values()):
        while blocks and blocks[0][0] <= number:
            ordered += blocks.pop(0)[1]
        ordered += file
    return [*ordered, *(item for _, block in blocks for item in block)]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if getattr(config.option, "loadgroup", False):  # in a worker of pytest-xdist
        grouped = [item for item in items if item.get_closest_marker("xdist_group")]
        if not all("@" in item.nodeid for item in grouped):
            raise pytest.UsageError(
                "pytest-xdist does not group tests with this pytest, so that servers would run "
                "twice at a time; install the versions that setup.cfg names."
            )
        # What takes long begins first, so that no process is left alone with it at the end.
        slow = {item.path for item in items if item.get_closest_marker("slow")}
        items.sort(key=lambda item: item.path not in slow)
        items[:] = _spread(items)
    for mark, (is_there, reason) in NEEDS.items():
        marked = [item for item in items if item.get_closest_marker(mark)]
        if marked and not is_there():
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Data sets are made in a folder of the tests, not in the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    before = os.environ.get("REALITY_CHECK_CACHE")
    os.environ["REALITY_CHECK_CACHE"] = str(folder)
    yield folder
    if before is None:
        del os.environ["REALITY_CHECK_CACHE"]
    else:
        os.environ["REALITY_CHECK_CACHE"] = before


@pytest.fixture(scope="module", autouse=True)
def forget_user_modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a file of tests imports from folders of its own is unknown to the next file."""
    yield
    folder = tmp_path_factory.getbasetemp()
    forget_modules(folder)
    sys.path[:] = [path for path in sys.path if not Path(path).is_relative_to(folder)]


@pytest.fixture
def simulated_gpu() -> Device:
    """The simulated device, for tests of what a real one does not show."""
    device = simulated_cuda.current()
    if device is None:
        pytest.skip("it asks the simulated GPU what it has seen; this one is real")
    return device


MakeImages = Callable[..., ImageSet]


@pytest.fixture(scope="session")
def make_images() -> MakeImages:
    """A function that makes classes of noisy 16 x 16 patterns."""

    def make(classes: int = 8, each: int = 6, seed: int = 0, name: str = "patterns") -> ImageSet:
        draw = np.random.default_rng(seed)
        patterns = draw.uniform(0, 255, (classes, 1, 16, 16, 1))
        images = np.clip(patterns + draw.normal(0, 60, (classes, each, 16, 16, 1)), 0, 255)
        return ImageSet(
            images.reshape(-1, 16, 16, 1).astype(np.uint8),
            np.repeat(np.arange(classes), each),
            tuple(f"class {label}" for label in range(classes)),
            name,
        )

    return make


@pytest.fixture
def workers_in_this_process() -> Iterator[None]:
    """``run`` works in this process: see :mod:`support.in_process`."""
    from support import in_process  # it imports all that a run needs

    with in_process.workers_in_this_process():
        yield


@pytest.fixture(scope="module")
def blank_figures() -> Iterator[None]:
    """Reports that this process writes have blank figures."""
    from support import blank_figures  # it imports matplotlib

    with blank_figures.blank_figures():
        yield


@pytest.fixture(scope="session")
def tiny() -> Path:
    """The YAML of a whole experiment that takes seconds; overrides change it."""
    return TINY


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """A PostgreSQL of the tests' own (``servers.Postgres``); whoever stops it starts it again."""
    if servers.Postgres.missing() is not None:
        pytest.skip(f"{servers.Postgres.missing()} is not installed")
    pytest.importorskip("psycopg")
    made = servers.Postgres()
    yield made
    made.close()
