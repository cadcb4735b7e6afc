"""Packages that add losses, data sets and trunks: used by name, shown, refused with a reason."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support.in_process import forget_modules, run_command
from support.paths import DOCS

from reality_check.cli.listings import print_listing
from reality_check.config import load_experiment
from reality_check.config.classes import find_class
from reality_check.config.compose import compose
from reality_check.config.plugins import GROUPS, plugins
from reality_check.config.yaml_text import parse_yaml
from reality_check.data import load_dataset
from reality_check.launch.check import fingerprints
from reality_check.models import build_trunk
from reality_check.utils.errors import UsageError

CODE = '''\
import numpy as np
import torch
from pytorch_metric_learning.losses import ContrastiveLoss

from reality_check.data import ImageSet


class GentleLoss(ContrastiveLoss):
    """A contrastive loss with another default."""

    def __init__(self, neg_margin=0.7, **kwargs):
        super().__init__(neg_margin=neg_margin, **kwargs)


class OneLayer(torch.nn.Sequential):
    """One convolution."""

    def __init__(self, channels, width=4):
        super().__init__(torch.nn.Conv2d(channels, width, 5, stride=4), torch.nn.ReLU())


def stripes(classes=24, each=4):
    """Stripes of as many directions as classes."""
    draw = np.random.default_rng(0)
    patterns = draw.uniform(0, 255, (classes, 1, 16, 16, 1))
    images = np.clip(patterns + draw.normal(0, 60, (classes, each, 16, 16, 1)), 0, 255)
    labels = np.repeat(np.arange(classes), each)
    names = tuple(f"stripe {label}" for label in range(classes))
    return ImageSet(images.reshape(-1, 16, 16, 1).astype(np.uint8), labels, names, "stripes")


def nothing():
    return None


NUMBER = 5
'''
ENTRY_POINTS = """\
[reality_check.losses]
GentleLoss = stripes_plugin:GentleLoss
NumberLoss = stripes_plugin:NUMBER
AbsentLoss = stripes_plugin:Absent
dotted.Loss = stripes_plugin:GentleLoss
[reality_check.datasets]
stripes = stripes_plugin:stripes
nothing = stripes_plugin:nothing
[reality_check.trunks]
one_layer = stripes_plugin:OneLayer
"""
EXPERIMENT = """\
name: with_plugins
dataset: stripes
model: {name: mine, trunk: one_layer, arguments: {width: 8}}
protocol:
  base: quick_one_search
  split: {folds: 2}
  training: {batch_size: 8, iterations_per_epoch: 2, max_epochs: 2, embedding_size: 4}
  search: {trials: 1, sampler: random}
  reproductions: 1
methods:
  - {name: gentle, loss: GentleLoss, arguments: {neg_margin: {low: 0.2, high: 0.8}}}
