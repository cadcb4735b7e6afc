"""Every file, module, name of Python and target of make that a page speaks of exists.

Modules and their names are looked up in the files, by ``ast``: importing them all takes seconds.
Links are in test_snippets.py.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from pathlib import Path

import pytest
from support.paths import ROOT

from reality_check.config.plugins import GROUPS

PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / ".github").rglob("*.md")),
]
PACKAGES = ("reality_check", "pml_extensions")
#: What pages let a reader write; it is not in this repository.
READERS = {
    "configs/methods/mine.yaml",
    "make_toys.py",
    "my_data.py",
    "my_losses.py",
    "my_miners.py",
    "my_models.py",
    "test_my_loss.py",
    "train.py",
}
_FOLDERS = r"tests|configs|benchmarks|docs|reality_check|pml_extensions|\.ci|\.github"
_PATH = re.compile(rf"(?<![\w/.-])(?:{_FOLDERS})/[\w./*-]*[\w/*]")
_FILE = re.compile(r"(?<![\w/.])\w+\.py\b")
_DOTTED = re.compile(rf"(?<![\w/.-])(?:{'|'.join(PACKAGES)})(?:\.\w+)+")
_IMPORT = re.compile(
    rf"^from ((?:{'|'.join(PACKAGES)})[\w.]*) import (?:\(([\w,\s]+)|([\w, ]+))", re.M
)
_SHORT = re.compile(r"(?<![\w.])rc\.(\w+)")
_MAKE = re.compile(r"(?:^|`)make ([a-z][a-z-]*)", re.M)

every_page = pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix()
)


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


def missing(text: str) -> list[str]:
    """The names in a page that stand for nothing."""
    paths = {path for path in _PATH.findall(text) if path not in READERS}
    absent = {path for path in paths if not any(ROOT.glob(re.sub(r"\b[A-Z]+\b", "*", path)))}
    absent |= {file for file in _FILE.findall(text) if file not in all_files() | READERS}
    dotted = set(_DOTTED.findall(text)) - set(GROUPS.values())
    dotted |= {f"reality_check.{name}" for name in _SHORT.findall(text)}
    for module, *names in _IMPORT.findall(text):
        dotted |= {f"{module}.{name}" for name in re.findall(r"\w+", "".join(names))}
    absent |= {name for name in dotted if not exists(name)}
    absent |= {f"make {target}" for target in _MAKE.findall(text) if target not in targets()}
    return sorted(absent)


@lru_cache
def all_files() -> frozenset[str]:
    folders = ("tests", "benchmarks", "docs", *PACKAGES)
    return frozenset(file.name for folder in folders for file in (ROOT / folder).rglob("*.py"))


@lru_cache
def targets() -> frozenset[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return frozenset(re.findall(r"^([a-z][a-z-]*):", makefile, re.M))


@every_page
def test_what_a_page_names_exists(page: Path) -> None:
    assert missing(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "`tests/docs/test_absent.py`",
        "`reality_check.absent`",
        "`reality_check.config.plugins.absent`",
        "`pml_extensions.losses.GradMLLoss.absent`",
        "in `absent.py`",
        "`configs/methods/NAME.yml`",
        "`rc.absent()`",
        "```python\nfrom reality_check.data import (\n    ImageSet,\n    absent,\n)\n```",
        "```sh\nmake absent\n```",
    ],
)
def test_what_is_missing_is_seen(text: str) -> None:
    assert len(missing(text)) == 1


def test_what_is_there_is_found() -> None:
    text = """`tests/docs/`, `configs/methods/NAME.yaml`, `imageset.py`,
    `reality_check.data.ImageSet`, `rc.load_experiment`, `make docs`"""
    assert missing(text) == []
