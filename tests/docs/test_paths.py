"""Every file, module, name of Python and target of make that a page speaks of exists.

Links are in test_snippets.py.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import pytest
from support.paths import ROOT
from support.python_names import exists

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
    "digits_data.py",
    "my_data.py",
    "my_losses.py",
    "my_metrics.py",
    "my_report.py",
    "my_miners.py",
    "my_models.py",
    "my_texts.py",
    "sweep.py",
    "test_my_loss.py",
    "train.py",
}
_FOLDERS = r"tests|configs|benchmarks|docs|examples|reality_check|pml_extensions|\.ci|\.github"
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
    folders = ("tests", "benchmarks", "docs", "examples", *PACKAGES)
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
    text = """`tests/docs/`, `configs/methods/NAME.yaml`, `sample_set.py`,
    `reality_check.data.ImageSet`, `rc.load_experiment`, `make docs`"""
    assert missing(text) == []
