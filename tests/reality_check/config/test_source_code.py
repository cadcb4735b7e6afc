"""What a fingerprint of the user's own code sees, and which files are copied."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.in_process import visiting

from reality_check import __version__
from reality_check.config.classes import find_class, own_module, source_fingerprint
from reality_check.config.source_code import (
    SOURCES,
    copy_sources,
    fingerprint,
    own_files,
    sources_of,
    use_sources,
)
from reality_check.utils.errors import UsageError

LOSSES = '''\
"""Losses of one's own."""

import torch
from torch.nn.functional import relu as act, gelu

import tools
import package.deep as deep
from package import middle, Third
from tools import near as close

START = 0.5  # of the margin
LIMITS = {}
LIMITS["low"] = 0.1
LIMITS.update(high=2.0)


class Base(torch.nn.Module):
    """What all have in common."""

    def clip(self, x):
        return x.clamp(LIMITS["low"], LIMITS["high"])


class Mine(Base):
    """The loss."""

    def forward(self, embeddings, labels):
        "Not even this text matters."
        x = tools.shift(act(embeddings), START) + close(embeddings)
        return middle.mean(deep.square(self.clip(x))) + Third().third


class Other(Base):
    def forward(self, embeddings, labels):
        return tools.unused(gelu(embeddings)).mean()


if __name__ == "__main__":
    print(Mine())
