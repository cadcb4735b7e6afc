"""The user's own code: what a result depends on in it, and copies of it that outlive the folder.

A module is the user's own unless it belongs to Python, to an installed package or to this one.
"""

from __future__ import annotations

import ast
import atexit
import contextlib
import functools
import hashlib
import importlib
import importlib.util
import re
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType
from typing import Any

from reality_check._version import __version__
from reality_check.utils.files import atomic_write
from reality_check.utils.own_names import own_path

#: Where an output folder keeps copies of the user's own modules.
SOURCES = "sources"
_OURS = ("reality_check", "pml_extensions")
_INSTALLED = ("site-packages", "dist-packages")
#: Fields of syntax trees that say nothing, or that only some versions of Python have.
_SILENT = ("ctx", "kind", "type_comment")

#: A name of a module; of the module as a whole where there is none.
_Use = tuple[str, str | None]


@contextlib.contextmanager
def sources_of(out_dir: Path) -> Iterator[None]:
    """Have the copies in an output folder, where it has some, found before all other modules.

    Modules of the same names that are imported already are set aside for as long.
    """
    folder = own_path(out_dir, SOURCES).resolve()
    names = {entry.stem for entry in folder.iterdir()} if folder.is_dir() else set()
    aside = _forget(names)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))
        _forget(names)
        sys.modules.update(aside)


def _forget(names: set[str]) -> dict[str, ModuleType]:
    """Have modules, and those inside of them, imported anew; return what was imported."""
    found = [module for module in sys.modules if module.partition(".")[0] in names]
    importlib.invalidate_caches()
    return {module: sys.modules.pop(module) for module in found}


_used = contextlib.ExitStack()
atexit.register(_used.close)


def use_sources(out_dir: Path | None) -> None:
    """Do the same from now on, or no longer; only for the folder that was named last."""
    _used.close()
    if out_dir is not None:
        _used.enter_context(sources_of(out_dir))


def copy_sources(modules: set[str], out_dir: Path) -> None:
    """Copy the user's own modules, and those that they import, into an output folder.

    Together they can be imported from there.
    """
    for name, file in sorted(_with_imports(modules).items()):
        parts = name.split(".")
        parts = [*parts, "__init__.py"] if file.stem == "__init__" else [*parts[:-1], file.name]
        copy, content = Path(out_dir, SOURCES, *parts), file.read_bytes()
        if not copy.exists() or copy.read_bytes() != content:
            copy.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(copy, content)


