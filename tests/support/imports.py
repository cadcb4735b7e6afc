"""Modules that lie outside the import path, by their file."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType


def import_file(path: Path, name: str | None = None) -> ModuleType:
    """Import a file, or a package by its ``__init__.py``, under a name of its own."""
    name = name or path.stem
    folders = [str(path.parent)] if path.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=folders)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def pml_tests(name: str, **settings: str) -> Iterator[Callable[[str], ModuleType]]:
    """Import modules of PML's own tests (folder ``PML_TESTS``) under a name that is not ours.

    Args:
        name: of the package meanwhile.
        settings: environment variables that PML's tests read.
    """
    folder = Path(os.environ["PML_TESTS"]).resolve() / "tests"
    before, path = dict(os.environ), list(sys.path)
    os.environ.update(settings)
    try:
        import_file(folder / "__init__.py", name)
        yield lambda module: importlib.import_module(f"{name}.{module}")
    finally:
        os.environ.clear()
        os.environ.update(before)
        sys.path[:] = path
        for module in [module for module in sys.modules if module.partition(".")[0] == name]:
            del sys.modules[module]
