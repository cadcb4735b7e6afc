"""What users get wrong: one clear sentence on stderr, exit status 2, and nothing is written."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from reality_check.cli.main import main

EXPERIMENT = """\
dataset: {name: blobs, reader: tensors, path: blobs.npz}
model: {base: conv4, arguments: {width: 4}}
protocol:
  base: quick_one_search
  training: {iterations_per_epoch: 1, max_epochs: 2, embedding_size: 4, batch_size: 8}
  search: {trials: 1}
  reproductions: 1
methods: [contrastive]
"""

LOSSES = """
import torch


class Base(torch.nn.Module):
    def forward(self, embeddings, labels):
        return self.value(embeddings, labels)


class Detached(Base):
    def value(self, embeddings, labels):
        return embeddings.detach().sum()


class Vector(Base):
    def value(self, embeddings, labels):
        return embeddings.sum(dim=1)


class Number(Base):
    def value(self, embeddings, labels):
        return 3.0


class Nan(Base):
    def value(self, embeddings, labels):
        return embeddings.sum() * float("nan")


class NanGradient(Base):
    def value(self, embeddings, labels):
        return torch.sqrt(0 * embeddings).sum()


class Flat(Base):
    def value(self, embeddings, labels):
        return 0 * embeddings.sum()


class Failing(Base):
    def value(self, embeddings, labels):
        raise RuntimeError("no luck\\nat all")


class Refusing(Base):
    def __init__(self, gamma=1):
        raise ValueError(f"gamma={gamma} is no good\\nat all")


class Needy(Base):
    def __init__(self, gamma):
        super().__init__()


class Unused(Base):
    def __init__(self):
        super().__init__()
        self.centre = torch.nn.Parameter(torch.zeros(4))

    def value(self, embeddings, labels):
        return embeddings.sum()


class Eights(Base):
    def __init__(self, num_classes, embedding_size):
        super().__init__()
        if embedding_size % 8:
            raise ValueError("needs a multiple of 8")
        self.weights = torch.nn.Parameter(torch.randn(num_classes, embedding_size))

    def value(self, embeddings, labels):
        return torch.nn.functional.cross_entropy(embeddings @ self.weights.t(), labels)


class NoModule:
    pass


SCALE = 5


class TwoInputs(torch.nn.Module):
    def forward(self, images, masks):
        return images


class Misspelt(torch.nn.Module):
    def forward(self, images):
        return self.layer(images)


def nothing():
    return None
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An own folder with an experiment, small images and losses; modules of it are forgotten."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("REALITY_CHECK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    (folder / "experiment.yaml").write_text(EXPERIMENT)
    (folder / "losses_here.py").write_text(LOSSES)
    write_npz(folder / "blobs.npz", classes=24)
    yield folder
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def write_npz(path: Path, classes: int) -> None:
    images = np.random.default_rng(0).integers(0, 255, (4 * classes, 16, 16), dtype=np.uint8)
    np.savez(path, images=images, labels=np.repeat(np.arange(classes), 4))


def contents(folder: Path) -> dict[str, bytes]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    folders = {str(path.relative_to(folder)): b"" for path in folder.rglob("*") if path.is_dir()}
    return folders | {str(path.relative_to(folder)): path.read_bytes() for path in files}


def check_refusal(status: int, error: str, words: tuple[str, ...], lines: int = 1) -> None:
    assert status == 2
    assert error.startswith("reality-check")
    assert "Traceback" not in error
    assert len(error.strip().splitlines()) == lines, error
    for word in words:
        assert word in error, f"{word!r} is not in: {error}"


def run_main(arguments: list[str]) -> int:
    try:
        return main(arguments)
    except SystemExit as error:  # argparse ends this way
        return error.code if isinstance(error.code, int) else -1


def refuse(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    *words: str,
    lines: int = 1,
) -> str:
    before = contents(folder)
    status = run_main(arguments)
    error = capsys.readouterr().err
    check_refusal(status, error, words, lines)
    assert contents(folder) == before, "a refused command must not write"
    return error


def m(loss: str, more: str = "") -> str:
    """An override that makes one method of a loss."""
    return f"methods=[{{name: mine, loss: {loss}{more}}}]"


