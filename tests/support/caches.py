"""What is compiled once for all processes that test, not by each of them at the same time.

In a fresh clone with a fresh environment that saves each of them 6 s for the assertions of all test
files and 15 s for the libraries; `make` installs these without compiling them.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from _pytest.assertion import rewrite

#: What most of the compiling is for; some of it is not always installed.
_LIBRARIES = (
    "support.preloaded",
    "torch._dynamo",
    "torch._inductor",
    "sklearn.decomposition",
    "matplotlib.figure",
    "torchvision",
    "timm",
    "datasets",
)
_IMPORT = """\
import contextlib, importlib, sys
for name in sys.argv[1:]:
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
"""


def compile_once(config: pytest.Config) -> None:
    """Fill the caches beside the files that are to be collected, and those of libraries."""
    if sys.dont_write_bytecode:
        return
    for given in config.args:
        place = Path(given.partition("::")[0]).absolute()  # as code names its file ever after
        for file in place.rglob("test_*.py") if place.is_dir() else [place]:
            with contextlib.suppress(OSError, SyntaxError, ValueError):
                _rewrite(file, config)  # else whoever collects it says what is wrong with it
    if not Path(torch.__file__).with_name("_dynamo").joinpath("__pycache__").exists():
        path = [str(Path(__file__).parents[1]), *sys.path]
        code = f"import sys; sys.path[:0] = {path}\n{_IMPORT}"
        subprocess.run([sys.executable, "-c", code, *_LIBRARIES], check=False)


def _rewrite(file: Path, config: pytest.Config) -> None:
    """Rewrite a file's assertions as the import would."""
    folder = rewrite.get_cache_dir(file)
    cached = folder / (file.name[:-3] + rewrite.PYC_TAIL)
    if rewrite.try_makedirs(folder) and rewrite._read_pyc(file, cached) is None:
        status, code = rewrite._rewrite_test(file, config)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, status, cached)
