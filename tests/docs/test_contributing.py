"""The map of the packages is the one that import-linter enforces, and its names exist."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from support.paths import DOCS, ROOT
from support.python_names import exists

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

PAGE = (DOCS / "contributing.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def layers() -> list[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (contract,) = [one for one in contracts if one["type"] == "layers"]
    assert contract["containers"] == ["reality_check"]
    assert contract["exhaustive"]
    return list(contract["layers"])


def test_the_table_has_the_layers_of_the_contract_lowest_first() -> None:
    assert [cells[0].strip("`") for cells in rows("The packages of reality_check")] == layers()[
        ::-1
    ]


def test_every_layer_is_there() -> None:
    parts = {path.stem for path in Path(ROOT / "reality_check").glob("*.py")}
    parts |= {path.parent.name for path in Path(ROOT / "reality_check").glob("*/__init__.py")}
    assert parts - {"__init__"} == set(layers())


def test_the_names_in_the_tables_exist() -> None:
    # They are written from the package on, `studies.storage.open_storage`.
    names = re.findall(rf"`((?:{'|'.join(layers())})(?:\.\w+)+)[`(]", PAGE)
    assert len(names) >= 8
    assert [name for name in names if not exists(f"reality_check.{name}")] == []