#: A wrong override, and what the sentence must say.
OVERRIDES = [
    ("protocl.search.trials=2", "unknown key", "'protocl'", "'protocol'"),
    ("batch_size=8", "unknown key", "mean 'protocol.training.batch_size'?"),
    ("protocol.search.trials=0", "protocol.search.trials", "greater than or equal to 1", "got 0"),
    ("protocol.search.trials=many", "protocol.search.trials", "integer", "'many'"),
    ("protocol.search.sampler=tpee", "protocol.search.sampler", "'tpe'"),
    ("protocol.training.optimizers.trunk.arguments={betaz: 1}", "optimiser Adam", "betaz"),
    ("protocol.training.optimizers.trunk.arguments={lr: 1}", "lr beside name"),
    ("dataset.path=nowhere.npz", "nowhere.npz", "no file"),
    ("dataset.x=pixels", "there is no 'pixels'", "'images'"),
    ("dataset.y=marks", "there is no 'marks'", "'labels'"),
    ("dataset.where={split: 0}", "no array 'split'"),
    ("model.trunk=conv9", "conv9", "conv4"),
    ("model.trunk=losses_here.Nothing", "losses_here", "'Nothing'"),
    ("model.arguments.widht=8", "widht", "Did you mean 'width'?"),
    ("model.trunk=losses_here.SCALE", "losses_here.SCALE' is 5", "a class or a function"),
    (
        "model={name: x, trunk: losses_here.TwoInputs}",
        "does not take images",
        "TypeError",
        "'masks'",
    ),
    (
        "model={name: x, trunk: losses_here.Misspelt}",
        "does not take images",
        "AttributeError",
        "'layer'",
    ),
    ("model={name: x, trunk: losses_here.nothing}", "must be a torch.nn.Module", "got NoneType"),
    ("model.weights=~no_such_user_here/x.pth", "'~no_such_user_here/x.pth'", "home folder"),
    ("dataset.path=~no_such_user_here/x.npz", "'~no_such_user_here/x.npz'", "home folder"),
    ("dataset={name: x, reader: function}", "'dataset.function' is missing"),
    ("methods.contrastve.samples_per_class=2", "Did you mean 'contrastive'?"),
    ("methods.contrastive.arguments.pos_margn=1", "pos_margn", "Did you mean 'pos_margin'?"),
    ("methods.contrastive.arguments.distance=LpDistanc", "Did you mean 'LpDistance'?"),
    ("methods.contrastive.arguments.num_classes=4", "num_classes"),
    ("methods.contrastive.miner=MultiSimilarityMinr", "Did you mean 'MultiSimilarityMiner'?"),
    ("methods.contrastive.miner={class: MultiSimilarityMiner, eps: 1}", "no argument 'eps'"),
    ("methods.contrastive.phase2={factors: {nothing: 0.5}}", "nothing", "second phase"),
    ("methods.contrastive.phase2={factors: {pos_margin: big}}", "factor of 'pos_margin'", "big"),
    ("methods.contrastive.miner=losses_here.SCALE", "losses_here.SCALE' is 5"),
    ("protocol.training.batch_size=1", "batch_size"),
    ("protocol.training.batch_size=64", "batch_size=64", "classes"),
    ("protocol.split.folds=12", "12 test classes are too few for 12 folds"),
    ("protocol.training.embedding_size=0", "embedding_size"),
    ("name=../elsewhere", "name", "../elsewhere"),
    ("seed=-1", "seed", "0"),
    ("device=cuda:99", "cuda:99", "device: auto or cpu"),
    ("trials", "'trials' is not an override", "key.path=value"),
    ("protocol.search.trials", "is not an override"),
    ("=3", "is not an override"),
    ("seed=[1", "not valid YAML"),
    (f"seed={'[' * 3000}", "seed=[[[", "...' is not valid YAML"),
    ("base=quickstart", "base is not an override", "in a YAML of your own"),
    ("variants.a.seed=1", "variants.a.seed is not an override"),
    ("variant=paper", "variant is 'paper'", "has no variants"),
    ("storage=nonsense", "storage must be the URL of a database"),
    ("storage=oracel://tom:secret@host/db", "oracel://... cannot be opened"),
    ("storage=sqlite:////no/such/folder/here.db", "cannot be opened"),
    (m("losses_here.Detached"), "'mine'", "without a gradient", ".detach()"),
    (m("losses_here.Vector"), "'mine'", "must return one number", "(8,)"),
    (m("losses_here.Number"), "'mine'", "must return one number", "float"),
    (m("losses_here.Nan"), "'mine'", "nan", "must be finite"),
    (m("losses_here.NanGradient"), "'mine'", "gradient", "NaN"),
    (m("losses_here.Flat"), "'mine'", "gradient of every embedding is 0"),
    (m("losses_here.Unused"), "'mine'", "'centre'", "no gradient"),
    (m("losses_here.Failing"), "'mine'", "RuntimeError: no luck at all"),
    (m("losses_here.Refusing"), "'mine'", "without arguments", "ValueError: gamma=1"),
    (m("losses_here.Refusing", ", arguments: {gamma: 2}"), "gamma=2", "ValueError"),
    (m("losses_here.Needy"), "'mine'", "needs the argument 'gamma'"),
    (m("losses_here.Needy", ", arguments: {gama: 2}"), "'gama'", "Did you mean 'gamma'?"),
    (m("losses_here.NoModule"), "'mine'", "torch.nn.Module"),
    (m("losses_here.SCALE"), "losses_here.SCALE' is 5", "a class or a function"),
    (m("losses_here.Vectr"), "'Vectr'", "Did you mean 'Vector'?"),
    (m("losses_there.Vector"), "no module 'losses_there'", "losses_there.py"),
    (m("pytorch_metric_learning.losses.ArcFace"), "Did you mean 'ArcFaceLoss'?"),
    (m("ArcFaceLos"), "Did you mean 'ArcFaceLoss'?", "show losses"),
    (m("losses_here."), "not an import path", "my_losses.MyLoss"),
    (m("''"), "no loss named ''"),
    (m("3"), "loss", "must be a valid string"),
    (m("ProxyAnchorLoss", ", samples_per_class: 1, arguments: {alpa: 1}"), "'alpha'"),
    (m("TripletMarginLoss", ", samples_per_class: 1"), "samples_per_class=1"),
]