def fingerprint(module: str, name: str) -> str | None:
    """What a class or function of an imported module does.

    Returns:
        Of the user's own code a SHA-256 that changes with the code of the class and of all that it
        uses in own modules, and not with comments, docstrings or anything else. Of an installed
        package its name and version; ``None`` where there is neither.
    """
    if own_file(module) is None:
        return _distribution(module)
    parts = [f"{used}.{name}: {text}" for (used, name), text in sorted(_closure(module, name))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def own_file(module: str) -> Path | None:
    """The file of one of the user's own modules; ``None`` if it is none."""
    top = module.partition(".")[0]
    if top in (*_OURS, *sys.stdlib_module_names):
        return None
    outermost = _origin(top)  # first, since looking for what is inside of it imports it
    if outermost is not None and not _is_own(outermost):
        return None
    file = outermost if module == top else _origin(module)
    return file if file is not None and _is_own(file) else None


def _origin(module: str) -> Path | None:
    """The file that a module comes from, or would come from."""
    origin = getattr(sys.modules.get(module), "__file__", None)
    if origin is None:
        try:
            spec = importlib.util.find_spec(module)
        except Exception:  # what it is in cannot be imported, or is no package
            return None
        origin = None if spec is None else spec.origin
    return Path(origin).resolve() if origin is not None and Path(origin).is_file() else None


def _is_own(file: Path) -> bool:
    standard = Path(sysconfig.get_path("stdlib")).resolve()
    return not file.is_relative_to(standard) and not any(part in _INSTALLED for part in file.parts)


def _distribution(module: str) -> str | None:
    top = module.partition(".")[0]
    if top in _OURS:
        return f"pml-extensions {__version__}"
    # As `packages_distributions` finds it, which splits the path of every installed file: 0.3 s.
    recorded = re.compile(rf'^"?{re.escape(top)}(/|\.[^/,\n]+,)', re.M)
    for found in distributions():
        named = (found.read_text("top_level.txt") or "").split()
        if top in named or (not named and recorded.search(found.read_text("RECORD") or "")):
            # CPU and GPU have the same code.
            return f"{found.metadata['Name']} {found.version.partition('+')[0]}"
    return None


# -- which modules --------------------------------------------------------------------------------


def _with_imports(modules: set[str]) -> dict[str, Path]:
    """The files of the user's own modules among these, and of all that they import."""
    files: dict[str, Path] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        file = own_file(name)
        if name in files or file is None:
            continue
        files[name] = file
        parent = name.rpartition(".")[0]
        waiting += [parent] * bool(parent)
        for node in ast.walk(_module(name).tree):
            for module, inner in _imported(node, name, file):
                waiting += [module] if inner is None else [module, f"{module}.{inner}"]
    return files


def _imported(node: ast.AST, module: str, file: Path) -> Iterator[_Use]:
    """What an import statement of a module refers to: ``(module, name in it)``."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, None) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        source = node.module or ""
        if node.level:
            parts = module.split(".") if file.stem == "__init__" else module.split(".")[:-1]
            parts = parts[: len(parts) - node.level + 1]
            source = ".".join([*parts, *([source] if source else [])])
        yield from ((source, alias.name) for alias in node.names)


# -- what a class uses ----------------------------------------------------------------------------


class _Module:
    """The statements of a module by the names that they bind, and those that bind none."""

    def __init__(self, name: str, file: Path, content: bytes) -> None:
        self.name, self.file, self._content = name, file, content
        try:
            self.tree, self._is_python = ast.parse(content), True
        except (SyntaxError, ValueError):  # compiled
            self.tree, self._is_python = ast.parse(""), False
        self.binders: dict[str, list[ast.stmt]] = {}
        self.effects: list[ast.stmt] = []
        self.imports: dict[str, _Use] = {}
        self.stars: list[str] = []
        for statement in self.tree.body:
            self._file(statement)

    def _file(self, statement: ast.stmt) -> None:
        for node in ast.walk(statement):
            self._note_import(node)
        bound = set(_bound_names(statement))
        for name in bound:
            self.binders.setdefault(name, []).append(statement)
        imports = isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass)
        if not bound and not imports and not _is_text(statement) and not _is_script(statement):
            self.effects.append(statement)

    def _note_import(self, node: ast.AST) -> None:
        for alias, (module, inner) in zip(
            getattr(node, "names", ()), _imported(node, self.name, self.file), strict=False
        ):
            if inner == "*":
                self.stars.append(module)
            elif inner is not None or alias.asname:
                self.imports[alias.asname or alias.name] = (module, inner)
            else:
                self.imports[module.partition(".")[0]] = (module.partition(".")[0], None)

    def whole(self) -> str:
        """All of the module as text, for where it is unknown which part of it is used."""
        is_python = self._is_python
        return _canonical(self.tree) if is_python else hashlib.sha256(self._content).hexdigest()


def _module(name: str) -> _Module:
    """An own module as its file is now."""
    file = own_file(name)
    assert file is not None
    return _parsed(name, file, file.read_bytes())


_parsed = functools.lru_cache(maxsize=64)(_Module)


def _closure(module: str, name: str) -> set[tuple[tuple[str, str], str]]:
    """All that the name of a module leads to in own modules, as canonical text, by name."""
    found: dict[tuple[str, str], str] = {}
    waiting: list[_Use] = [(module, name)]
    seen: set[_Use] = set()
    while waiting:
        use = waiting.pop()
        if use in seen:
            continue
        seen.add(use)
        text, uses = _resolve(*use)
        found[use[0], use[1] or ""] = text
        waiting += uses
    return set(found.items())


def _resolve(module: str, name: str | None) -> tuple[str, list[_Use]]:
    """What a use means: its canonical text, and what that uses in turn."""
    if own_file(module) is None:
        return "", []  # of a package, whose version the report tells
    code = _module(module)
    if name is None:
        return code.whole(), _uses_of(code, code.tree.body)
    bound = code.binders.get(name, [])
    if not bound and name not in code.imports:
        if own_file(f"{module}.{name}") is not None:
            return "", [(f"{module}.{name}", None)]
        return code.whole(), [(star, name) for star in code.stars]
    statements = [*bound, *code.effects]
    uses = [*_uses_of(code, statements), *_of_import(code, name, set())]
    return "".join([*map(_canonical, statements), *_named(code, statements)]), uses


def _named(code: _Module, statements: list[ast.stmt]) -> list[str]:
    """Which imports the names in statements stand for."""
    nodes = (node for statement in statements for node in ast.walk(statement))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return [f"{name}={code.imports[name]}" for name in sorted(names & set(code.imports))]


def _uses_of(code: _Module, statements: list[ast.stmt]) -> list[_Use]:
    """What statements of a module use of own modules, that module's own names among them."""
    attributes: dict[str, set[str]] = {name: set() for name in _names_alone(statements)}
    alone = set(attributes)
    for node in (node for statement in statements for node in ast.walk(statement)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            attributes.setdefault(node.value.id, set()).add(node.attr)
    uses: list[_Use] = []
    for name, used in attributes.items():
        uses += [(code.name, name)] * (name in code.binders)
        uses += _of_import(code, name, set() if name in alone else used)
        uses += [(star, name) for star in code.stars if _has(star, name)]
    return uses


def _names_alone(statements: list[ast.stmt]) -> set[str]:
    """Names that are used otherwise than as ``name.attribute``."""
    nodes = [node for statement in statements for node in ast.walk(statement)]
    parents = {
        id(node.value)
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    return {node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in parents}


def _of_import(code: _Module, name: str, attributes: set[str]) -> list[_Use]:
    """What an imported name leads to; of a module, only its attributes where these are known."""
    if name not in code.imports:
        return []
    module, inner = code.imports[name]
    is_module = inner is None or own_file(f"{module}.{inner}") is not None
    if inner is not None and not is_module:
        return [(module, inner)]
    whole = module if inner is None else f"{module}.{inner}"
    return [(whole, attribute) for attribute in attributes] or [(whole, None)]


def _has(module: str, name: str) -> bool:
    return own_file(module) is not None and name in _module(module).binders


def _bound_names(statement: ast.AST) -> Iterator[str]:
    """Names that a statement gives a value, or changes one in; not those of its inner functions."""
    if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield statement.name
        return
    for node in ast.iter_child_nodes(statement):
        if isinstance(node, ast.stmt | ast.excepthandler | ast.match_case | ast.withitem):
            yield from _bound_names(node)
        elif isinstance(node, ast.expr):
            yield from _stored_names(node)


def _stored_names(node: ast.expr) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(getattr(inner, "ctx", None), ast.Store):
            while isinstance(inner, ast.Attribute | ast.Subscript | ast.Starred):
                inner = inner.value
            if isinstance(inner, ast.Name):
                yield inner.id


def _is_text(statement: ast.stmt) -> bool:
    """Whether it is a docstring, or another text that does nothing."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_script(statement: ast.stmt) -> bool:
    """Whether it is ``if __name__ == "__main__":``, which no import runs."""
    return isinstance(statement, ast.If) and "__name__" in _names_alone([statement])


def _canonical(node: Any) -> str:
    """A syntax tree as text, the same for the same code in every version of Python."""
    if isinstance(node, list):
        kept = (entry for entry in node if not (isinstance(entry, ast.stmt) and _is_text(entry)))
        return f"[{','.join(map(_canonical, kept))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = (
        f"{name}={_canonical(value)}"
        for name, value in ast.iter_fields(node)
        if name not in _SILENT and value is not None and value != []
    )
    return f"{type(node).__name__}({','.join(fields)})"
