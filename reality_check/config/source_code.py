"""The user's own code: fingerprints of it, and copies of it in output folders.

A module is the user's own unless it belongs to Python, to this package, or to an installed package;
modules of editable installs are the user's own.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import functools
import hashlib
import importlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from importlib.metadata import Distribution, distribution, packages_distributions
from pathlib import Path
from types import ModuleType

from reality_check._version import __version__
from reality_check.utils.files import atomic_write
from reality_check.utils.own_names import own_path

#: Where an output folder keeps copies of the user's own modules.
SOURCES = "sources"
_OURS = ("reality_check", "pml_extensions")
_INSTALLED = {"site-packages", "dist-packages"}


@contextlib.contextmanager
def sources_of(out_dir: Path) -> Iterator[None]:
    """Import modules from the copies in an output folder before all others, within the context.

    Modules of the same names that are already imported are restored at the end.
    """
    folder = own_path(out_dir, SOURCES).resolve()
    names = {entry.stem for entry in folder.iterdir()} if folder.is_dir() else set()
    replaced = _forget(names)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the user's code may have removed it
            sys.path.remove(str(folder))
        _forget(names)
        sys.modules.update(replaced)


def _forget(names: set[str]) -> dict[str, ModuleType]:
    """Remove modules and their submodules from ``sys.modules``, and return them."""
    importlib.invalidate_caches()
    removed = [module for module in sys.modules if module.partition(".")[0] in names]
    return {module: sys.modules.pop(module) for module in removed}


_used_sources = contextlib.ExitStack()
_folder_in_use: Path | None = None
atexit.register(_used_sources.close)


def use_sources(out_dir: Path | None, again: bool = True) -> None:
    """Import from a folder's copies until the next call, as :func:`sources_of` does.

    ``again`` is whether modules are imported again if that folder's copies are in use already.
    """
    global _folder_in_use
    if again or out_dir != _folder_in_use:
        _used_sources.close()
        _folder_in_use = None
        if out_dir is not None:
            _used_sources.enter_context(sources_of(out_dir))
        _folder_in_use = out_dir


def copy_sources(modules: set[str], out_dir: Path) -> None:
    """Copy own modules, and the own modules that they import, into an output folder."""
    for module in sorted(modules):
        for name, file in own_files(module).items():
            parts = name.split(".")
            # A package is a folder with __init__.py, any other module a file.
            parts = [*parts, "__init__.py"] if file.stem == "__init__" else [*parts[:-1], file.name]
            copy, content = Path(out_dir, SOURCES, *parts), file.read_bytes()
            if not copy.exists() or copy.read_bytes() != content:
                copy.parent.mkdir(parents=True, exist_ok=True)
                atomic_write(copy, content)


def fingerprint(module: str) -> str | None:
    """Return a fingerprint of the code of an imported module.

    Returns:
        For an own module a SHA-256 of its file and of the files of the own modules that it imports;
        for an installed package its name, version and, unless it comes from an index, its address;
        ``None`` for anything else.
    """
    files = own_files(module)
    if not files:
        return _installed_package(module.partition(".")[0])
    digest = hashlib.sha256()
    for name, file in sorted(files.items()):
        digest.update(f"{name}\0{file.stat().st_size}\0".encode() + file.read_bytes())
    return f"sha256:{digest.hexdigest()}"


def own_files(module: str) -> dict[str, Path]:
    """Return the files of an own module and of the own modules that it imports, by module name.

    Only modules in the folder of the module count, not libraries elsewhere. The result is empty if
    the module is not the user's own.
    """
    root = _own_root(module.partition(".")[0])
    if root is None:
        return {}
    files: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        *packages, last = name.split(".")
        if name in files or not last or _own_root(name.partition(".")[0]) != root:
            continue
        spec = PathFinder.find_spec(last, [str(root.joinpath(*packages))])
        if spec is not None and spec.origin is not None and Path(spec.origin).is_file():
            files[name] = Path(spec.origin)
            # Importing a module also imports its package.
            waiting += [".".join(packages), *_imports(name, files[name])]
    return files


def _own_root(top: str) -> Path | None:
    """Return the folder of a top-level module; ``None`` if the module is not the user's own."""
    if top in (*_OURS, *sys.stdlib_module_names):
        return None
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None or not (spec.submodule_search_locations or spec.has_location):
        return None
    # The first folder of a package, or the file of a module.
    root = Path([*(spec.submodule_search_locations or ()), spec.origin][0] or "").resolve().parent
    # Installed packages lie beside their metadata, or in a folder such as site-packages.
    is_installed = any(root.glob("*.dist-info")) and _distribution(top) is not None
    return None if is_installed or _INSTALLED & {*root.parts} else root


def _imports(module: str, file: Path) -> Iterator[str]:
    """Yield the modules that a module may import; some may be names within modules instead."""
    try:
        tree = ast.parse(file.read_bytes() if file.suffix == ".py" else b"")
    except SyntaxError:
        # Such a module can only be a fallback that is imported if another one is missing.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module if file.stem == "__init__" else module.rpartition(".")[0]
            # One dot stands for the package, each further one for the package around it.
            relative = package.rsplit(".", node.level - 1)[0] if node.level else ""
            source = ".".join(filter(None, (relative, node.module)))
            yield from (source, *(f"{source}.{alias.name}" for alias in node.names))


def _installed_package(top: str) -> str | None:
    """Return name and version of the package that a top-level module is installed with."""
    if top in _OURS:
        return f"pml-extensions {__version__}"
    package = _distribution(top)
    if package is None:
        return None
    # Packages that do not come from an index have this file (PEP 610).
    origin = json.loads(package.read_text("direct_url.json") or "{}")
    commit = origin.get("vcs_info", {}).get("commit_id", "")
    address = f" ({origin['url']}{f'@{commit}' if commit else ''})" if origin else ""
    # A local version such as +cu121 is left out: the code for CPU and GPU is the same.
    return f"{package.metadata['Name']} {package.version.partition('+')[0]}{address}"


def _distribution(top: str) -> Distribution | None:
    """Return the installed distribution that contains a top-level module, if there is one."""
    # Only folders with metadata count, so that a further one without any does not read all again.
    path = (entry for entry in sys.path if any(Path(entry).glob("*.[de]*-info")))
    names = _distribution_names(tuple(path)).get(top)
    return distribution(names[0]) if names else None


@functools.lru_cache(maxsize=4)
def _distribution_names(path: tuple[str, ...]) -> dict[str, list[str]]:
    """Return the names of the distributions of each top-level module on a ``sys.path``; cached."""
    return {top: list(names) for top, names in packages_distributions().items()}