@pytest.mark.parametrize(("override", "words"), [(o, w) for o, *w in OVERRIDES])
def test_wrong_override(
    folder: Path, capsys: pytest.CaptureFixture[str], override: str, words: list[str]
) -> None:
    error = refuse(folder, capsys, ["run", "experiment.yaml", override], *words)
    assert "secret" not in error


#: A wrong command line, and what the sentence must say.
COMMANDS = [
    ([], "missing: COMMAND", "comparison: reality-check init", "--help"),
    (["rnu"], "no command 'rnu'", "Did you mean 'run'?"),
    (["run"], "missing: EXPERIMENT", "reality-check run --help"),
    (["run", "experiment.yaml", "--wrokers", "2"], "'--wrokers'", "Did you mean '--workers'?"),
    (["run", "experiment.yaml", "--work", "2"], "'--work'", "Did you mean '--workers'?"),
    (["run", "experiment.yaml", "--workers", "0"], "--workers", "at least 1", "'0'"),
    (["run", "experiment.yaml", "--workers", "two"], "--workers", "at least 1", "'two'"),
    (["run", "experiment.yaml", "--workers"], "--workers", "expected one argument"),
    *(
        (["run", "experiment.yaml", "--for", time], "--for", "such as 2d, 4h, 1h30m", f"'{time}'")
        for time in ("", "4", "0s", "h", "4 h", "1.5h", "4hours", "1h30")
    ),
    (["run", "experiment.yaml", "--for", "4h", "--launcher", "slurm"], "--for", "slurm.hours"),
    (["run", "experimnt.yaml"], "no file 'experimnt.yaml'", "Did you mean 'experiment.yaml'?"),
    (["run", "quikstart"], "Did you mean 'quickstart'?"),
    (["run", "."], "is a folder"),
    (["check", "quickstart", "--workers", "2"], "'--workers'", "check --help"),
    (["check", "quikstart"], "Did you mean 'quickstart'?"),
    (["check", "experiment.yaml", m("losses_here.Nan")], "must be finite"),
    (["show"], "missing: WHAT"),
    (["show", "datasest"], "'datasest'", "Did you mean 'datasets'?"),
    (["show", "loss"], "Did you mean 'losses'?"),
    (["show", "quickstart", "seed=x"], "seed"),
    (["status"], "missing: DIR"),
    (["status", "nowhere"], "no file 'nowhere' and no experiment of that name"),
    (["status", "experiment.yaml"], "has not been run here", "name its folder"),
    (["status", "a", "b"], "'b'"),
    (["report", "nowhere"], "not an output folder"),
    (["report", "nowhere", "--trails"], "'--trails'"),
    (["init"], "experiment.yaml exists already"),
]


