"""Which modules and names exist, by ``ast``: importing all that pages speak of takes seconds."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path

from support.paths import ROOT


@lru_cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def names_of(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """What a module or class defines, imports or lists in ``__all__``, and by which statement."""
    names: dict[str, ast.stmt] = {}
    for node in body:
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                names[node.name] = node
            case ast.AnnAssign(target=ast.Name(id=name)):
                names[name] = node
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                names[name] = node
                if name == "__all__":
                    names |= dict.fromkeys(ast.literal_eval(value), node)
            case ast.Import() | ast.ImportFrom():
                names |= {alias.asname or alias.name: node for alias in node.names}
            case ast.If(body=inner) | ast.Try(body=inner):
                names |= names_of(inner)
    return names


def exists(dotted: str) -> bool:
    """Whether this is a module, or a name of one, or of a class in one."""
    first, *rest = dotted.split(".")
    here = ROOT / first
    while rest and (here / rest[0]).is_dir():
        here /= rest.pop(0)
    file = here / "__init__.py"
    if rest and (here / f"{rest[0]}.py").is_file():
        file = here / f"{rest.pop(0)}.py"
    body = tree(file).body
    for name in rest:
        node = names_of(body).get(name)
        if node is None:
            return False
        body = node.body if isinstance(node, ast.ClassDef) else []
    return True