'''
TOOLS = """\
def shift(x, by):
    return x - _double(by)


def _double(x):
    return 2 * x


def near(x):
    return x


def unused(x):
    return x
"""
FILES = {
    "losses.py": LOSSES,
    "tools.py": TOOLS,
    "package/__init__.py": "from .third import Third\n",
    "package/middle.py": "def mean(x):\n    return x.mean()\n",
    "package/deep.py": "from . import middle\n\n\ndef square(x):\n    return x * x\n",
    "package/third.py": "class Third:\n    third = 3\n",
    "not_imported.py": "x = 1\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "mine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "mine"


@pytest.fixture
def prints(folder: Path) -> Callable[[], str]:
    def compute() -> str:
        with visiting(folder):
            found = source_fingerprint("losses.Mine", "loss")
        assert found is not None
        assert found.startswith("sha256:")
        return found

    return compute


@pytest.mark.parametrize("file", FILES)
def test_every_byte_of_what_is_imported_counts(
    folder: Path, prints: Callable[[], str], file: str
) -> None:
    before, path = prints(), folder / file
    text = path.read_text()
    path.write_text(f"{text}# a comment\n")
    assert (prints() == before) == (file == "not_imported.py")
    path.write_text(text)
    assert prints() == before


def test_libraries_elsewhere_are_not_walked(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prints: Callable[[], str]
) -> None:
    """With two large libraries on PYTHONPATH, walking them took eight minutes."""
    library = tmp_path / "elsewhere" / "huge"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text("from huge import module_0\n")
    for number in range(30):
        text = f"def later():\n    from huge import module_{number + 1}\n"
        (library / f"module_{number}.py").write_text(text)
    (folder / "tools.py").write_text(f"import huge\nfrom huge.module_0 import later\n{TOOLS}")
    monkeypatch.syspath_prepend(library.parent)
    before = prints()
    (library / "module_0.py").write_text("def later(): ...\n")
    assert prints() == before
    with visiting(folder):
        assert set(own_files("losses")) == {
            *("losses", "tools", "package", "package.middle", "package.deep", "package.third")
        }


@pytest.mark.parametrize("editable", [True, False])
def test_an_editable_install_is_own_code_and_another_counts_by_version_and_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, editable: bool
) -> None:
    site, code = tmp_path / "site", tmp_path / ("checkout" if editable else "site")
    site.mkdir()
    code.mkdir(exist_ok=True)
    (code / "their_losses.py").write_text("class Theirs: ...\n")
    info = site / "their_losses-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-losses\nVersion: 1.2\n")
    (info / "top_level.txt").write_text("their_losses\n")
    vcs = {"url": "https://example.org/theirs", "vcs_info": {"commit_id": "abc"}}
    (info / "direct_url.json").write_text(json.dumps(vcs))
    for folder in {site, code}:
        monkeypatch.syspath_prepend(folder)
    with visiting(tmp_path):
        found = str(source_fingerprint("their_losses.Theirs", "loss"))
        own = own_module("their_losses.Theirs")
    if editable:
        assert found.startswith("sha256:")
        assert own == "their_losses"
    else:
        assert found == "their-losses 1.2 (https://example.org/theirs@abc)"
        assert own is None


def test_copies_can_be_imported_alone(folder: Path, tmp_path: Path) -> None:
    with visiting(folder):
        find_class("losses.Mine", "loss")
        assert own_module("losses.Mine") == "losses"
        copy_sources({"losses"}, tmp_path)
    copied = {
        str(path.relative_to(tmp_path / SOURCES))
        for path in tmp_path.rglob("*.py")
        if SOURCES in path.parts
    }
    assert copied == set(FILES) - {"not_imported.py"}
    code = "import losses, torch; print(losses.Mine()(torch.ones(2, 2), None).item())"
    # -E: PYTHONSAFEPATH, which a worker in this process may have set, hides the folder.
    command = [sys.executable, "-E", "-c", code]
    done = subprocess.run(command, cwd=tmp_path / SOURCES, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_installed_packages_count_by_version() -> None:
    """Going from a checkout to a wheel, or another comment in our files, changes nothing."""
    ours = f"pml-extensions {__version__}"
    assert source_fingerprint("reality_check.baseline_losses.RingLoss", "loss") == ours
    assert source_fingerprint("pml_extensions.losses.WarpedSoftmaxLoss", "loss") == ours
    name = source_fingerprint("pytorch_metric_learning.losses.ContrastiveLoss", "loss")
    assert str(name).startswith("pytorch-metric-learning 2.")
    torch = str(fingerprint("torch.nn"))
    assert torch.startswith("torch 2.")
    assert "+" not in torch
    assert source_fingerprint("ContrastiveLoss", "loss") is None
    assert own_module("reality_check.baseline_losses.RingLoss") is None
    assert own_module("torch.nn.Linear") is None


@pytest.fixture
def edited(tmp_path: Path) -> Iterator[Path]:
    """An output folder with copies of two modules; the current folder has edited one of them."""
    (tmp_path / "out" / SOURCES).mkdir(parents=True)
    (tmp_path / "out" / SOURCES / "edited.py").write_text("class Mine:\n    version = 1\n")
    (tmp_path / "out" / SOURCES / "gone.py").write_text("class Mine:\n    version = 1\n")
    (tmp_path / "edited.py").write_text("class Mine:\n    version = 2\n")
    with visiting(tmp_path):
        yield tmp_path / "out"


@pytest.mark.parametrize("imported", [True, False])
def test_copies_are_found_only_while_they_are_asked_for(edited: Path, imported: bool) -> None:
    """A notebook may open an old result and then continue with the loss as it is now."""
    if imported:
        mine = find_class("edited.Mine", "loss")
    with sources_of(edited):
        assert find_class("edited.Mine", "loss").version == 1
        assert find_class("gone.Mine", "loss").version == 1
    assert find_class("edited.Mine", "loss").version == 2
    if imported:
        assert find_class("edited.Mine", "loss") is mine
    with pytest.raises(UsageError, match="no module 'gone'"):
        find_class("gone.Mine", "loss")


def test_only_the_copies_of_the_last_folder_are_found(edited: Path, tmp_path: Path) -> None:
    before = [*sys.path]
    use_sources(edited)
    assert find_class("gone.Mine", "loss").version == 1
    use_sources(tmp_path / "another")
    with pytest.raises(UsageError, match="no module 'gone'"):
        find_class("gone.Mine", "loss")
    use_sources(None)
    assert sys.path == before