@pytest.mark.parametrize(("arguments", "words"), [(a, w) for a, *w in COMMANDS])
def test_wrong_command(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: list[str]
) -> None:
    refuse(folder, capsys, arguments, *words)


def test_worker_of_no_output_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(folder)
    assert main(["worker", "nowhere"]) == 2
    assert "nowhere is not an output folder" in capsys.readouterr().err
    assert contents(folder) == before


#: Ten lines that stand for 3.5 billion values.
ALIASES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]\n" for n in range(10)
)
#: A file of the user's that cannot be used, and what the sentence must say.
FILES = [
    ("experiment.yaml", EXPERIMENT.replace("methods:", "method:"), "'method'", "'methods'"),
    ("experiment.yaml", EXPERIMENT.partition("methods")[0], "'methods' is missing"),
    ("experiment.yaml", "methods: [contrastive\nseed: 0", "experiment.yaml, line"),
    ("experiment.yaml", "- a list", "must hold a mapping"),
    ("experiment.yaml", "a: " + "[" * 3000, "nested too deep"),
    ("experiment.yaml", ALIASES, "stand for more than 1,000,000 values"),
    ("experiment.yaml", ALIASES.replace("[*", "{<<: [*").replace("]", "]}"), "stand for more than"),
    ("experiment.yaml", "methods: &a [*a]\n", "stand for more than"),
    ("experiment.yaml", EXPERIMENT + "variant: paper\n", "variant is 'paper'", "no variants"),
    ("experiment.yaml", EXPERIMENT + "variants: {1: {}, 2: {}}\nvariant: 3\n", "must map names"),
    ("experiment.yaml", EXPERIMENT + "variants: {a: {}}\nvariant: [a]\n", "must be one of a"),
    ("experiment.yaml", "base: quickstart\nmethods: {contrastive: 3}\n", "methods.contrastive"),
    ("experiment.yaml", "", "must hold a mapping"),
    ("experiment.yaml", EXPERIMENT + "seed: 0\nseed: 1\n", "seed", "twice"),
    ("experiment.yaml", EXPERIMENT + "code: !!python/object/apply:os.getcwd []\n", "line"),
    ("blobs.npz", "no archive", "blobs.npz", "cannot be read"),
]


@pytest.mark.parametrize(("name", "text", "words"), [(n, t, w) for n, t, *w in FILES])
def test_unusable_file(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, words: list[str]
) -> None:
    (folder / name).write_text(text)
    refuse(folder, capsys, ["run", "experiment.yaml"], *words)


#: Text of a module, and what the sentence on its loss ``user_module.MyLoss`` must say.
MODULES = [
    ("def f(:\n", "SyntaxError", "user_module.py, line 1"),
    ("import not_there\n", "No module named 'not_there'"),
    ("raise ValueError('at import')\n", "ValueError: at import (user_module.py:1)"),
    ("import sys\nsys.exit()\n", "sys.exit(None) (user_module.py:2)"),
    ("from losses_here import Myloss\n", "ImportError", "Myloss"),
    ("class Myloss: pass\n", "Did you mean 'Myloss'?"),
    ("def MyLoss(gamma): return 3\n", "'gamma'"),
]


@pytest.mark.parametrize(("text", "words"), [(t, w) for t, *w in MODULES])
def test_module_that_does_not_import(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, words: list[str]
) -> None:
    (folder / "user_module.py").write_text(text)
    refuse(folder, capsys, ["run", "experiment.yaml", m("user_module.MyLoss")], *words)


def test_a_loss_is_built_at_the_sizes_it_is_trained_with_only(folder: Path) -> None:
    size = "protocol.training.embedding_size=8"
    assert main(["check", "experiment.yaml", m("losses_here.Eights"), size]) == 0


def test_a_folder_does_not_hide_the_experiment_of_its_name(folder: Path) -> None:
    (folder / "quickstart").mkdir()
    assert main(["show", "quickstart"]) == 0