device: cpu
"""

Install = Callable[..., Path]


def install_into(folder: Path, package: str, code: str, entry_points: str) -> Path:
    """Lay out a package as pip does: its code, and the metadata beside it."""
    module = folder / package.replace("-", "_")
    module.mkdir(parents=True)
    (module / "__init__.py").write_text(code)
    metadata = folder / f"{package.replace('-', '_')}-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text(entry_points)
    (metadata / "RECORD").write_text(f"{module.name}/__init__.py,,\n")
    return folder


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """A function that installs a package for this test."""

    def into(package: str, code: str = CODE, entry_points: str = ENTRY_POINTS) -> Path:
        folder = install_into(tmp_path / f"site of {package}", package, code, entry_points)
        monkeypatch.syspath_prepend(folder)
        return folder

    yield into
    forget_modules(tmp_path)


def test_names_of_a_plugin_mean_its_classes(install: Install) -> None:
    assert not plugins("loss")
    install("stripes-plugin")
    assert find_class("GentleLoss", "loss").__module__ == "stripes_plugin"
    experiment = compose(parse_yaml(EXPERIMENT), ["dataset.arguments={each: 3}"])
    data = load_dataset(experiment.dataset)
    assert (data.name, len(data), data.num_classes) == ("stripes", 72, 24)
    maps = build_trunk(experiment.model, (16, 16, 1))(torch.zeros(2, 1, 16, 16))
    assert maps.shape == (2, 8, 3, 3)


def test_what_a_plugin_adds_is_shown_with_its_package(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("stripes-plugin")
    for what, name in (("losses", "GentleLoss"), ("datasets", "stripes"), ("trunks", "one_layer")):
        print_listing(what)
        shown = " ".join(capsys.readouterr().out.split())
        assert re.search(rf"{name} .*from the package stripes-plugin 1\.2", shown), shown
        if what == "losses":
            assert "GentleLoss neg_margin=0.7 A contrastive loss with another default." in shown
            assert "has no attribute 'Absent'" in shown
            assert "write stripes_plugin.GentleLoss" in shown


def test_a_plugin_that_cannot_be_used_says_so_in_one_sentence(install: Install) -> None:
    install("stripes-plugin")
    with pytest.raises(UsageError, match=r"package stripes-plugin 1\.2, .*it is of type int"):
        find_class("NumberLoss", "loss")
    install("broken-plugin", "import nowhere\n", "[reality_check.losses]\nOdd = broken_plugin:Odd")
    with pytest.raises(UsageError) as caught:
        find_class("Odd", "loss")
    message = re.sub(r" \([^(]*broken_plugin/__init__.py:1\)", " (HERE)", str(caught.value))
    assert message == (
        "loss 'Odd' comes from the installed package broken-plugin 1.2, whose broken_plugin:Odd "
        "cannot be used (ModuleNotFoundError: No module named 'nowhere' (HERE)); fix or uninstall "
        "that package, or use another name."
    )
    install(
        "leaving-plugin", "import sys; sys.exit(3)", "[reality_check.losses]\nO = leaving_plugin:O"
    )
    with pytest.raises(UsageError, match=r"sys\.exit\(3\)"):
        find_class("O", "loss")


def test_a_data_set_that_is_none_is_refused(install: Install) -> None:
    install("stripes-plugin")
    raw = parse_yaml(EXPERIMENT)
    with pytest.raises(UsageError, match=r"nothing must return .* or TensorSet, got None"):
        load_dataset(compose({**raw, "dataset": "nothing"}).dataset)
    with pytest.raises(UsageError, match="stripes has no argument 'size'; its arguments: classes"):
        load_dataset(compose(raw, ["dataset.arguments.size=8"]).dataset)
    with pytest.raises(UsageError, match="Did you mean 'stripes'"):
        compose({**raw, "dataset": "stripe"})


@pytest.mark.parametrize(
    ("kind", "name", "ways"),
    [
        ("loss", "TripletMarginLoss", "pytorch_metric_learning.losses.TripletMarginLoss or "),
        ("loss", "GentleLoss", "other_plugin.GentleLoss or stripes_plugin.GentleLoss"),
        ("dataset", "glyphs", "configs/datasets/glyphs.yaml or other_plugin.GentleLoss"),
        ("trunk", "resnet18", "torchvision:resnet18 or timm:resnet18 or other_plugin.GentleLoss"),
        ("trunk", "conv4", "reality_check.models.conv4.Conv4 or other_plugin.GentleLoss"),
    ],
)
def test_a_name_of_two_owners_is_refused_where_it_is_used(
    kind: str, name: str, ways: str, install: Install
) -> None:
    if name == "resnet18":
        pytest.importorskip("timm", reason="timm and torchvision are not installed")
    install("stripes-plugin")
    group = {"loss": "losses", "dataset": "datasets", "trunk": "trunks"}[kind]
    points = f"[reality_check.{group}]\n{name} = other_plugin:GentleLoss\n"
    install("other-plugin", entry_points=points)
    raw = parse_yaml(EXPERIMENT)
    raw["methods"] = [{"name": "it", "loss": name if kind == "loss" else "ArcFaceLoss"}]
    raw["dataset"] = name if kind == "dataset" else "stripes"
    raw["model"]["trunk"] = name if kind == "trunk" else "one_layer"
    with pytest.raises(UsageError, match=rf"{name}' is a name of .* and .*; write which: .*{ways}"):
        use_all(raw)
    # Others of the same packages still work.
    assert find_class("stripes_plugin.GentleLoss", "loss").__name__ == "GentleLoss"
    assert compose(parse_yaml(EXPERIMENT)).dataset.name == "stripes"


def use_all(raw: dict[str, Any]) -> None:
    experiment = compose(raw)
    build_trunk(experiment.model, (16, 16, 1))
    find_class(experiment.methods[0].loss, "loss")


def test_a_file_of_the_users_wins_over_a_plugin(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("stripes-plugin")
    own = tmp_path / "configs" / "datasets" / "stripes.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("reader: glyphs\nclasses: 30\n")
    monkeypatch.chdir(tmp_path)
    assert compose(parse_yaml(EXPERIMENT)).dataset.reader == "glyphs"


def test_the_version_of_a_plugin_is_part_of_what_a_result_depends_on(install: Install) -> None:
    install("stripes-plugin")
    experiment = compose(parse_yaml(EXPERIMENT))
    data = load_dataset(experiment.dataset)
    found = fingerprints(experiment, data)
    assert found["data set from"] == found["GentleLoss"] == found["one_layer"]
    assert found["GentleLoss"] == "stripes-plugin 1.2"
    by_path = experiment.methods[0].model_copy(update={"loss": "stripes_plugin.GentleLoss"})
    named = experiment.model_copy(update={"methods": [by_path]})
    assert fingerprints(named, data)["stripes_plugin.GentleLoss"] == "stripes-plugin 1.2"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where an experiment with a plugin ran."""
    folder = tmp_path_factory.mktemp("plugin")
    install_into(folder / "site", "stripes-plugin", CODE, ENTRY_POINTS)
    (folder / "experiment.yaml").write_text(EXPERIMENT)
    done = run_with_plugin(folder)
    assert done.returncode == 0, done.stderr
    return folder


def run_with_plugin(folder: Path) -> subprocess.CompletedProcess[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder / "site")
        return run_command(folder, "run", "experiment.yaml", "--out", "out")


@pytest.mark.slow
def test_an_experiment_runs_with_a_plugin_and_names_its_package(ran: Path) -> None:
    assert "gentle" in (ran / "out" / "results.csv").read_text()
    code = parse_yaml((ran / "out" / "experiment.yaml").read_text())["code"]
    assert code["data set from"] == "stripes-plugin 1.2"
    assert {"GentleLoss", "one_layer"} <= set(code)
    locked = load_experiment(ran / "out" / "experiment.yaml")
    assert locked.dataset.reader == "function"


@pytest.mark.slow
def test_another_version_of_a_plugin_is_refused(ran: Path) -> None:
    file = next(ran.glob("site/*.dist-info/METADATA"))
    text = file.read_text()
    file.write_text(text.replace("Version: 1.2", "Version: 1.3"))
    try:
        done = run_with_plugin(ran)
    finally:
        file.write_text(text)
    assert done.returncode == 2
    assert "the code of GentleLoss has changed" in done.stderr


def test_the_page_declares_the_groups_that_are_read() -> None:
    page = DOCS / "your_own.md"
    declared = re.findall(r'^\[project\.entry-points\."(.+)"\]$', page.read_text("utf-8"), re.M)
    assert sorted(declared) == sorted(GROUPS.values())