def test_a_training_of_a_method_without_one_of_the_protocol(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = ["protocol.training=null", "methods.contrastive.training.batch_size=8"]
    refuse(folder, capsys, ["show", "experiment.yaml", *wrong], "protocol.training must", lines=2)


def test_every_mistake_of_a_yaml_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = ["seed=-1", "protocol.search.trials=0", "protocol.reproductions=no"]
    refuse(folder, capsys, ["run", "experiment.yaml", *wrong], "seed", "trials", "repro", lines=3)


def test_every_name_that_does_not_exist_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = ["dataset=nowhere", "protocol=none_such", "methods=[not_one, nor_two, contrastive]"]
    words = "'nowhere'", "'none_such'", "'not_one'", "'nor_two'"
    refuse(folder, capsys, ["check", "experiment.yaml", *wrong], *words, lines=4)
    refuse(folder, capsys, ["check", "experiment.yaml", "a=1", "b=2"], "'a'", "'b'", lines=2)


def test_every_mistake_of_the_methods_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that a look at the YAML finds, and those that data, network and losses show."""
    methods = "methods=[{name: a, loss: %s, samples_per_class: %d}, {name: b, loss: %s%s}]"
    wrong = methods % ("ContrastiveLoss", 3, "TripletMarginLoss", ", trials: 5")
    refuse(folder, capsys, ["check", "experiment.yaml", wrong], "'a': sam", "'b': tri", lines=2)
    wrong = methods % ("NoLoss", 4, "ContrastiveLoss, arguments: {gamma: 1}", "")
    trunk = "model={name: m, trunk: conv4, arguments: {wide: 1}}"
    words = "trunk conv4 has no argument 'wide'", "no loss named 'NoLoss'", "no argument 'gamma'"
    for command in ("check", "run"):
        refuse(folder, capsys, [command, "experiment.yaml", wrong, trunk], *words, lines=3)


# -- image folders --------------------------------------------------------------------------------


def image_folder(folder: Path, classes: int = 24, images: int = 2) -> Path:
    root = folder / "images"
    for label in range(classes):
        (root / f"class_{label:02d}").mkdir(parents=True)
        for number in range(images):
            picture = Image.fromarray(np.full((16, 16, 3), 9 * label + number, dtype=np.uint8))
            picture.save(root / f"class_{label:02d}" / f"{number}.png")
    return root


def _missing(folder: Path) -> None:
    pass


def _empty(folder: Path) -> None:
    (folder / "images").mkdir()


def _empty_class(folder: Path) -> None:
    (image_folder(folder) / "class_99").mkdir()


def _broken(folder: Path) -> None:
    (image_folder(folder) / "class_03" / "1.png").write_bytes(b"no picture")


def _single(folder: Path) -> None:
    for file in image_folder(folder).glob("*/1.png"):
        file.unlink()


def _too_few(folder: Path) -> None:
    image_folder(folder, classes=5)


IMAGES: list[tuple[Callable[[Path], None], tuple[str, ...]]] = [
    (_missing, ("no folder 'images'", "sub-folder")),
    (_empty, ("no sub-folders",)),
    (_empty_class, ("class_99", "no image")),
    (_broken, ("1.png", "cannot be decoded", "on_broken: skip")),
    (_single, ("validation of fold 0", "single image")),
    (_too_few, ("2 training and 3 test classes are too few",)),
]


@pytest.mark.parametrize(
    ("prepare", "words"), IMAGES, ids=lambda value: getattr(value, "__name__", "")
)
def test_unusable_image_folder(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    prepare: Callable[[Path], None],
    words: tuple[str, ...],
) -> None:
    prepare(folder)
    data = "dataset={name: mine, reader: image_folder, path: images, size: 16}"
    refuse(folder, capsys, ["run", "experiment.yaml", data], *words)


def test_unset_data_folder(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REALITY_CHECK_DATA", raising=False)
    arguments = ["run", "experiment.yaml", "dataset=omniglot_background"]
    refuse(folder, capsys, arguments, "REALITY_CHECK_DATA", "export")


# -- output folders -------------------------------------------------------------------------------


def test_output_path_that_is_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "experiment.yaml", "--out", "losses_here.py"]
    refuse(folder, capsys, arguments, "losses_here.py is a file", "--out")


def test_output_folder_below_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "experiment.yaml", "--out", "losses_here.py/runs"]
    refuse(folder, capsys, arguments, "losses_here.py", "cannot be written")


@pytest.mark.parametrize(
    "arguments", [["run", "experiment.yaml", "--out", "."], ["status", "."], ["report", "."]]
)
def test_folder_of_the_users_own_yaml(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    refuse(folder, capsys, arguments, "not written by a run", "runs/")


def test_output_folder_with_other_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "thesis.txt").write_text("years of work")
    arguments = ["run", "experiment.yaml", "--out", "mine"]
    refuse(folder, capsys, arguments, "thesis.txt", "new or empty folder")


def lock(folder: Path, *overrides: str) -> Path:
    """An output folder as an interrupted run leaves it."""
    from support.prepared import prepare

    from reality_check.config import load_experiment

    prepare(load_experiment("experiment.yaml", overrides), folder / "out")
    return folder / "out"


def test_output_folder_of_another_experiment(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock(folder, "protocol.search.trials=5")
    arguments = ["run", "experiment.yaml", "--out", "out", "protocol.search.trials=3", "seed=7"]
    words = ("another experiment", "protocol.search.trials is 5 there and 3 here", "seed is 0")
    refuse(folder, capsys, arguments, *words)


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "out"],
        ["pack", "out"],
        ["merge", "out", "theirs.pack", "--out", "both"],
        ["leaderboard", "out", "--out", "board.html"],
        ["verdicts", "out"],
        ["export", "out", "--to", "csv", "--out", "exported"],
        ["track", "out", "tensorboard"],
    ],
)
def test_output_folder_without_its_records(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    (lock(folder) / "report.html").write_text("of all that was trained")
    (folder / "out" / "studies.db").unlink()
    refuse(folder, capsys, arguments, "out has no studies.db, the record of all trainings")


def test_other_images_are_another_experiment(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock(folder)
    write_npz(folder / "blobs.npz", classes=26)
    arguments = ["run", "experiment.yaml", "--out", "out"]
    refuse(folder, capsys, arguments, "the images are not the same")


def test_storage_of_another_experiment_keeps_its_password(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock(folder)
    arguments = ["run", "experiment.yaml", "--out", "out", "storage=mysql://tom:secret@host/db"]
    assert "secret" not in refuse(folder, capsys, arguments, "storage is", "mysql://...")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes anywhere")
def test_unwritable_output_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "locked").mkdir(mode=0o555)
    arguments = ["run", "experiment.yaml", "--out", "locked/out"]
    refuse(folder, capsys, arguments, "locked/out", "cannot be written")


# -- what this machine lacks ----------------------------------------------------------------------


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_no_cuda(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refuse(folder, capsys, ["run", "experiment.yaml", "device=cuda"], "'cuda'", "auto or cpu")


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("postgresql://tom:secret@host/db", "pml-extensions[postgres]"),
        ("postgresql+psycopg://tom:secret@host/db", "pml-extensions[postgres]"),
        ("mysql://tom:secret@host/db", "mysql+pymysql"),
    ],
)
def test_missing_storage_driver(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    hint: str,
) -> None:
    for driver in ("psycopg", "psycopg2", "MySQLdb"):
        monkeypatch.setitem(sys.modules, driver, None)
    error = refuse(folder, capsys, ["run", "experiment.yaml", f"storage={url}"], hint, "driver")
    assert "secret" not in error


@pytest.mark.skipif(importlib.util.find_spec("psycopg") is None, reason="needs the driver")
def test_storage_that_does_not_answer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = "storage=postgresql+psycopg://tom:secret@localhost:1/db"
    error = refuse(folder, capsys, ["run", "experiment.yaml", url], "cannot be opened")
    assert "secret" not in error


# -- the real command -----------------------------------------------------------------------------


@pytest.mark.slow
def test_subprocess(folder: Path) -> None:
    before = contents(folder)
    arguments = ["run", "experiment.yaml", m("losses_here.Nan")]
    command = [sys.executable, "-B", "-m", "reality_check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    check_refusal(done.returncode, done.stderr, ("must be finite",))
    assert contents(folder) == before


def test_files_in_place_of_folders_and_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.pack").touch()
    assert main(["report", str(tmp_path / "a.pack")]) == 2
    assert "the report of a pack needs a folder: add --out DIR" in capsys.readouterr().err
    assert main(["claim", str(tmp_path / "none.csv")]) == 2
    assert f"{tmp_path / 'none.csv'} cannot be read as a CSV" in capsys.readouterr().err
